#include "tenon/numeric/dtype.h"

#include <string>
#include <vector>

#include "tenon/base/text.h"
#include "tenon/numeric/blocks/q4_0.h"
#include "tenon/numeric/blocks/q4_1.h"
#include "tenon/numeric/blocks/q4_k.h"
#include "tenon/numeric/blocks/q6_k.h"
#include "tenon/numeric/blocks/q8_0.h"

namespace tenon {
namespace {

template <typename Block>
constexpr DTypeInfo BlockRow(DType dtype, std::string_view name) {
  return {dtype, name, Block::kElements, sizeof(Block), true};
}

// In the order of the enum.
constexpr DTypeInfo kInfos[] = {
    {DType::kF64, "f64", 1, 8, true},          {DType::kF32, "f32", 1, 4, true},
    {DType::kBF16, "bf16", 1, 2, true},        {DType::kF16, "f16", 1, 2, true},
    {DType::kF8E4M3, "f8_e4m3", 1, 1, true},   {DType::kF8E5M2, "f8_e5m2", 1, 1, true},
    {DType::kF8E8M0, "f8_e8m0", 1, 1, true},   {DType::kI64, "i64", 1, 8, false},
    {DType::kI32, "i32", 1, 4, false},         {DType::kI16, "i16", 1, 2, false},
    {DType::kI8, "i8", 1, 1, false},           {DType::kU64, "u64", 1, 8, false},
    {DType::kU32, "u32", 1, 4, false},         {DType::kU16, "u16", 1, 2, false},
    {DType::kU8, "u8", 1, 1, false},           {DType::kBool, "bool", 1, 1, false},
    BlockRow<BlockQ4_0>(DType::kQ4_0, "q4_0"), BlockRow<BlockQ4_1>(DType::kQ4_1, "q4_1"),
    BlockRow<BlockQ8_0>(DType::kQ8_0, "q8_0"), BlockRow<BlockQ6K>(DType::kQ6_K, "q6_k"),
    BlockRow<BlockQ4K>(DType::kQ4_K, "q4_k"),  {DType::kF4E2M1, "f4_e2m1", 2, 1, true},
};

constexpr bool InEnumOrder() {
  int index = 0;
  for (const DTypeInfo& info : kInfos) {
    if (static_cast<int>(info.dtype) != index++) return false;
  }
  return true;
}
static_assert(InEnumOrder(), "kInfos follows the enum");

}  // namespace

const DTypeInfo& InfoOf(DType dtype) { return kInfos[static_cast<int>(dtype)]; }

Result<DType> ParseDType(std::string_view name) {
  std::vector<std::string_view> names;
  for (const DTypeInfo& info : kInfos) {
    if (EqualsIgnoreCase(name, info.name)) return info.dtype;
    names.push_back(info.name);
  }
  return UsageError("dtype = '" + std::string(name) +
                    "' is unknown; allowed: " + Join(names, ", "));
}

int64_t RowBytes(DType dtype, int64_t elements) {
  const DTypeInfo& info = InfoOf(dtype);
  TN_DCHECK(elements % info.block_elements == 0, "a row holds whole blocks");
  return elements / info.block_elements * info.block_bytes;
}

}  // namespace tenon
