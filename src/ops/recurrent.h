// Mixers with a fixed-size state per sequence: causal depthwise convolution, Mamba-2's selective
// scan and the gated delta rule. The state lives in a cache slot and is updated in place. Records
// on the tape; family code's thread only.
#pragma once

#include "tenon/ops/activation.h"

namespace tenon {

// The rows of one sequence in this step, and its state slot. The engine fills these before each
// run.
struct SequenceRun {
  int32_t begin = 0;  // rows [begin, end) of the step's values, in order of position
  int32_t end = 0;
  int32_t slot = 0;    // of the state pool
  bool fresh = false;  // no state yet: starts from zero
};

// Read when the tape runs.
struct SequenceRuns {
  const SequenceRun* runs = nullptr;
  const int32_t* count = nullptr;
};

// A layer's states: slot s is at base + s * slot_bytes. fp32. The base is null on meta; ops keep
// the address of the struct and read it when the tape runs.
struct StatePool {
  std::byte* base = nullptr;
  int64_t slot_bytes = 0;
};

// Ops keep the addresses of specs: they live as long as the tape.
struct CausalConvSpec {
  int64_t channels = 0;
  int64_t width = 0;              // taps
  const float* weight = nullptr;  // [channels, width]: the last tap meets the newest row
  const float* bias = nullptr;    // [channels] or null
  Activation activation = Activation::kNone;
};
// x [num_tokens, channels] -> the same shape. State: the last width - 1 rows, [width - 1,
// channels].
Value CausalConv(Tape& tape, const CausalConvSpec& spec, const Value& x, const SequenceRuns& runs,
                 const StatePool& state);
int64_t StateBytesOf(const CausalConvSpec& spec);

struct SelectiveScanSpec {
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t groups = 0;  // heads / groups share b and c
  int64_t state_size = 0;
  const float* a_log = nullptr;    // [heads]: the decay is exp(-exp(a_log) * dt)
  const float* d = nullptr;        // [heads]
  const float* dt_bias = nullptr;  // [heads]
  float dt_min = 0;
  float dt_max = 0;  // may be infinity
};
struct SelectiveScanInput {
  Value x;   // [num_tokens, heads * head_dim]
  Value b;   // [num_tokens, groups * state_size]
  Value c;   // [num_tokens, groups * state_size]
  Value dt;  // [num_tokens, heads], before bias and softplus
};
// h = exp(-exp(a_log) dt) h + dt x b^T; y = h c + d x, with dt = clamp(softplus(dt + dt_bias)).
// (Dao and Gu 2024, section 6; Hugging Face modeling_mamba2.py.) -> [num_tokens, heads * head_dim].
// State: [heads, head_dim, state_size].
Value SelectiveScan(Tape& tape, const SelectiveScanSpec& spec, const SelectiveScanInput& input,
                    const SequenceRuns& runs, const StatePool& state);
int64_t StateBytesOf(const SelectiveScanSpec& spec);

struct GatedDeltaSpec {
  int64_t key_heads = 0;
  int64_t value_heads = 0;  // value_heads / key_heads share q and k
  int64_t key_dim = 0;      // of a head
  int64_t value_dim = 0;
  const float* a_log = nullptr;    // [value_heads]: the decay is exp(-exp(a_log) * dt)
  const float* dt_bias = nullptr;  // [value_heads]
};
// fp32, any strides. Heads are those of keys where not said otherwise.
struct GatedDeltaInput {
  Value q;   // [num_tokens, key_heads, key_dim]
  Value k;   // [num_tokens, key_heads, key_dim]
  Value v;   // [num_tokens, value_heads, value_dim]
  Value dt;  // [num_tokens, key_heads, value_heads / key_heads], before bias and softplus
  Value b;   // [num_tokens, key_heads, value_heads / key_heads], before sigmoid
};
// q and k normed to length one (eps 1e-6 beside the squares), q divided by sqrt(key_dim);
// S = exp(-exp(a_log) dt) S; S = S + k (sigmoid(b) (v - S^T k))^T; y = S^T q, with
// dt = softplus(dt + dt_bias). (Yang et al. 2024, Gated Delta Networks; Hugging Face
// modeling_qwen3_next.py, torch_recurrent_gated_delta_rule.)
// -> [num_tokens, value_heads, value_dim]. State: [value_heads, key_dim, value_dim].
Value GatedDelta(Tape& tape, const GatedDeltaSpec& spec, const GatedDeltaInput& input,
                 const SequenceRuns& runs, const StatePool& state);
int64_t StateBytesOf(const GatedDeltaSpec& spec);

}  // namespace tenon
