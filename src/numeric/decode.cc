#include "tenon/numeric/decode.h"

#include <cstring>

#include "tenon/numeric/blocks/q4_0.h"
#include "tenon/numeric/blocks/q4_1.h"
#include "tenon/numeric/blocks/q4_k.h"
#include "tenon/numeric/blocks/q6_k.h"
#include "tenon/numeric/blocks/q8_0.h"
#include "tenon/numeric/codecs.h"

namespace tenon {
namespace {

template <typename Stored, float (*Convert)(Stored)>
void DecodePlain(const std::byte* row, int64_t elements, float* out) {
  for (int64_t i = 0; i < elements; ++i) {
    Stored stored;
    std::memcpy(&stored, row + i * static_cast<int64_t>(sizeof stored), sizeof stored);
    out[i] = Convert(stored);
  }
}

template <typename Block>
void DecodeBlocks(const std::byte* row, int64_t elements, float* out) {
  for (int64_t b = 0; b < elements / Block::kElements; ++b) {
    Block block;  // a copy: file data may sit at any address
    std::memcpy(&block, row + b * static_cast<int64_t>(sizeof block), sizeof block);
    block.Decode(out + b * Block::kElements);
  }
}

void DecodePairs(const std::byte* row, int64_t elements, float* out) {
  for (int64_t i = 0; i < elements; ++i) {
    const auto pair = static_cast<uint32_t>(row[i / 2]);
    out[i] = F4E2M1ToFloat(static_cast<uint8_t>(i % 2 == 0 ? pair & 15u : pair >> 4));
  }
}

float FromDouble(double value) { return static_cast<float>(value); }
float FromFloat(float value) { return value; }

}  // namespace

DecodeRowFn DecoderOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return DecodePlain<double, FromDouble>;
    case DType::kF32:
      return DecodePlain<float, FromFloat>;
    case DType::kBF16:
      return DecodePlain<uint16_t, Bf16ToFloat>;
    case DType::kF16:
      return DecodePlain<uint16_t, F16ToFloat>;
    case DType::kF8E4M3:
      return DecodePlain<uint8_t, F8E4M3ToFloat>;
    case DType::kF8E5M2:
      return DecodePlain<uint8_t, F8E5M2ToFloat>;
    case DType::kF8E8M0:
      return DecodePlain<uint8_t, F8E8M0ToFloat>;
    case DType::kQ4_0:
      return DecodeBlocks<BlockQ4_0>;
    case DType::kQ4_1:
      return DecodeBlocks<BlockQ4_1>;
    case DType::kQ8_0:
      return DecodeBlocks<BlockQ8_0>;
    case DType::kQ4_K:
      return DecodeBlocks<BlockQ4K>;
    case DType::kQ6_K:
      return DecodeBlocks<BlockQ6K>;
    case DType::kF4E2M1:
      return DecodePairs;
    case DType::kI64:
    case DType::kI32:
    case DType::kI16:
    case DType::kI8:
    case DType::kU64:
    case DType::kU32:
    case DType::kU16:
    case DType::kU8:
    case DType::kBool:
      return nullptr;
  }
  return nullptr;
}

}  // namespace tenon
