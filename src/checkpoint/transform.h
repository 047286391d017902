// Transform: how a stored tensor becomes the canonical one: steps that only move elements, so each
// has an inverse. Not arithmetic ("the norm holds 1 + w" is an attribute of the family). Values;
// thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tenon/base/status.h"
#include "tenon/checkpoint/stored_tensor.h"
#include "tenon/numeric/dtype.h"
#include "tenon/tensor/shape.h"

namespace tenon {

struct TransformStep {
  enum class Kind : uint8_t {
    kSlice,      // one index of dimension `dim`, which disappears
    kTranspose,  // [a, b] -> [b, a]; plain types only
    kRowPart,    // a part of a fused tensor's rows
    kPermuteQk,  // rotary pairs next to each other -> in the two halves of the head
    kMergeLast,  // the last two dimensions made one; plain types only
  };
  Kind kind;
  int dim = 0;                      // kSlice
  int placeholder = 0;              // kSlice: which `{}` of the canonical name is the index
  std::vector<int64_t> parts = {};  // kRowPart: rows of each part within a group
  int part = 0;                     // kRowPart: which one
  int64_t groups = 1;               // kRowPart: how often the parts repeat along the rows
  int64_t heads = 0;                // kPermuteQk
  int64_t inner = 0;                // kMergeLast: the last dimension

  // Expert e of [experts, out, in]: Slice(0, 1) with ".experts.{}." as the second placeholder.
  static TransformStep Slice(int dim, int placeholder);
  static TransformStep Transpose();
  // Rows [q | k | v] in one tensor: parts {q, k, v}, part 1 = k. Per head [q, k, v]: groups =
  // heads, parts {head_dim, head_dim, head_dim}. Per kv group: groups = kv_heads, parts {g *
  // head_dim, head_dim, head_dim}. Gate and up rows in turn: groups = rows / 2, parts {1, 1}.
  static TransformStep RowPart(std::vector<int64_t> parts, int part, int64_t groups = 1);
  // Undoes the row order of GGUF's "llama" q and k: stored row 2 * i + j of a head becomes row
  // j * head_dim / 2 + i. heads: of this tensor (kv_heads for k).
  static TransformStep PermuteQk(int64_t heads);
  // [..., n, inner] -> [..., n * inner]: codes that a file keeps in groups.
  static TransformStep MergeLast(int64_t inner);
};

// Applied in this order, stored -> canonical.
using Transform = std::vector<TransformStep>;

// What moves as a whole inside a row: elements of a plain type, blocks of a block format.
struct ElementLayout {
  int32_t block_elements = 1;
  int32_t block_bytes = 1;
  static ElementLayout Of(DType dtype) {
    return {InfoOf(dtype).block_elements, InfoOf(dtype).block_bytes};
  }
};

// A transform bound to one stored shape: where each canonical element is in the stored bytes.
class Gather {
 public:
  // index: of the slice, when there is one. kRefused when the shape does not fit the steps (rows
  // that are no multiple of the heads, parts that do not add up, an index beyond the dimension).
  static Result<Gather> Bind(ElementLayout layout, const Shape& stored, const Transform& transform,
                             int64_t index);

  const Shape& shape() const { return shape_; }  // canonical
  // One run of bytes at offset_bytes() in the stored tensor, in the canonical order.
  bool is_contiguous() const;
  int64_t offset_bytes() const { return offset_; }
  int64_t canonical_bytes() const;

  // stored -> canonical [canonical_bytes], and back (touching only this tensor's elements).
  void Read(const std::byte* stored, std::byte* canonical) const;
  void Write(const std::byte* canonical, std::byte* stored) const;

 private:
  friend class GatherBuilder;
  struct Run {
    int64_t size;    // how often
    int64_t stride;  // bytes in the stored tensor
  };
  Shape shape_;
  int64_t offset_ = 0;
  int64_t unit_ = 1;       // bytes that are adjacent on both sides
  std::vector<Run> runs_;  // outermost first, of units
};

// The stored shape that gives `canonical` back, when slice_count slices are stacked. kRefused as in
// Bind.
Result<Shape> StoredShapeOf(const Shape& canonical, const Transform& transform,
                            int64_t slice_count);
// The slice step, or null.
const TransformStep* SliceOf(const Transform& transform);

}  // namespace tenon
