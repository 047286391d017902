// Sixteen fp32 lanes in the compiler's vector extension: one source for every instruction set, the
// same order of additions in all of them. Everything has internal linkage (anonymous namespace), so
// that code compiled for one instruction set can never stand in for another's. For the sources of
// this folder only. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tenon/kernels/table.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

// TN_ISA: the namespace of this compilation, e.g. avx2; set by the build.
#define TN_QUOTE_(x) #x
#define TN_QUOTE(x) TN_QUOTE_(x)
#define TN_KERNEL_NAME(name) TN_QUOTE(TN_ISA) "/" name

namespace tenon::TN_ISA {
namespace {

#define TN_INLINE [[gnu::always_inline]] inline

using F32 = float __attribute__((vector_size(64)));
using I32 = int32_t __attribute__((vector_size(64)));
constexpr int64_t kLanes = 16;

TN_INLINE F32 Load(const float* p) {
  F32 v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
TN_INLINE void Store(float* p, F32 v) { __builtin_memcpy(p, &v, sizeof v); }

// The first n < kLanes lanes; the others are 0.
TN_INLINE F32 LoadFirst(const float* p, int64_t n) {
#if defined(__AVX512F__)
  return reinterpret_cast<F32>(_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p));
#else
  F32 v = {};
  for (int64_t i = 0; i < n; ++i) v[i] = p[i];
  return v;
#endif
}
TN_INLINE void StoreFirst(float* p, F32 v, int64_t n) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), reinterpret_cast<__m512>(v));
#else
  for (int64_t i = 0; i < n; ++i) p[i] = v[i];
#endif
}

TN_INLINE F32 All(float x) { return F32{} + x; }
// a * b + c: one rounding where the instruction set has it. Contraction by the compiler is off: it
// would depend on what is inlined where.
TN_INLINE F32 Fma(F32 a, F32 b, F32 c) {
#if defined(__AVX512F__)
  return reinterpret_cast<F32>(_mm512_fmadd_ps(
      reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)));
#elif defined(__FMA__)
  struct Halves {
    __m256 low, high;
  };
  const auto x = __builtin_bit_cast(Halves, a);
  const auto y = __builtin_bit_cast(Halves, b);
  const auto z = __builtin_bit_cast(Halves, c);
  return __builtin_bit_cast(
      F32, Halves{_mm256_fmadd_ps(x.low, y.low, z.low), _mm256_fmadd_ps(x.high, y.high, z.high)});
#else
  return a * b + c;
#endif
}
// b where a is NaN.
TN_INLINE F32 Max(F32 a, F32 b) { return a > b ? a : b; }

// The upper half of the lanes that count, over the lower: halves, quarters, pairs.
template <int kStep>
TN_INLINE F32 Lowered(F32 v) {
  if constexpr (kStep == 8) {
    return __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
  } else if constexpr (kStep == 4) {
    return __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
  } else if constexpr (kStep == 2) {
    return __builtin_shufflevector(v, v, 2, 3, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1);
  } else {
    return __builtin_shufflevector(v, v, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  }
}
TN_INLINE float Sum(F32 v) {
  v += Lowered<8>(v);
  v += Lowered<4>(v);
  v += Lowered<2>(v);
  v += Lowered<1>(v);
  return v[0];
}
// NaN lanes may be passed over.
TN_INLINE float Highest(F32 v) {
  v = Max(v, Lowered<8>(v));
  v = Max(v, Lowered<4>(v));
  v = Max(v, Lowered<2>(v));
  v = Max(v, Lowered<1>(v));
  return v[0];
}

// e^x to about 1 ulp: reduction by multiples of ln 2 in two parts, then a polynomial of degree 6
// (Cephes' expf). Below -87.3: 0; above 88.7: infinity; NaN stays.
TN_INLINE F32 Exp(F32 x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
  F32 t = x < All(-87.33f) ? All(-87.33f) : x;
  t = t > All(88.37f) ? All(88.37f) : t;
  const F32 shifted = Fma(t, All(1.44269504088896341f), All(kMagic));
  const F32 n = shifted - kMagic;
  F32 r = Fma(n, All(-0.693359375f), t);
  r = Fma(n, All(2.12194440e-4f), r);
  F32 p = All(1.9875691500e-4f);
  p = Fma(p, r, All(1.3981999507e-3f));
  p = Fma(p, r, All(8.3334519073e-3f));
  p = Fma(p, r, All(4.1665795894e-2f));
  p = Fma(p, r, All(1.6666665459e-1f));
  p = Fma(p, r, All(5.0000001201e-1f));
  p = Fma(p, r * r, r) + 1.0f;
  const I32 exponent = (reinterpret_cast<I32>(shifted) - reinterpret_cast<I32>(All(kMagic))) << 23;
  F32 y = reinterpret_cast<F32>(reinterpret_cast<I32>(p) + exponent);
  y = x < All(-87.33f) ? F32{} : y;
  y = x > All(88.72f) ? All(__builtin_inff()) : y;
  return x == x ? y : x;
}

using Bytes16 = uint8_t __attribute__((vector_size(16)));
using SignedBytes16 = int8_t __attribute__((vector_size(16)));
using Words16 = uint16_t __attribute__((vector_size(32)));

template <typename T>
TN_INLINE T LoadAs(const void* p) {
  T v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <typename Narrow>
TN_INLINE F32 ToFloats(Narrow v) {
  return __builtin_convertvector(__builtin_convertvector(v, I32), F32);
}

TN_INLINE F32 FromBf16(Words16 bits) {
  return reinterpret_cast<F32>(__builtin_convertvector(bits, I32) << 16);
}
TN_INLINE F32 FromF16(Words16 bits) {
#if defined(__AVX512F__)
  return reinterpret_cast<F32>(_mm512_cvtph_ps(reinterpret_cast<__m256i>(bits)));
#elif defined(__F16C__)
  struct Words {
    __m128i low, high;
  };
  struct Floats {
    __m256 low, high;
  };
  const auto w = __builtin_bit_cast(Words, bits);
  return __builtin_bit_cast(F32, Floats{_mm256_cvtph_ps(w.low), _mm256_cvtph_ps(w.high)});
#else
  // Scaling by 2^112 moves the exponent, subnormals included; infinity and NaN get theirs.
  const I32 w = __builtin_convertvector(bits, I32);
  const I32 magnitude = (w & 0x7FFF) << 13;
  const F32 scaled = reinterpret_cast<F32>(magnitude) * 0x1p112f;
  const I32 special = reinterpret_cast<I32>(scaled) | 0x7F800000;
  const I32 finite = reinterpret_cast<I32>(scaled);
  const I32 value = (w & 0x7C00) == 0x7C00 ? special : finite;
  return reinterpret_cast<F32>(value | ((w & 0x8000) << 16));
#endif
}
// To the nearest, ties to even; NaN stays NaN.
TN_INLINE Words16 ToBf16(F32 v) {
  const I32 bits = reinterpret_cast<I32>(v);
  const I32 rounded = bits + 0x7FFF + ((bits >> 16) & 1);
  const I32 nan = bits | 0x400000;
  return __builtin_convertvector(((v == v) ? rounded : nan) >> 16, Words16);
}
TN_INLINE Words16 ToF16(F32 v) {
#if defined(__AVX512F__)
  return reinterpret_cast<Words16>(
      _mm512_cvtps_ph(reinterpret_cast<__m512>(v), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
  struct Floats {
    __m256 low, high;
  };
  struct Words {
    __m128i low, high;
  };
  const auto f = __builtin_bit_cast(Floats, v);
  return __builtin_bit_cast(Words16, Words{_mm256_cvtps_ph(f.low, _MM_FROUND_TO_NEAREST_INT),
                                           _mm256_cvtps_ph(f.high, _MM_FROUND_TO_NEAREST_INT)});
#else
  const I32 bits = reinterpret_cast<I32>(v);
  const I32 magnitude = bits & 0x7FFFFFFF;
  const I32 normal = (magnitude + 0xFFF + ((magnitude >> 13) & 1) - (112 << 23)) >> 13;
  // Below 2^-14: adding 0.5 lets the float unit round at 2^-24.
  const I32 small = reinterpret_cast<I32>(reinterpret_cast<F32>(magnitude) + 0.5f) - 0x3F000000;
  I32 half = magnitude < 0x38800000 ? small : normal;
  half = magnitude >= 0x477FF000 ? I32{} + 0x7C00 : half;
  half = magnitude > 0x7F800000 ? I32{} + 0x7E00 : half;
  return __builtin_convertvector(half | ((bits >> 16) & 0x8000), Words16);
#endif
}
TN_INLINE float HalfToFloat(uint16_t bits) {
#if defined(__F16C__)
  return _cvtsh_ss(bits);
#else
  return FromF16(Words16{bits})[0];
#endif
}

}  // namespace
}  // namespace tenon::TN_ISA
