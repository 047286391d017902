// Random inputs for the tests of kernels and ops: numbers, and weights of any float DType with
// their decoded values. Deterministic for a seed. Not for goldens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "tenon/numeric/codecs.h"
#include "tenon/numeric/decode.h"
#include "tenon/numeric/dtype.h"

namespace tenon::test {

inline size_t At(int64_t i) { return static_cast<size_t>(i); }

inline double D(float x) { return static_cast<double>(x); }

// Uniform in [-scale, scale].
inline std::vector<float> Floats(int64_t n, uint32_t seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-scale, scale);
  std::vector<float> values(At(n));
  for (float& value : values) value = uniform(random);
  return values;
}

constexpr DType kFloatDTypes[] = {DType::kF64,    DType::kF32,    DType::kBF16,   DType::kF16,
                                  DType::kF8E4M3, DType::kF8E5M2, DType::kF8E8M0, DType::kQ4_0,
                                  DType::kQ4_1,   DType::kQ8_0,   DType::kQ6_K,   DType::kQ4_K};

struct Weights {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_bytes = 0;
  size_t shift = 0;              // bytes before the first row, to move it off any alignment
  std::vector<std::byte> bytes;  // [shift + rows * row_bytes]
  std::vector<float> decoded;    // [rows, cols]

  const std::byte* data() const { return bytes.data() + shift; }
  double At(int64_t r, int64_t c) const { return D(decoded[test::At(r * cols + c)]); }
};

inline void PutHalf(std::byte* at, float value) {
  const uint16_t bits = FloatToF16(value);
  std::memcpy(at, &bits, sizeof bits);
}

// One element or block of `dtype` at `at`: random bits, finite and of moderate size.
inline void PutRandom(DType dtype, std::mt19937& random, std::byte* at) {
  const float value = std::uniform_real_distribution<float>(-1, 1)(random);
  const int32_t size = InfoOf(dtype).block_bytes;
  for (int32_t i = 0; i < size; ++i) at[i] = static_cast<std::byte>(random() & 0xFF);
  const auto put = [&](auto stored) { std::memcpy(at, &stored, sizeof stored); };
  switch (dtype) {
    case DType::kF64:
      return put(static_cast<double>(value));
    case DType::kF32:
      return put(value);
    case DType::kBF16:
      return put(FloatToBf16(value));
    case DType::kF16:
      return put(FloatToF16(value));
    case DType::kF8E4M3:  // exponents around 0, no NaN
      return put(static_cast<uint8_t>((random() & 0x87u) | ((5u + random() % 3u) << 3)));
    case DType::kF8E5M2:
      return put(static_cast<uint8_t>((random() & 0x83u) | ((13u + random() % 3u) << 2)));
    case DType::kF8E8M0:
      return put(static_cast<uint8_t>(124u + random() % 4u));
    case DType::kQ4_0:
      return PutHalf(at, value / 8);
    case DType::kQ4_1:
      PutHalf(at, value / 8);
      return PutHalf(at + 2, -value);
    case DType::kQ8_0:
      return PutHalf(at, value / 128);
    case DType::kQ4_K:
      PutHalf(at, value / 512);
      return PutHalf(at + 2, value / 64);
    case DType::kQ6_K:
      return PutHalf(at + 208, value / 4096);
    default:
      return;
  }
}

inline Weights RandomWeights(DType dtype, int64_t rows, int64_t cols, uint32_t seed,
                             size_t shift = 0) {
  std::mt19937 random(seed);
  Weights w{dtype, rows, cols, RowBytes(dtype, cols), shift, {}, {}};
  w.bytes.resize(shift + At(rows * w.row_bytes));
  w.decoded.resize(At(rows * cols));
  for (int64_t at = 0; at < rows * w.row_bytes; at += InfoOf(dtype).block_bytes) {
    PutRandom(dtype, random, w.bytes.data() + shift + at);
  }
  for (int64_t r = 0; r < rows; ++r) {
    DecoderOf(dtype)(w.data() + r * w.row_bytes, cols, w.decoded.data() + r * cols);
  }
  return w;
}

}  // namespace tenon::test
