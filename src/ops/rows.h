// How ops walk the rows of a value of rank 2 or 3 with any strides, and which results are small
// enough for every thread to compute for itself. Private helper of the ops' sources.
#pragma once

#include "tenon/ops/tape.h"

namespace tenon {

inline int64_t FloatStride(const Value& value, int dim) {
  return value.stride_bytes(dim) / static_cast<int64_t>(sizeof(float));
}

// Row r of a value: [num_tokens, heads, width] has num_tokens * heads rows; [num_tokens, width] has
// num_tokens.
struct RowStrides {
  int64_t heads = 1;
  int64_t outer = 0;  // floats between tokens
  int64_t inner = 0;  // floats between heads

  int64_t OffsetOf(int64_t row) const { return row / heads * outer + row % heads * inner; }
};

inline RowStrides RowsOf(const Value& value) {
  if (value.shape().rank() == 3)
    return {value.dim(1), FloatStride(value, 0), FloatStride(value, 1)};
  return {1, FloatStride(value, 0), 0};
}

inline int64_t NumRows(const Value& value) {
  return value.shape().rank() == 3 ? value.dim(0) * value.dim(1) : value.dim(0);
}

// fp32 rows: [num_tokens, width] or [num_tokens, heads, width].
inline bool IsRows(const Value& value) {
  const int rank = value.shape().rank();
  return value.dtype() == DType::kF32 && (rank == 2 || rank == 3);
}
inline bool IsMatrix(const Value& value) {
  return value.dtype() == DType::kF32 && value.shape().rank() == 2;
}

// Row work on one token costs less than a meeting; on a row as long as a vocabulary it does not.
inline bool WorthEveryone(const Shape& result) {
  constexpr int64_t kElements = 32768;
  return result.dim(0) <= Tape::kEveryoneRows && result.elements() <= kElements;
}

// A result whose rows are computed by everyone (private) or shared out.
struct RowResult {
  Value value;
  bool everyone = false;
};
inline RowResult NewRowResult(Tape& tape, DType dtype, const Shape& shape) {
  const bool everyone = WorthEveryone(shape);
  return {everyone ? tape.NewPrivateValue(dtype, shape) : tape.NewValue(dtype, shape), everyone};
}

}  // namespace tenon
