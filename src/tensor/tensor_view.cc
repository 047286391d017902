#include "tenon/tensor/tensor_view.h"

namespace tenon {

TensorView::TensorView(DType dtype, const Shape& shape, std::byte* data, Device device)
    : dtype_(dtype), device_(device), shape_(shape), data_(data) {
  if (shape.rank() == 0) return;
  int64_t stride = RowBytes(dtype, shape.dim(-1));
  for (int i = shape.rank() - 2; i >= 0; --i) {
    strides_[static_cast<size_t>(i)] = stride;
    stride *= shape.dim(i);
  }
}

bool TensorView::is_contiguous() const {
  if (shape_.rank() <= 1) return true;
  int64_t expected = row_bytes();
  for (int i = shape_.rank() - 2; i >= 0; --i) {
    if (shape_.dim(i) > 1 && stride_bytes(i) != expected) return false;
    expected *= shape_.dim(i);
  }
  return true;
}

TensorView TensorView::Slice(int dim, int64_t begin, int64_t end) const {
  if (dim < 0) dim += shape_.rank();
  TN_CHECK(dim >= 0 && dim < shape_.rank() && 0 <= begin && begin <= end && end <= shape_.dim(dim),
           "slice inside the tensor");
  TensorView view = *this;
  view.shape_.set_dim(dim, end - begin);
  const bool last = dim == shape_.rank() - 1;
  const int64_t offset = last ? RowBytes(dtype_, begin) : begin * stride_bytes(dim);
  if (data_ != nullptr) view.data_ = data_ + offset;
  return view;
}

TensorView TensorView::Reshape(const Shape& shape) const {
  TN_CHECK(is_contiguous() && shape.elements() == shape_.elements(), "reshape keeps the elements");
  return {dtype_, shape, data_, device_};
}

TensorView TensorView::SplitLast(int64_t outer, int64_t inner) const {
  const int rank = shape_.rank();
  TN_CHECK(rank >= 1 && rank < Shape::kMaxRank && outer * inner == shape_.dim(-1),
           "the parts multiply to the dimension");
  std::array<int64_t, Shape::kMaxRank> dims{};
  for (int i = 0; i < rank; ++i) dims[static_cast<size_t>(i)] = shape_.dim(i);
  dims[static_cast<size_t>(rank - 1)] = outer;
  dims[static_cast<size_t>(rank)] = inner;
  TensorView view = *this;
  view.shape_ = Shape(std::span<const int64_t>(dims.data(), static_cast<size_t>(rank + 1)));
  view.strides_[static_cast<size_t>(rank - 1)] = RowBytes(dtype_, inner);
  return view;
}

TensorView TensorView::MergeLast() const {
  const int rank = shape_.rank();
  TN_CHECK(rank >= 2 && stride_bytes(-2) == row_bytes(), "the last two dimensions are adjacent");
  TensorView view = *this;
  view.shape_ = Shape(shape_.dims().first(static_cast<size_t>(rank - 1)));
  view.shape_.set_dim(-1, shape_.dim(-2) * shape_.dim(-1));
  view.strides_[static_cast<size_t>(rank - 2)] = 0;
  return view;
}

TensorView TensorView::WithData(std::byte* data) const {
  TensorView view = *this;
  view.data_ = data;
  view.device_ = Device::kCpu;
  return view;
}

}  // namespace tenon
