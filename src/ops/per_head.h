// Small matrices, one per head (MLA's absorbed weights), and copies between slices. Records on the
// tape; family code's thread only.
#pragma once

#include <span>

#include "tenon/ops/matmul.h"

namespace tenon {

// x [num_tokens, heads, cols] (any strides) times head h's matrix [rows, cols], fp32 ->
// [num_tokens, heads, rows + extra]; the `extra` columns are left for the caller to fill. Keeps the
// address of the matrices.
Value MatmulPerHead(Tape& tape, std::span<const MatrixRef> matrices, const Value& x,
                    int64_t extra = 0);

// Copies x into `target`, a slice of the same shape, fp32, rank 3.
void CopyInto(Tape& tape, const Value& x, const Value& target);

}  // namespace tenon
