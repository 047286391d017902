// TensorView: dtype, shape, strides and an address, owning nothing. Rows (the last dimension) are
// contiguous; outer dimensions have byte strides, so slices of columns and of rows are views. On
// `meta` the address is null and asking for it is our bug. A value; thread-compatible.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tenon/numeric/dtype.h"
#include "tenon/tensor/device.h"
#include "tenon/tensor/shape.h"

namespace tenon {

class TensorView {
 public:
  TensorView() = default;
  // Contiguous. data may be null only on meta (or for zero elements).
  TensorView(DType dtype, const Shape& shape, std::byte* data, Device device = Device::kCpu);
  static TensorView Meta(DType dtype, const Shape& shape) {
    return {dtype, shape, nullptr, Device::kMeta};
  }

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t dim(int i) const { return shape_.dim(i); }
  Device device() const { return device_; }
  bool is_meta() const { return device_ == Device::kMeta; }

  std::byte* data() const {
    TN_DCHECK(!is_meta(), "a meta tensor has no bytes");
    return data_;
  }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data());
  }
  // Bytes between consecutive indices of dimension i (not the last).
  int64_t stride_bytes(int i) const {
    return strides_[static_cast<size_t>(i < 0 ? i + shape_.rank() : i)];
  }
  int64_t row_bytes() const { return RowBytes(dtype_, shape_.rank() == 0 ? 1 : shape_.dim(-1)); }
  // Bytes of the elements, gaps between rows not counted.
  int64_t bytes() const { return shape_.rows() * row_bytes(); }
  bool is_contiguous() const;

  // Indices [begin, end) of dimension `dim`. A cut of the last dimension of a block format must be
  // whole blocks.
  TensorView Slice(int dim, int64_t begin, int64_t end) const;
  // Another shape over the same elements; contiguous views only.
  TensorView Reshape(const Shape& shape) const;
  // The last dimension cut in two, or the last two made one; outer strides stay.
  TensorView SplitLast(int64_t outer, int64_t inner) const;
  TensorView MergeLast() const;
  // The same shape and strides at an address.
  TensorView WithData(std::byte* data) const;
  // "bf16 [80, 64]"
  std::string Text() const { return std::string(NameOf(dtype_)) + " " + shape_.Text(); }

 private:
  DType dtype_ = DType::kF32;
  Device device_ = Device::kCpu;
  Shape shape_{0};
  std::array<int64_t, Shape::kMaxRank> strides_{};
  std::byte* data_ = nullptr;
};

}  // namespace tenon
