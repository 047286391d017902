// KernelTable: one table of plain functions per instruction set. Kernels work on raw pointers,
// single-threaded over a range, with no STL inside, so that one source can be compiled once per
// ISA. Private to ops and attention. A faster table starts as a copy of the one below it and
// replaces what it has, names included. Constant; thread-safe. To add a kernel: a member here,
// reference/<topic>.cc, then cpu/<isa> where it pays.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tenon/base/machine_profile.h"
#include "tenon/kernels/attention_kernels.h"
#include "tenon/kernels/matmul_kernels.h"
#include "tenon/numeric/activation.h"
#include "tenon/numeric/dtype.h"

namespace tenon {

// --- norms, one row per call

struct NormKernelArgs {
  const float* weight = nullptr;  // [width]; null: no scale
  const float* bias = nullptr;    // [width]; null: none
  float weight_offset = 0;        // the scale is weight + weight_offset
  float eps = 0;
  int64_t width = 0;
};
// x, y [width]; in place allowed.
using NormFunction = void(const NormKernelArgs& args, const float* x, float* y);
// x * silu(gate), then RMS-normed in groups of `group` columns. x, gate, y [width].
using GatedNormFunction = void(const NormKernelArgs& args, int64_t group, const float* x,
                               const float* gate, float* y);

struct NormKernels {
  Kernel<NormFunction> rms;
  Kernel<NormFunction> layer;  // the variance is biased: divided by width
  Kernel<GatedNormFunction> gated_rms;
};

// --- elementwise, n numbers per call; in place allowed

struct ElementwiseKernels {
  Kernel<void(Activation activation, const float* x, float* y, int64_t n)> activate;
  // activation(gate) * up
  Kernel<void(Activation activation, const float* gate, const float* up, float* y, int64_t n)>
      gated_activate;
  Kernel<void(const ClampedSwiglu& unit, const float* gate, const float* up, float* y, int64_t n)>
      clamped_swiglu;
  Kernel<void(const float* a, const float* b, float* y, int64_t n)> multiply;
  // y = x + addends[0] + ... + addends[count - 1], added in this order.
  Kernel<void(const float* x, const float* const* addends, int32_t count, float* y, int64_t n)> add;
  // y += factor * x
  Kernel<void(float factor, const float* x, float* y, int64_t n)> add_scaled;
  Kernel<void(float factor, const float* x, float* y, int64_t n)> scale;
  Kernel<void(float cap, const float* x, float* y, int64_t n)> soft_cap;  // cap * tanh(x / cap)
  Kernel<void(const float* x, float* y, int64_t n)> softmax;
};

// --- rotary embedding

// x, y: one head of `width` numbers, of which the first 2 * half are rotated and the rest copied;
// y is x (in place) or apart from it. cos_sin: [half] cosines, then [half] sines.
using RotateFunction = void(const float* cos_sin, int64_t half, const float* x, float* y,
                            int64_t width);

struct RopeKernels {
  // cos_sin: [half] cosines, then [half] sines of position * inv_freq[i], times factor. The angle
  // is rounded to fp32, as Hugging Face has it.
  Kernel<void(int32_t position, const float* inv_freq, float factor, int64_t half, float* cos_sin)>
      angles;
  Kernel<RotateFunction> rotate_half;         // pairs (j, j + half)
  Kernel<RotateFunction> rotate_interleaved;  // pairs (2j, 2j + 1)
};

// --- rows of tables

struct EmbedKernelArgs {
  const std::byte* table = nullptr;  // [rows, cols], row_bytes apart
  DType dtype = DType::kF32;
  int64_t row_bytes = 0;
  int64_t cols = 0;
  float scale = 1;
  const int32_t* ids = nullptr;  // [count]
  float* y = nullptr;            // [count, cols]
};

struct GatherKernelArgs {
  const float* x = nullptr;  // [rows, width], x_stride floats apart
  int64_t x_stride = 0;
  int64_t width = 0;
  const int32_t* rows = nullptr;  // [count]
  float* y = nullptr;             // [count, width]
};

struct RowKernels {
  Kernel<void(const EmbedKernelArgs& args, int64_t begin, int64_t end)> embed;
  Kernel<void(const GatherKernelArgs& args, int64_t begin, int64_t end)> gather;
};

// --- mixture of experts

struct RouteKernelArgs {
  int32_t experts = 0, top_k = 0, groups = 1, kept_groups = 1;
  bool sigmoid = false;       // scores: sigmoid, else softmax
  bool score_chosen = false;  // the logits choose; scored are the chosen ones alone
  bool renormalise = false;
  bool group_score_top2 = false;  // else the group's maximum
  float renormalise_eps = 0, scale = 1, masked_score = 0;
  const float* choice_bias = nullptr;  // [experts] or null
};

struct MoeKernels {
  // One token: logits [experts] -> chosen [top_k] in descending order of choice score, weights
  // [top_k]. NaN ranks first (as in torch.topk), so that it stays visible; equal scores: the lower
  // index first. scratch: RouteScratchFloats.
  Kernel<void(const RouteKernelArgs& args, const float* logits, int32_t* chosen, float* weights,
              float* scratch)>
      route;
};
constexpr int64_t RouteScratchFloats(int64_t experts, int64_t groups) {
  return 2 * experts + groups;
}

// --- recurrent mixers: rows of one sequence, state updated in place

struct ConvKernelArgs {
  int64_t channels = 0;           // of weight, bias and state
  int64_t width = 0;              // taps
  const float* weight = nullptr;  // [channels, width]: the last tap meets the newest row
  const float* bias = nullptr;    // [channels] or null
  const float* x = nullptr;       // [rows, channels], x_stride floats apart
  int64_t x_stride = 0;
  float* y = nullptr;  // [rows, channels], y_stride floats apart; apart from x
  int64_t y_stride = 0;
  int64_t rows = 0;
  float* state = nullptr;  // [width - 1, channels]: the rows before x, oldest first
  bool fresh = false;      // the state counts as zero
};

// One head.
struct ScanKernelArgs {
  int64_t head_dim = 0, state_size = 0;
  float decay = 0;  // -exp(a_log) of the head
  float d = 0;
  float dt_bias = 0, dt_min = 0, dt_max = 0;
  const float* x = nullptr;   // [rows, head_dim], x_stride floats apart
  const float* b = nullptr;   // [rows, state_size], b_stride apart
  const float* c = nullptr;   // [rows, state_size], c_stride apart
  const float* dt = nullptr;  // [rows], dt_stride apart
  int64_t x_stride = 0, b_stride = 0, c_stride = 0, dt_stride = 0;
  float* y = nullptr;  // [rows, head_dim], y_stride apart
  int64_t y_stride = 0;
  int64_t rows = 0;
  float* state = nullptr;  // [head_dim, state_size]
  bool fresh = false;      // the state counts as zero
};

// One value head.
struct DeltaKernelArgs {
  int64_t key_dim = 0, value_dim = 0;
  float decay = 0;  // -exp(a_log) of the head
  float dt_bias = 0;
  float query_scale = 1;
  float eps = 0;              // of the norms of q and k
  const float* q = nullptr;   // [rows, key_dim], q_stride floats apart
  const float* k = nullptr;   // [rows, key_dim], k_stride apart
  const float* v = nullptr;   // [rows, value_dim], v_stride apart
  const float* dt = nullptr;  // [rows], dt_stride apart
  const float* b = nullptr;   // [rows], b_stride apart
  int64_t q_stride = 0, k_stride = 0, v_stride = 0, dt_stride = 0, b_stride = 0;
  float* y = nullptr;  // [rows, value_dim], y_stride apart
  int64_t y_stride = 0;
  int64_t rows = 0;
  float* state = nullptr;  // [key_dim, value_dim]
  bool fresh = false;      // the state counts as zero
};
constexpr int64_t DeltaScratchFloats(int64_t key_dim, int64_t value_dim) {
  return 2 * key_dim + value_dim;
}

struct RecurrentKernels {
  // Channels [begin, end).
  Kernel<void(const ConvKernelArgs& args, int64_t begin, int64_t end)> conv;
  Kernel<void(const ScanKernelArgs& args)> scan;
  // ops/recurrent.h, GatedDelta, says what it computes. scratch: DeltaScratchFloats.
  Kernel<void(const DeltaKernelArgs& args, float* scratch)> delta;
};

// --- yardsticks: what one core can do at most

struct ProbeKernels {
  // Reads all of it; the result keeps the compiler from dropping the loads.
  Kernel<float(const std::byte* data, int64_t bytes)> read;
  // The widest multiply-adds of the table (bf16 where it has them) on registers.
  Kernel<float(int64_t steps)> multiply;
  double operations_per_step = 0;  // of multiply; a multiply-add is two
};

struct KernelTable {
  const char* name = "";
  Isa isa = Isa::kReference;
  MatmulKernels matmul;
  NormKernels norm;
  ElementwiseKernels elementwise;
  RopeKernels rope;
  RowKernels rows;
  MoeKernels moe;
  RecurrentKernels recurrent;
  AttentionKernels attention;
  ProbeKernels probes;
};

const KernelTable& ReferenceKernels();
// The best table for a machine that has `isa`.
const KernelTable& KernelsUpTo(Isa isa);

}  // namespace tenon
