// Value: an activation of the step that is being recorded: dtype, shape and strides, and the tape
// buffer it lives in. It has no address until the tape is sealed, so family code can neither read
// nor write it; it passes values from op to op. A value in the C++ sense: copy freely; it is valid
// for the tape that made it.
#pragma once

#include <cstdint>

#include "tenon/tensor/tensor_view.h"

namespace tenon {

class Value {
 public:
  Value() = default;
  bool empty() const { return buffer_ < 0; }

  DType dtype() const { return view_.dtype(); }
  const Shape& shape() const { return view_.shape(); }
  int64_t dim(int i) const { return view_.dim(i); }
  // Bytes between consecutive indices of dimension i (not the last).
  int64_t stride_bytes(int i) const { return view_.stride_bytes(i); }
  int64_t bytes() const { return view_.bytes(); }
  bool is_contiguous() const { return view_.is_contiguous(); }

  // Columns, rows or heads [begin, end) of dimension `dim`: the same buffer, no copy.
  Value Slice(int dim, int64_t begin, int64_t end) const;
  // The last dimension cut in two: [rows, heads * head_dim] -> [rows, heads, head_dim]. No copy,
  // any row stride.
  Value SplitLast(int64_t outer, int64_t inner) const;
  // The last two dimensions made one; they must be adjacent in memory.
  Value MergeLast() const;

  int32_t buffer() const { return buffer_; }
  int64_t offset_bytes() const { return offset_; }

 private:
  friend class Tape;
  Value(const TensorView& view, int32_t buffer, int64_t offset)
      : view_(view), buffer_(buffer), offset_(offset) {}

  TensorView view_ = TensorView::Meta(DType::kF32, {0});
  int32_t buffer_ = -1;
  int64_t offset_ = 0;  // bytes from the buffer's start
};

}  // namespace tenon
