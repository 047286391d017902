// act(gate x) * up x as one op: what both products give never leaves a core's own caches. Records
// on the tape; family code's thread only.
#pragma once

#include "tenon/numeric/activation.h"
#include "tenon/ops/matmul.h"

namespace tenon {

// gate_up: two matrices [rows, cols]. x [num_tokens, cols] -> [num_tokens, rows], fp32. The results
// are those of Matmul and GatedActivate, which stand in where the two are held differently or
// computed in fp32.
Value GatedMatmul(Tape& tape, Activation activation, std::span<const MatrixRef, 2> gate_up,
                  const Value& x);

}  // namespace tenon
