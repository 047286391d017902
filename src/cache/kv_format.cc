#include "tenon/cache/kv_format.h"

#include "tenon/base/check.h"
#include "tenon/base/text.h"

namespace tenon {
namespace {

constexpr KvDType kKvDTypes[] = {
    {DType::kF32, "f32", 0, 0},  {DType::kBF16, "bf16", 0, 0},
    {DType::kF16, "fp16", 0, 0}, {DType::kF8E4M3, "fp8_e4m3", 0, 0},
    {DType::kI8, "int8", -1, 4}, {DType::kF4E2M1, "nvfp4", 16, 1},
};

const KvDType* Find(DType dtype) {
  for (const KvDType& row : kKvDTypes) {
    if (row.dtype == dtype) return &row;
  }
  return nullptr;
}

// One part of a page, which begins at `offset`.
KvPartFormat PartOf(const KvGeometry& g, int64_t width, int64_t offset, int64_t page_tokens) {
  const KvRowFormat row = KvRowFormatOf(g.dtype, width);
  KvPartFormat part;
  part.codes = offset;
  if (g.layout == KvLayout::kHnd) {
    part.slot = row.code_bytes;
    part.head = page_tokens * row.bytes();
    part.scales = offset + page_tokens * row.code_bytes;
    part.scale_slot = row.scale_bytes;
    part.scale_head = part.head;
  } else {
    part.slot = g.kv_heads * row.code_bytes;
    part.head = row.code_bytes;
    part.scales = offset + page_tokens * part.slot;
    part.scale_slot = g.kv_heads * row.scale_bytes;
    part.scale_head = row.scale_bytes;
  }
  if (row.scale_bytes == 0) part.scales = part.scale_slot = part.scale_head = 0;
  return part;
}

}  // namespace

std::span<const KvDType> KvDTypes() { return kKvDTypes; }

std::string_view KvNameOf(DType dtype) {
  const KvDType* row = Find(dtype);
  return row == nullptr ? NameOf(dtype) : row->name;
}

std::optional<DType> KvDTypeNamed(std::string_view name) {
  if (EqualsIgnoreCase(name, "fp8")) return DType::kF8E4M3;
  for (const KvDType& row : kKvDTypes) {
    if (EqualsIgnoreCase(name, row.name)) return row.dtype;
  }
  return std::nullopt;
}

bool HasKvRows(DType dtype, int64_t width) {
  const KvDType* row = Find(dtype);
  return row != nullptr && (row->scaled_codes <= 0 || width % row->scaled_codes == 0);
}

KvRowFormat KvRowFormatOf(DType dtype, int64_t width) {
  TN_DCHECK(HasKvRows(dtype, width), "rows of this dtype and width exist");
  const KvDType* row = Find(dtype);
  const int64_t shared = row == nullptr ? 0 : row->scaled_codes;
  const int64_t scales = shared == 0 ? 0 : shared < 0 ? 1 : width / shared;
  return {RowBytes(dtype, width), scales == 0 ? 0 : scales * row->one_scale_bytes};
}

bool KvGeometry::Exists() const {
  return HasKvRows(dtype, k_width) && (layout == KvLayout::kRow || HasKvRows(dtype, v_width));
}

int64_t KvGeometry::RowBytes() const {
  const int64_t k = KvRowFormatOf(dtype, k_width).bytes();
  if (layout == KvLayout::kRow) return k;
  return kv_heads * (k + KvRowFormatOf(dtype, v_width).bytes());
}

KvPageFormat KvPageFormatOf(const KvGeometry& g, int64_t page_tokens) {
  KvPageFormat page;
  page.k = PartOf(g, g.k_width, 0, page_tokens);
  const int64_t k_bytes = page_tokens * g.kv_heads * KvRowFormatOf(g.dtype, g.k_width).bytes();
  page.v = g.layout == KvLayout::kRow ? page.k : PartOf(g, g.v_width, k_bytes, page_tokens);
  return page;
}

}  // namespace tenon
