// Normalisations over the last dimension, alone or with the residual's pending addends in one pass.
// Records on the tape; family code's thread only.
#pragma once

#include <span>

#include "tenon/ops/tape.h"

namespace tenon {

enum class NormKind { kRms, kLayer };

// Ops keep the address: lives as long as the tape. Pointers are null on meta.
struct NormWeights {
  NormKind kind = NormKind::kRms;
  const float* weight = nullptr;  // [width]; null: no scale
  const float* bias = nullptr;    // [width]; null: none
  float eps = 0;
  float weight_offset = 0;  // 1 where the container stores w of (1 + w)
};

inline constexpr size_t kMaxAddends = 4;

// x [..., width] (any row strides) -> the same shape, contiguous, fp32.
Value Norm(Tape& tape, const NormWeights& weights, const Value& x);

// In place on x.
void NormInPlace(Tape& tape, const NormWeights& weights, const Value& x);

struct NormedSum {
  Value sum;     // x + addends: the residual from here on
  Value normed;  // norm of it
};
// x [num_tokens, width] and at most kMaxAddends addends of its shape.
NormedSum AddNorm(Tape& tape, const NormWeights& weights, const Value& x,
                  std::span<const Value> addends);

// x + addends, without a norm.
Value Add(Tape& tape, const Value& x, std::span<const Value> addends);

// RMS norm over groups of `group` columns of x * silu(gate) (Mamba-2's gated norm; Hugging Face
// modeling_mamba2.py, MambaRMSNormGated). x, gate [num_tokens, width].
Value GatedNorm(Tape& tape, const NormWeights& weights, const Value& x, const Value& gate,
                int64_t group);

}  // namespace tenon
