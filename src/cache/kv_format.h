// KvFormat: how cached rows of keys and values are stored: the dtypes and their names, the bytes of
// a row's codes and scales, and where both lie in a page. The one place that says so; how numbers
// become codes is the kernels' (AttentionKernels::store). Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "tenon/cache/cache_spec.h"
#include "tenon/numeric/dtype.h"

namespace tenon {

// A row is one token's numbers of one kv head, K or V. f32, bf16, fp16 and fp8 rows are numbers
// alone. int8: codes of -127..127 and one fp32 scale: fp16 would save two bytes, but with fp32 no
// row is too large or too small, and with 16 tokens and more a head's stretch stays whole cache
// lines. nvfp4: e2m1 codes, two to a byte, and one e4m3 scale for 16 of them.
struct KvDType {
  DType dtype;            // of the codes
  std::string_view name;  // as users write it
  int64_t scaled_codes;   // that share a scale; 0: none, -1: all of the row
  int64_t one_scale_bytes;
};
std::span<const KvDType> KvDTypes();
// "int8"; of other dtypes NameOf.
std::string_view KvNameOf(DType dtype);
// Names of KvDTypes in any case, and "fp8".
std::optional<DType> KvDTypeNamed(std::string_view name);

// Do rows of `width` numbers exist: whole groups of codes that share a scale?
bool HasKvRows(DType dtype, int64_t width);

struct KvRowFormat {
  int64_t code_bytes = 0;
  int64_t scale_bytes = 0;  // 0: no scales
  int64_t bytes() const { return code_bytes + scale_bytes; }
};
// HasKvRows.
KvRowFormat KvRowFormatOf(DType dtype, int64_t width);

struct KvGeometry {
  int64_t kv_heads = 0;
  int64_t k_width = 0;
  int64_t v_width = 0;  // kRow: of no matter, the value is the first part of the key
  DType dtype = DType::kF32;
  KvLayout layout = KvLayout::kNhd;

  // Do rows of these widths exist in the dtype?
  bool Exists() const;
  // Of one token, K and V of all heads. Exists.
  int64_t RowBytes() const;
};

// Where K's or V's rows are: offsets in the page and strides from token to token and head to head,
// in bytes. K of the page comes first, then V. Scales never lie between codes, so that rows of
// codes keep their alignment and both are read as streams:
//   HND, per head: the codes of all the page's tokens, then their scales: a head of a page is one
//     stretch of memory;
//   NHD: the codes of all tokens and heads, then their scales;
//   row: the codes of all tokens, then their scales.
struct KvPartFormat {
  int64_t codes = 0, slot = 0, head = 0;
  int64_t scales = 0, scale_slot = 0, scale_head = 0;  // 0: no scales
};
struct KvPageFormat {
  KvPartFormat k;
  KvPartFormat v;
};
KvPageFormat KvPageFormatOf(const KvGeometry& geometry, int64_t page_tokens);

}  // namespace tenon
