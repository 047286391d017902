// down (act(gate x) * up x) as one op: what gate and up give stays in a core's own caches, and goes
// to the product with down as that reads it. Records on the tape; family code's thread only.
#pragma once

#include "tenon/numeric/activation.h"
#include "tenon/ops/matmul.h"

namespace tenon {

struct FeedForwardMatrices {
  std::span<const MatrixRef, 2> gate_up;  // [intermediate, cols]
  std::span<const MatrixRef, 1> down;     // [rows, intermediate]
};

// x [num_tokens, cols] -> [num_tokens, rows], fp32. The results are those of Matmul, GatedActivate
// and Matmul, which stand in where gate and up are held differently or computed in fp32.
Value GatedFeedForward(Tape& tape, Activation activation, const FeedForwardMatrices& matrices,
                       const Value& x);

}  // namespace tenon
