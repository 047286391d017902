// Rotary position embedding: one table of cosines and sines per step and rope kind, then rotations.
// How frequencies come from a config is config/rope_parameters.h. Records on the tape; family
// code's thread only.
#pragma once

#include "tenon/ops/tape.h"

namespace tenon {

enum class RopePairing {
  kHalf,         // (j, j + rotary_dim / 2): Llama, Qwen, Gemma
  kInterleaved,  // (2j, 2j + 1): DeepSeek, Cohere, GPT-J
};

// Frequencies, one row per regime (sequences whose total length changes the frequencies use
// different rows; most ropes have one row). Read when the tape runs.
struct RopeFrequencyTable {
  const float* inv_freq = nullptr;          // [regimes, rotary_dim / 2]
  const float* attention_factor = nullptr;  // [regimes]: multiplies cosines and sines
  int64_t rotary_dim = 0;
};

// positions [num_tokens], regimes [num_tokens] or null (all 0) -> [num_tokens, rotary_dim]: the
// cosines of the rotary_dim / 2 angles, then their sines, fp32. Angles are position * inv_freq in
// fp32 as Hugging Face has them.
Value RopeAngles(Tape& tape, const RopeFrequencyTable& table, const int32_t* positions,
                 const int32_t* regimes, int64_t num_tokens);

// For records that rotate on their way: the first 2 * half columns of a head, of row `row` of the
// step. Filled by RotationBy; `angles` is one of the record's operands.
struct Rotation {
  Operand angles;  // [num_tokens, 2 * half]
  void (*rotate)(const float* cos_sin, int64_t half, const float* x, float* y,
                 int64_t width) = nullptr;  // null: nothing is rotated
  int64_t half = 0;

  // x -> y, of `width` numbers each; y may be x.
  void Run(int thread, int64_t row, const float* x, float* y, int64_t width) const {
    rotate(angles.For<float>(thread) + row * 2 * half, half, x, y, width);
  }
};
// By `angles`, as Rope; its operand is still to be read by the record.
Rotation RotationBy(const Tape& tape, const Value& angles, RopePairing pairing);

// Rotates the first rotary_dim columns of each head of x [num_tokens, heads, head_dim] in place. A
// rank-2 x [num_tokens, head_dim] is one head.
void Rope(Tape& tape, const Value& x, const Value& angles, RopePairing pairing);

// The same where only the result is read afterwards, never x: [num_tokens, heads, head_dim]. For
// one token each thread rotates into a copy of its own, which saves a meeting; otherwise the result
// is x, rotated in place.
[[nodiscard]] Value Rotated(Tape& tape, const Value& x, const Value& angles, RopePairing pairing);

}  // namespace tenon
