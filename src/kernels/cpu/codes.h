// Codes of weights that have scales beside them (ScaleGrid) to fp32, sixteen at a time. A number is
// kFactor times what Numbers gives, so that the factor goes into the scale. For the sources of this
// folder only. Thread-safe.
#pragma once

#include "tenon/kernels/cpu/simd.h"

namespace tenon::TN_ISA {
namespace {

struct CodesF8E4M3 {
#if defined(__F16C__)
  // Seven bits lower the code is an fp16 with an exponent that is 8 too small, subnormals included;
  // the conversion keeps those, where fp32 arithmetic might be slow or flush them.
  static constexpr float kFactor = 256;
  TN_INLINE static F32 Numbers(const std::byte* p) {
    using Signed = int16_t __attribute__((vector_size(32)));
    const Signed wide = __builtin_convertvector(LoadAs<SignedBytes16>(p), Signed);
    const Signed half = (wide << 7) & static_cast<int16_t>(0xBFFF);
    const Signed nan = ((half & 0x7FFF) == 0x3F80) & 0x7C00;
    return FromF16(reinterpret_cast<Words16>(half | nan));
  }
#else
  static constexpr float kFactor = 1;
  TN_INLINE static F32 Numbers(const std::byte* p) {
    const I32 code = __builtin_convertvector(LoadAs<Bytes16>(p), I32);
    const I32 magnitude = code & 127;
    const I32 normal = (magnitude << 20) + (120 << 23);
    // A subnormal is m / 8 * 2^-6: what (1 + m / 8) * 2^-6 is above 2^-6.
    const F32 above = reinterpret_cast<F32>(normal + (1 << 23)) - 0x1p-6f;
    I32 bits = magnitude < 8 ? reinterpret_cast<I32>(above) : normal;
    bits = magnitude == 127 ? bits | 0x7FC00000 : bits;
    return reinterpret_cast<F32>(bits | ((code & 128) << 24));
  }
#endif
};

struct CodesI8 {
  static constexpr float kFactor = 1;
  TN_INLINE static F32 Numbers(const std::byte* p) { return ToFloats(LoadAs<SignedBytes16>(p)); }
};

// The first n < 16 codes; the others count as zero.
template <typename Codes>
TN_INLINE F32 FirstNumbers(const std::byte* p, int64_t n) {
  alignas(16) std::byte rest[kLanes] = {};
  __builtin_memcpy(rest, p, static_cast<size_t>(n));
  return Codes::Numbers(rest);
}

}  // namespace
}  // namespace tenon::TN_ISA
