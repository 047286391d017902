// How ops walk the rows of a value of rank 2 or 3 with any strides. Private helper of the ops'
// sources.
#pragma once

#include "tenon/ops/value.h"

namespace tenon {

// Row r of a value: [num_tokens, heads, width] has num_tokens * heads rows; [num_tokens, width] has
// num_tokens.
struct RowStrides {
  int64_t heads = 1;
  int64_t outer = 0;  // floats between tokens
  int64_t inner = 0;  // floats between heads

  int64_t OffsetOf(int64_t row) const { return row / heads * outer + row % heads * inner; }
};

inline RowStrides RowsOf(const Value& value) {
  constexpr int64_t kFloat = sizeof(float);
  if (value.shape().rank() == 3) {
    return {value.dim(1), value.stride_bytes(0) / kFloat, value.stride_bytes(1) / kFloat};
  }
  return {1, value.stride_bytes(0) / kFloat, 0};
}

inline int64_t NumRows(const Value& value) {
  return value.shape().rank() == 3 ? value.dim(0) * value.dim(1) : value.dim(0);
}

}  // namespace tenon
