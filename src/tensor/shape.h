// Shape: up to five dimensions, outermost first. A value; thread-compatible.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "tenon/base/check.h"
#include "tenon/base/text.h"

namespace tenon {

class Shape {
 public:
  static constexpr int kMaxRank = 5;

  Shape() = default;  // rank 0: one element
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
    TN_CHECK(dims.size() <= kMaxRank, "a tensor has at most five dimensions");
    for (int i = 0; i < rank_; ++i) dims_[static_cast<size_t>(i)] = dims[static_cast<size_t>(i)];
  }

  int rank() const { return rank_; }
  // Negative i counts from the end: dim(-1) is the row length.
  int64_t dim(int i) const { return dims_[static_cast<size_t>(i < 0 ? i + rank_ : i)]; }
  int64_t operator[](int i) const { return dim(i); }
  void set_dim(int i, int64_t n) { dims_[static_cast<size_t>(i < 0 ? i + rank_ : i)] = n; }
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  int64_t elements() const {
    int64_t n = 1;
    for (const int64_t d : dims()) n *= d;
    return n;
  }
  // Number of rows: the product of all dimensions but the last.
  int64_t rows() const { return rank_ == 0 || dim(-1) == 0 ? 1 : elements() / dim(-1); }
  std::string Text() const { return ShapeText(dims()); }

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i) {
      if (a.dim(i) != b.dim(i)) return false;
    }
    return true;
  }

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace tenon
