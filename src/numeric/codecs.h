// Scalar conversions between float and the small storage types. Inline, no STL containers, so that
// kernels of any ISA may use them. Rounding is to nearest even. Pure functions, thread-safe.
#pragma once

#include <bit>
#include <cstdint>

namespace tenon {

inline float Bf16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
    return static_cast<uint16_t>((bits >> 16) | 0x40u);  // NaN
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

inline float F16ToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1Fu;
  const uint32_t mantissa = bits & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24 is exact in float
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

inline uint16_t FloatToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);   // NaN
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // rounds to infinity
  if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 lets the float unit round at 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000u));
  }
  const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

// FP8 E4M3 (finite only, NaN = 0x7F and 0xFF; OCP 8-bit floating point, table 1).
constexpr float F8E4M3ToFloat(uint8_t bits) {
  const float sign = (bits & 0x80u) != 0 ? -1.0f : 1.0f;
  const uint32_t exponent = (bits >> 3) & 0xFu;
  const uint32_t mantissa = bits & 0x7u;
  if (exponent == 0xF && mantissa == 0x7) return std::bit_cast<float>(0x7FC00000u);
  if (exponent == 0) return sign * static_cast<float>(mantissa) * 0x1p-9f;
  return sign * std::bit_cast<float>(((exponent + 120u) << 23) | (mantissa << 20));
}

// To the nearest, ties to even; beyond 448 the largest number, infinities too; NaN stays NaN.
inline uint8_t FloatToF8E4M3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint8_t>(sign | 0x7Fu);
  if (magnitude >= 0x43E00000u) return static_cast<uint8_t>(sign | 0x7Eu);  // 448
  if (magnitude < 0x3C800000u) {  // below 2^-6: adding 2^14 lets the float unit round at 2^-9
    const float shifted = std::bit_cast<float>(magnitude) + 16384.0f;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x46800000u));
  }
  const uint32_t rounded = magnitude + 0x7FFFFu + ((magnitude >> 20) & 1u);
  return static_cast<uint8_t>(sign | ((rounded >> 20) - (120u << 3)));
}

// FP4 E2M1, in the low four bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives (OCP microscaling
// formats).
constexpr float F4E2M1ToFloat(uint8_t bits) {
  const uint32_t exponent = (bits >> 1) & 3u;
  const uint32_t mantissa = bits & 1u;
  const float magnitude = exponent == 0
                              ? 0.5f * static_cast<float>(mantissa)
                              : std::bit_cast<float>(((exponent + 126u) << 23) | (mantissa << 22));
  return (bits & 8u) != 0 ? -magnitude : magnitude;
}
// To the nearest, ties to an even mantissa; beyond 6 the largest number. Of no NaN.
constexpr uint8_t FloatToF4E2M1(float value) {
  const uint32_t sign = std::bit_cast<uint32_t>(value) >> 28 & 8u;
  const float m = value < 0 ? -value : value;
  const int code = (m > 0.25f) + (m >= 0.75f) + (m > 1.25f) + (m >= 1.75f) + (m > 2.5f) +
                   (m >= 3.5f) + (m > 5.0f);
  return static_cast<uint8_t>(sign | static_cast<uint32_t>(code));
}

// FP8 E5M2: the upper byte of an fp16.
inline float F8E5M2ToFloat(uint8_t bits) { return F16ToFloat(static_cast<uint16_t>(bits << 8)); }

// E8M0: 2^(bits - 127), 0xFF = NaN (OCP microscaling formats).
inline float F8E8M0ToFloat(uint8_t bits) {
  if (bits == 0xFF) return std::bit_cast<float>(0x7FC00000u);
  if (bits == 0) return 0x1p-127f;
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 23);
}

// E2M1: four bits, the sign first (OCP microscaling formats).
inline float F4E2M1ToFloat(int bits) {
  constexpr float kMagnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const float magnitude = kMagnitudes[bits & 7];
  return (bits & 8) != 0 ? -magnitude : magnitude;
}

}  // namespace tenon
