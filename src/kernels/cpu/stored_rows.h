// Rows of cached keys and values (RowView) to fp32 and back, sixteen numbers at a time. The same
// numbers and bits as the reference's. For the sources of this folder only. Thread-safe.
#pragma once

#include "tenon/kernels/attention_rules.h"
#include "tenon/kernels/cpu/codes.h"
#include "tenon/kernels/cpu/decode.h"

namespace tenon::TN_ISA {
namespace {

// Each: At gives numbers [c, c + 16) of a row, First the first n < 16 of them (others are 0), kBits
// what a number's code takes.
template <typename Decode>
struct PlainRows {
  static constexpr int64_t kBits = 8 * Decode::kOne;
  TN_INLINE static F32 At(const RowView& row, int64_t c) {
    F32 v;
    Decode::Run(row.codes + c * Decode::kOne, &v);
    return v;
  }
  TN_INLINE static F32 First(const RowView& row, int64_t c, int64_t n) {
    F32 v;
    DecodeFirst<Decode>(row.codes + c * Decode::kOne, n, &v);
    return v;
  }
};
struct RowsF32 : PlainRows<DecodeF32> {};
struct RowsBf16 : PlainRows<DecodeBf16> {};
struct RowsF16 : PlainRows<DecodeF16> {};

struct RowsF8E4M3 {
  static constexpr int64_t kBits = 8;
  TN_INLINE static F32 At(const RowView& row, int64_t c) {
    return CodesF8E4M3::Numbers(row.codes + c) * (CodesF8E4M3::kFactor * row.scale);
  }
  TN_INLINE static F32 First(const RowView& row, int64_t c, int64_t n) {
    return FirstNumbers<CodesF8E4M3>(row.codes + c, n) * (CodesF8E4M3::kFactor * row.scale);
  }
};

struct RowsI8 {
  static constexpr int64_t kBits = 8;
  TN_INLINE static F32 At(const RowView& row, int64_t c) {
    return CodesI8::Numbers(row.codes + c) * LoadAs<float>(row.scales);
  }
  TN_INLINE static F32 First(const RowView& row, int64_t c, int64_t n) {
    return FirstNumbers<CodesI8>(row.codes + c, n) * LoadAs<float>(row.scales);
  }
};

struct ScaleTable {
  float values[256] = {};
  constexpr ScaleTable() {
    for (int i = 0; i < 256; ++i) values[i] = F8E4M3ToFloat(static_cast<uint8_t>(i));
  }
};
constexpr ScaleTable kScalesE4M3;

using Bytes8 = uint8_t __attribute__((vector_size(8)));

struct RowsF4E2M1 {
  static constexpr int64_t kBits = 4;
  static constexpr int64_t kGroup = 16;  // numbers that share a scale
  static_assert(kGroup == kLanes);

  // Twice the numbers of sixteen codes, one to a byte.
  TN_INLINE static F32 Doubled(Bytes16 codes) {
#if defined(__AVX2__)
    const __m128i table = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    return ToFloats(
        reinterpret_cast<SignedBytes16>(_mm_shuffle_epi8(table, reinterpret_cast<__m128i>(codes))));
#else
    const I32 code = __builtin_convertvector(codes, I32);
    const I32 m = code & 7;
    const I32 large = (2 | (m & 1)) << (((m | 4) >> 1) - 1);
    const F32 magnitude = __builtin_convertvector(m < 4 ? m : large, F32);
    return code > 7 ? -magnitude : magnitude;
#endif
  }
  // Whole groups: c is a multiple of 16.
  TN_INLINE static F32 At(const RowView& row, int64_t c) {
    const auto pairs = LoadAs<Bytes8>(row.codes + c / 2);
    const Bytes8 low = pairs & 15;
    const Bytes8 high = pairs >> 4;
    const Bytes16 codes =
        __builtin_shufflevector(low, high, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    const float scale = kScalesE4M3.values[LoadAs<uint8_t>(row.scales + c / kGroup)];
    return Doubled(codes) * (scale * row.scale * 0.5f);
  }
  TN_INLINE static F32 First(const RowView& row, int64_t c, int64_t /*n*/) { return At(row, c); }
};

// use(rows of the dtype).
template <typename Use>
TN_INLINE void WithRows(DType dtype, Use use) {
  switch (dtype) {
    case DType::kBF16:
      return use(RowsBf16{});
    case DType::kF16:
      return use(RowsF16{});
    case DType::kF8E4M3:
      return use(RowsF8E4M3{});
    case DType::kI8:
      return use(RowsI8{});
    case DType::kF4E2M1:
      return use(RowsF4E2M1{});
    default:
      return use(RowsF32{});
  }
}

TN_INLINE I32 BitsOf(F32 v) { return reinterpret_cast<I32>(v); }

// To the nearest, ties to even; beyond 448 the largest number, NaN stays NaN.
TN_INLINE Bytes16 ToF8E4M3(F32 v) {
  const I32 magnitude = BitsOf(v) & 0x7FFFFFFF;
  const I32 normal = ((magnitude + 0x7FFFF + ((magnitude >> 20) & 1)) >> 20) - (120 << 3);
  // Below 2^-6: adding 2^14 lets the float unit round at 2^-9.
  const I32 small = BitsOf(reinterpret_cast<F32>(magnitude) + 16384.0f) - 0x46800000;
  I32 code = magnitude < 0x3C800000 ? small : normal;
  code = magnitude >= 0x43E00000 ? I32{} + 0x7E : code;
  code = magnitude > 0x7F800000 ? I32{} + 0x7F : code;
  return __builtin_convertvector(code | ((BitsOf(v) >> 24) & 0x80), Bytes16);
}

// The bits of the largest magnitude of n numbers, as which NaN is larger than infinity.
TN_INLINE int32_t MagnitudeBits(const float* x, int64_t n) {
  I32 top = {};
  const auto add = [&](F32 v) {
    const I32 magnitude = BitsOf(v) & 0x7FFFFFFF;
    top = magnitude > top ? magnitude : top;
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) add(Load(x + i));
  if (i < n) add(LoadFirst(x + i, n - i));
  int32_t highest = 0;
  for (int lane = 0; lane < kLanes; ++lane) highest = top[lane] > highest ? top[lane] : highest;
  return highest;
}

// n numbers, each encoded as kBytes.
template <int64_t kBytes, typename Encode>
TN_INLINE void StoreNarrow(const float* src, std::byte* dst, int64_t n, Encode encode) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto codes = encode(Load(src + i));
    static_assert(sizeof codes == kBytes * kLanes);
    __builtin_memcpy(dst + kBytes * i, &codes, sizeof codes);
  }
  if (i == n) return;
  const auto codes = encode(LoadFirst(src + i, n - i));
  __builtin_memcpy(dst + kBytes * i, &codes, static_cast<size_t>(kBytes * (n - i)));
}

TN_INLINE void StoreInt8(const float* src, const StoredRow& row, int64_t n) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
  const int32_t top = MagnitudeBits(src, n);
  const float scale =
      top >= 0x7F800000 ? __builtin_nanf("") : __builtin_bit_cast(float, top) / 127.0f;
  StoreNarrow<1>(
      src, row.codes, n, [&](F32 v) __attribute__((always_inline)) {
        I32 code = BitsOf(v / scale + kMagic) - BitsOf(All(kMagic));
        code = code > 127 ? I32{} + 127 : code < -127 ? I32{} - 127 : code;
        if (!(scale > 0)) code = I32{};
        return __builtin_convertvector(code, SignedBytes16);
      });
  __builtin_memcpy(row.scales, &scale, sizeof scale);
}

// 16 numbers.
TN_INLINE void StoreGroup(const float* src, float tensor_scale, std::byte* codes,
                          std::byte* scale_code) {
  const float top = __builtin_bit_cast(float, MagnitudeBits(src, kLanes));
  const uint8_t stored = ToF8E4M3(All(top / 6.0f / tensor_scale))[0];
  const float scale = kScalesE4M3.values[stored] * tensor_scale;
  const F32 v = Load(src) / scale;
  const F32 m = reinterpret_cast<F32>(BitsOf(v) & 0x7FFFFFFF);
  I32 code = -((m > 0.25f) + (m >= 0.75f) + (m > 1.25f) + (m >= 1.75f) + (m > 2.5f) + (m >= 3.5f) +
               (m > 5.0f));
  code |= (BitsOf(v) >> 28) & 8;
  if (!(scale > 0)) code = I32{};
  const Bytes16 bytes = __builtin_convertvector(code, Bytes16);
  const Bytes8 low = __builtin_shufflevector(bytes, bytes, 0, 2, 4, 6, 8, 10, 12, 14);
  const Bytes8 high = __builtin_shufflevector(bytes, bytes, 1, 3, 5, 7, 9, 11, 13, 15);
  const Bytes8 pairs = low | (high << 4);
  __builtin_memcpy(codes, &pairs, sizeof pairs);
  *scale_code = static_cast<std::byte>(stored);
}

inline void EncodeRow(const float* src, const StoredRow& row, int64_t n) {
  switch (row.dtype) {
    case DType::kBF16:
      return StoreNarrow<2>(src, row.codes, n, [](F32 v) { return ToBf16(v); });
    case DType::kF16:
      return StoreNarrow<2>(src, row.codes, n, [](F32 v) { return ToF16(v); });
    case DType::kF8E4M3:
      return StoreNarrow<1>(src, row.codes, n, [&](F32 v) { return ToF8E4M3(v / row.scale); });
    case DType::kI8:
      return StoreInt8(src, row, n);
    case DType::kF4E2M1:
      for (int64_t i = 0; i < n; i += kLanes)
        StoreGroup(src + i, row.scale, row.codes + i / 2, row.scales + i / RowsF4E2M1::kGroup);
      return;
    default:
      __builtin_memcpy(row.codes, src, static_cast<size_t>(n) * sizeof(float));
  }
}

template <typename Rows>
TN_INLINE void DecodeRowOf(const RowView& row, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(out + i, Rows::At(row, i));
  if (i < n) StoreFirst(out + i, Rows::First(row, i, n - i), n - i);
}

}  // namespace
}  // namespace tenon::TN_ISA
