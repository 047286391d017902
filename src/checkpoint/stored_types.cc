#include "tenon/checkpoint/stored_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tenon/base/text.h"
#include "tenon/checkpoint/stored_tensor.h"

namespace tenon {
namespace {

struct GgmlRow {
  uint32_t number;
  std::string_view name;
  int32_t block_elements;
  int32_t block_bytes;
};

// Sizes: GGML_QUANT_SIZES of gguf-py 0.19; Q2_0 from ggml itself.
constexpr GgmlRow kGgmlTypes[] = {
    {0, "F32", 1, 4},          {1, "F16", 1, 2},          {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},       {4, "Q4_2", 32, 0},        {5, "Q4_3", 32, 0},
    {6, "Q5_0", 32, 22},       {7, "Q5_1", 32, 24},       {8, "Q8_0", 32, 34},
    {9, "Q8_1", 32, 40},       {10, "Q2_K", 256, 84},     {11, "Q3_K", 256, 110},
    {12, "Q4_K", 256, 144},    {13, "Q5_K", 256, 176},    {14, "Q6_K", 256, 210},
    {15, "Q8_K", 256, 292},    {16, "IQ2_XXS", 256, 66},  {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98},  {19, "IQ1_S", 256, 50},    {20, "IQ4_NL", 32, 18},
    {21, "IQ3_S", 256, 110},   {22, "IQ2_S", 256, 82},    {23, "IQ4_XS", 256, 136},
    {24, "I8", 1, 1},          {25, "I16", 1, 2},         {26, "I32", 1, 4},
    {27, "I64", 1, 8},         {28, "F64", 1, 8},         {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2},        {31, "Q4_0_4_4", 32, 0},   {32, "Q4_0_4_8", 32, 0},
    {33, "Q4_0_8_8", 32, 0},   {34, "TQ1_0", 256, 54},    {35, "TQ2_0", 256, 66},
    {36, "IQ4_NL_4_4", 32, 0}, {37, "IQ4_NL_4_8", 32, 0}, {38, "IQ4_NL_8_8", 32, 0},
    {39, "MXFP4", 32, 17},     {40, "NVFP4", 64, 36},     {41, "Q1_0", 128, 18},
    {42, "Q2_0", 64, 18},
};

constexpr bool InNumberOrder() {
  uint32_t number = 0;
  for (const GgmlRow& row : kGgmlTypes) {
    if (row.number != number++) return false;
  }
  return true;
}
static_assert(InNumberOrder(), "kGgmlTypes is indexed by number");

// A DType of ours with ggml's name and ggml's block.
std::optional<DType> DTypeOf(const GgmlRow& row) {
  const Result<DType> dtype = ParseDType(row.name);
  if (!dtype.ok()) return std::nullopt;
  const DTypeInfo& info = InfoOf(*dtype);
  TN_CHECK(info.block_elements == row.block_elements && info.block_bytes == row.block_bytes,
           "our block formats have ggml's sizes");
  return *dtype;
}

constexpr DType kSafetensorsTypes[] = {
    DType::kF64,    DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3, DType::kF8E5M2,
    DType::kF8E8M0, DType::kI64, DType::kI32,  DType::kI16, DType::kI8,     DType::kU64,
    DType::kU32,    DType::kU16, DType::kU8,   DType::kBool};

std::string Capitals(std::string_view name) {
  std::string capitals(name);
  for (char& c : capitals) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return capitals;
}

}  // namespace

std::optional<StoredType> GgmlType(uint32_t number) {
  if (number >= std::size(kGgmlTypes)) return std::nullopt;
  const GgmlRow& row = kGgmlTypes[number];
  return StoredType{row.name, static_cast<int>(number), row.block_elements, row.block_bytes,
                    row.block_bytes == 0 ? std::nullopt : DTypeOf(row)};
}

std::optional<uint32_t> GgmlNumberOf(DType dtype) {
  const std::string name = Capitals(NameOf(dtype));
  for (const GgmlRow& row : kGgmlTypes) {
    if (row.name == name && row.block_bytes > 0) return row.number;
  }
  return std::nullopt;
}

std::optional<DType> SafetensorsType(std::string_view name) {
  for (const DType dtype : kSafetensorsTypes) {
    if (Capitals(NameOf(dtype)) == name) return dtype;
  }
  return std::nullopt;
}

std::optional<std::string> SafetensorsNameOf(DType dtype) {
  if (std::find(std::begin(kSafetensorsTypes), std::end(kSafetensorsTypes), dtype) ==
      std::end(kSafetensorsTypes)) {
    return std::nullopt;
  }
  return Capitals(NameOf(dtype));
}

std::string SupportedGgmlTypes() {
  std::vector<std::string_view> names;
  for (const GgmlRow& row : kGgmlTypes) {
    if (GgmlType(row.number)->dtype.has_value()) names.push_back(row.name);
  }
  return Join(names, ", ");
}

std::string SupportedSafetensorsTypes() {
  std::vector<std::string> names;
  for (const DType dtype : kSafetensorsTypes) names.push_back(Capitals(NameOf(dtype)));
  return Join(names, ", ");
}

std::optional<int64_t> CheckedBytes(int32_t block_elements, int32_t block_bytes,
                                    std::span<const int64_t> dims) {
  int64_t bytes = block_bytes;
  bool is_empty = false;
  for (size_t i = 0; i < dims.size(); ++i) {
    int64_t n = dims[i];
    if (n < 0) return std::nullopt;
    is_empty = is_empty || n == 0;
    if (i + 1 == dims.size()) {
      if (n % block_elements != 0) return std::nullopt;
      n /= block_elements;
    }
    // A zero elsewhere must not hide an overflow: Shape multiplies in any order.
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(n, 1), &bytes)) return std::nullopt;
  }
  int64_t elements = 0;  // blocks hold more elements than bytes: Shape counts those
  if (__builtin_mul_overflow(bytes, static_cast<int64_t>(block_elements), &elements)) {
    return std::nullopt;
  }
  return is_empty ? 0 : bytes;
}

Status CheckTypeSupported(const StoredTensor& tensor) {
  if (tensor.supported) return {};
  if (tensor.type_number < 0) {
    return Refused(fmt::format("tensor type {} is not supported yet; supported: {}",
                               tensor.type_name, SupportedSafetensorsTypes()));
  }
  return Refused(fmt::format("tensor type {} ({}) is not supported yet; supported: {}",
                             tensor.type_name, tensor.type_number, SupportedGgmlTypes()));
}

}  // namespace tenon
