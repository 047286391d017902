#include "tenon/checkpoint/transform.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <span>

#include "tenon/base/text.h"

namespace tenon {

TransformStep TransformStep::Slice(int dim, int placeholder) {
  return {.kind = Kind::kSlice, .dim = dim, .placeholder = placeholder};
}
TransformStep TransformStep::Transpose() { return {.kind = Kind::kTranspose}; }
TransformStep TransformStep::RowPart(std::vector<int64_t> parts, int part, int64_t groups) {
  TN_CHECK(part >= 0 && static_cast<size_t>(part) < parts.size() && groups > 0,
           "the part is one of the parts");
  for (const int64_t rows : parts) TN_CHECK(rows >= 0, "parts are rows");
  return {.kind = Kind::kRowPart, .parts = std::move(parts), .part = part, .groups = groups};
}
TransformStep TransformStep::PermuteQk(int64_t heads) {
  TN_CHECK(heads > 0, "a tensor has heads");
  return {.kind = Kind::kPermuteQk, .heads = heads};
}
TransformStep TransformStep::MergeLast(int64_t inner) {
  TN_CHECK(inner > 0, "a group has elements");
  return {.kind = Kind::kMergeLast, .inner = inner};
}

namespace {

int64_t Sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

Status CheckRank(int rank, int least, std::string_view step) {
  if (rank >= least) return {};
  return Refused(
      fmt::format("{}: the tensor has {} dimensions, needs {} or more", step, rank, least));
}

Status CheckRows(int64_t rows, int64_t unit, std::string_view step, std::string_view unit_text) {
  if (rows % unit == 0) return {};
  return Refused(
      fmt::format("{}: {} rows are no multiple of {} ({})", step, rows, unit, unit_text));
}

}  // namespace

// Dimensions as lists of (size, stride): a step on rows splits a dimension in two, nothing moves.
class GatherBuilder {
 public:
  GatherBuilder(ElementLayout layout, const Shape& stored) : layout_(layout), shape_(stored) {
    const int rank = stored.rank();
    int64_t stride = layout.block_bytes;
    dims_.resize(static_cast<size_t>(rank));
    for (int i = rank - 1; i >= 0; --i) {
      const int64_t size = i == rank - 1 ? stored.dim(i) / layout.block_elements : stored.dim(i);
      dims_[static_cast<size_t>(i)] = {{size, stride}};
      stride *= size;
    }
  }

  Status Apply(const TransformStep& step, int64_t index) {
    switch (step.kind) {
      case TransformStep::Kind::kSlice:
        return Slice(step.dim, index);
      case TransformStep::Kind::kTranspose:
        return Transpose();
      case TransformStep::Kind::kRowPart:
        return RowPart(step);
      case TransformStep::Kind::kPermuteQk:
        return PermuteQk(step.heads);
      case TransformStep::Kind::kMergeLast:
        return MergeLast(step.inner);
    }
    return InternalError("unknown transform");
  }

  Gather Build() const {
    Gather gather;
    gather.shape_ = shape_;
    gather.offset_ = offset_;
    gather.unit_ = layout_.block_bytes;
    for (const Dim& dim : dims_) {
      for (const Gather::Run& run : dim) {
        if (run.size == 1) continue;
        Gather::Run* last = gather.runs_.empty() ? nullptr : &gather.runs_.back();
        if (last != nullptr && last->stride == run.size * run.stride) {
          *last = {last->size * run.size, run.stride};
        } else {
          gather.runs_.push_back(run);
        }
      }
    }
    if (!gather.runs_.empty() && gather.runs_.back().stride == gather.unit_) {
      gather.unit_ *= gather.runs_.back().size;
      gather.runs_.pop_back();
    }
    return gather;
  }

 private:
  using Dim = std::vector<Gather::Run>;

  bool is_block() const { return layout_.block_elements > 1; }

  // Rows that can be moved: one run, and not the inside of a block row.
  Status CheckMovable(int dim, std::string_view step) const {
    TN_RETURN_IF_ERROR(CheckRank(shape_.rank(), dim + 1, step));
    if (is_block() && dim == shape_.rank() - 1) {
      return Refused(fmt::format("{}: would cut rows of a block format", step));
    }
    if (dims_[static_cast<size_t>(dim)].size() == 1) return {};
    return Refused(fmt::format("{}: the dimension is permuted already", step));
  }

  Status Slice(int dim, int64_t index) {
    TN_RETURN_IF_ERROR(CheckMovable(dim, "slice"));
    if (index < 0 || index >= shape_.dim(dim)) {
      return Refused(fmt::format("slice: index {} of a dimension of {}", index, shape_.dim(dim)));
    }
    offset_ += index * dims_[static_cast<size_t>(dim)][0].stride;
    dims_.erase(dims_.begin() + dim);
    std::vector<int64_t> left(shape_.dims().begin(), shape_.dims().end());
    left.erase(left.begin() + dim);
    shape_ = Shape(std::span<const int64_t>(left));
    return {};
  }

  Status Transpose() {
    if (shape_.rank() != 2) {
      return Refused(
          fmt::format("transpose: the tensor has {} dimensions, needs 2", shape_.rank()));
    }
    if (is_block()) return Refused("transpose: would cut rows of a block format");
    std::swap(dims_[0], dims_[1]);
    shape_ = {shape_.dim(1), shape_.dim(0)};
    return {};
  }

  Status RowPart(const TransformStep& step) {
    TN_RETURN_IF_ERROR(CheckMovable(0, "split of fused rows"));
    const int64_t group = Sum(step.parts);
    if (shape_.dim(0) != step.groups * group) {
      return Refused(
          fmt::format("split of fused rows: {} groups of {} are {} rows, the tensor has "
                      "{}",
                      step.groups, ShapeText(step.parts), step.groups * group, shape_.dim(0)));
    }
    const auto part = step.parts.begin() + step.part;
    const int64_t stride = dims_[0][0].stride;
    offset_ += std::accumulate(step.parts.begin(), part, int64_t{0}) * stride;
    dims_[0] = {{*part, stride}};
    if (step.groups > 1) dims_[0].insert(dims_[0].begin(), {step.groups, group * stride});
    shape_.set_dim(0, step.groups * *part);
    return {};
  }

  Status PermuteQk(int64_t heads) {
    TN_RETURN_IF_ERROR(CheckMovable(0, "permutation of rotary rows"));
    const int64_t rows = shape_.dim(0);
    TN_RETURN_IF_ERROR(CheckRows(rows, 2 * heads, "permutation of rotary rows",
                                 fmt::format("2 x {} heads", heads)));
    const int64_t half = rows / heads / 2;
    const int64_t stride = dims_[0][0].stride;
    dims_[0] = {{heads, 2 * half * stride}, {2, stride}, {half, 2 * stride}};
    return {};
  }

  Status MergeLast(int64_t inner) {
    const int rank = shape_.rank();
    TN_RETURN_IF_ERROR(CheckRank(rank, 2, "merging of groups"));
    if (is_block()) return Refused("merging of groups: would cut rows of a block format");
    if (shape_.dim(-1) != inner) {
      return Refused(fmt::format("merging of groups: the tensor has groups of {}, needs {}",
                                 shape_.dim(-1), inner));
    }
    const Dim last = std::move(dims_.back());
    dims_.pop_back();
    dims_.back().insert(dims_.back().end(), last.begin(), last.end());
    std::vector<int64_t> sizes(shape_.dims().begin(), shape_.dims().end());
    sizes.pop_back();
    sizes.back() *= inner;
    shape_ = Shape(std::span<const int64_t>(sizes));
    return {};
  }

  ElementLayout layout_;
  Shape shape_;
  int64_t offset_ = 0;
  std::vector<Dim> dims_;
};

Result<Gather> Gather::Bind(ElementLayout layout, const Shape& stored, const Transform& transform,
                            int64_t index) {
  GatherBuilder builder(layout, stored);
  for (const TransformStep& step : transform) {
    TN_RETURN_IF_ERROR(builder.Apply(step, index), "stored shape " + stored.Text());
  }
  return builder.Build();
}

bool Gather::is_contiguous() const { return runs_.empty(); }

int64_t Gather::canonical_bytes() const {
  int64_t bytes = unit_;
  for (const Run& run : runs_) bytes *= run.size;
  return bytes;
}

namespace {

// Elements of a transposed matrix, tile by tile: both sides stay in cache.
template <bool kRead, typename Element>
void MoveTransposed(std::byte* canonical, std::byte* stored, std::array<int64_t, 2> sizes,
                    std::array<int64_t, 2> strides) {
  constexpr int64_t kTile = 64;
  for (int64_t row0 = 0; row0 < sizes[0]; row0 += kTile) {
    for (int64_t col0 = 0; col0 < sizes[1]; col0 += kTile) {
      const int64_t row1 = std::min(sizes[0], row0 + kTile);
      const int64_t col1 = std::min(sizes[1], col0 + kTile);
      for (int64_t row = row0; row < row1; ++row) {
        for (int64_t col = col0; col < col1; ++col) {
          std::byte* a = canonical + (row * sizes[1] + col) * static_cast<int64_t>(sizeof(Element));
          std::byte* b = stored + row * strides[0] + col * strides[1];
          std::memcpy(kRead ? a : b, kRead ? b : a, sizeof(Element));
        }
      }
    }
  }
}

// Walks the runs in canonical order. Both sides are written through one body so that Read and Write
// cannot differ.
template <bool kRead, typename Run>
void Move(std::span<const Run> runs, int64_t unit, std::byte* canonical, std::byte* stored) {
  if (runs.empty()) {
    std::memcpy(kRead ? canonical : stored, kRead ? stored : canonical, static_cast<size_t>(unit));
    return;
  }
  if (runs.size() == 2) {
    const std::array<int64_t, 2> sizes = {runs[0].size, runs[1].size};
    const std::array<int64_t, 2> strides = {runs[0].stride, runs[1].stride};
    if (unit == 1) return MoveTransposed<kRead, uint8_t>(canonical, stored, sizes, strides);
    if (unit == 2) return MoveTransposed<kRead, uint16_t>(canonical, stored, sizes, strides);
    if (unit == 4) return MoveTransposed<kRead, uint32_t>(canonical, stored, sizes, strides);
    if (unit == 8) return MoveTransposed<kRead, uint64_t>(canonical, stored, sizes, strides);
  }
  int64_t inner = unit;
  for (const Run& run : runs.subspan(1)) inner *= run.size;
  for (int64_t i = 0; i < runs[0].size; ++i) {
    Move<kRead, Run>(runs.subspan(1), unit, canonical + i * inner, stored + i * runs[0].stride);
  }
}

}  // namespace

void Gather::Read(const std::byte* stored, std::byte* canonical) const {
  if (canonical_bytes() == 0) return;
  Move<true>(std::span<const Run>(runs_), unit_, canonical,
             const_cast<std::byte*>(stored) + offset_);
}

void Gather::Write(const std::byte* canonical, std::byte* stored) const {
  if (canonical_bytes() == 0) return;
  Move<false>(std::span<const Run>(runs_), unit_, const_cast<std::byte*>(canonical),
              stored + offset_);
}

namespace {

Status UndoRowPart(const TransformStep& step, std::vector<int64_t>& dims) {
  TN_RETURN_IF_ERROR(CheckRank(static_cast<int>(dims.size()), 1, "joining fused rows"));
  const int64_t rows = step.parts[static_cast<size_t>(step.part)] * step.groups;
  if (dims[0] != rows) {
    return Refused(
        fmt::format("joining fused rows: part {} of {} groups of {} has {} rows, the "
                    "tensor has {}",
                    step.part, step.groups, ShapeText(step.parts), rows, dims[0]));
  }
  dims[0] = step.groups * Sum(step.parts);
  return {};
}

Status UndoMergeLast(int64_t inner, std::vector<int64_t>& dims) {
  TN_RETURN_IF_ERROR(CheckRank(static_cast<int>(dims.size()), 1, "cutting into groups"));
  TN_RETURN_IF_ERROR(CheckRows(dims.back(), inner, "cutting into groups", "a group"));
  if (dims.size() + 1 > Shape::kMaxRank) {
    return Refused(fmt::format("cutting into groups: a tensor {}", ShapeText(dims)));
  }
  dims.back() /= inner;
  dims.push_back(inner);
  return {};
}

Status UndoSlice(const TransformStep& step, int64_t count, std::vector<int64_t>& dims) {
  if (static_cast<size_t>(step.dim) > dims.size() || dims.size() + 1 > Shape::kMaxRank) {
    return Refused(fmt::format("stacking: dimension {} of a tensor {}", step.dim, ShapeText(dims)));
  }
  dims.insert(dims.begin() + step.dim, count);
  return {};
}

}  // namespace

Result<Shape> StoredShapeOf(const Shape& canonical, const Transform& transform,
                            int64_t slice_count) {
  std::vector<int64_t> dims(canonical.dims().begin(), canonical.dims().end());
  for (auto step = transform.rbegin(); step != transform.rend(); ++step) {
    switch (step->kind) {
      case TransformStep::Kind::kSlice:
        TN_RETURN_IF_ERROR(UndoSlice(*step, slice_count, dims));
        break;
      case TransformStep::Kind::kTranspose:
        if (dims.size() != 2) {
          return Refused(
              fmt::format("transpose: the tensor is {}, needs 2 dimensions", ShapeText(dims)));
        }
        std::swap(dims[0], dims[1]);
        break;
      case TransformStep::Kind::kRowPart:
        TN_RETURN_IF_ERROR(UndoRowPart(*step, dims));
        break;
      case TransformStep::Kind::kPermuteQk:
        TN_RETURN_IF_ERROR(CheckRank(static_cast<int>(dims.size()), 1, "permuting rotary rows"));
        TN_RETURN_IF_ERROR(CheckRows(dims[0], 2 * step->heads, "permuting rotary rows",
                                     fmt::format("2 x {} heads", step->heads)));
        break;
      case TransformStep::Kind::kMergeLast:
        TN_RETURN_IF_ERROR(UndoMergeLast(step->inner, dims));
        break;
    }
  }
  return Shape(std::span<const int64_t>(dims));
}

const TransformStep* SliceOf(const Transform& transform) {
  for (const TransformStep& step : transform) {
    if (step.kind == TransformStep::Kind::kSlice) return &step;
  }
  return nullptr;
}

}  // namespace tenon
