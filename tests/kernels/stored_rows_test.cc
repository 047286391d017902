// Rows of cached keys and values: exact tables of every code, the nearest code by search in double,
// the formulas of scales, packing, and that all tables give the reference's bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/random_data.h"

namespace tenon {
namespace {

using test::At;
using test::D;
using test::Floats;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A row with guards: codes and scales of up to `width` numbers.
struct Row {
  DType dtype;
  int64_t width;
  float scale = 1;
  std::vector<std::byte> codes = std::vector<std::byte>(At(4 * width + 64), std::byte{0xA5});
  std::vector<std::byte> scales = std::vector<std::byte>(At(width + 64), std::byte{0xA5});

  StoredRow at() { return {dtype, codes.data(), scales.data(), scale}; }
  int64_t code_bytes() const { return RowBytes(dtype, width); }
  int64_t scale_bytes() const {
    return dtype == DType::kI8 ? 4 : dtype == DType::kF4E2M1 ? width / 16 : 0;
  }
  bool Guarded() const {
    const auto kept = [](std::byte b) { return b == std::byte{0xA5}; };
    return std::all_of(codes.begin() + code_bytes(), codes.end(), kept) &&
           std::all_of(scales.begin() + scale_bytes(), scales.end(), kept);
  }
  uint8_t code(int64_t i) const { return static_cast<uint8_t>(codes[At(i)]); }
  float row_scale() const {
    float value = 0;
    std::memcpy(&value, scales.data(), sizeof value);
    return value;
  }
};

const AttentionKernels& Kernels() { return test::Kernels().attention; }

std::vector<float> Loaded(Row& row) {
  std::vector<float> out(At(row.width + 16), 77.0f);
  Kernels().load(row.at(), out.data(), row.width);
  EXPECT_TRUE(std::all_of(out.begin() + row.width, out.end(), [](float x) { return x == 77.0f; }));
  out.resize(At(row.width));
  return out;
}

Row Stored(DType dtype, const std::vector<float>& x, float scale = 1) {
  Row row{dtype, static_cast<int64_t>(x.size()), scale};
  Kernels().store(x.data(), row.at(), row.width);
  EXPECT_TRUE(row.Guarded());
  return row;
}

// Sign, exponent and mantissa of `bits` bits in all, as the OCP formats define them.
double Formula(uint32_t code, int exponent_bits, int mantissa_bits, int bias) {
  const auto mantissa = static_cast<double>(code & ((1u << mantissa_bits) - 1));
  const int exponent = static_cast<int>(code >> mantissa_bits & ((1u << exponent_bits) - 1));
  const double one = std::ldexp(1.0, mantissa_bits);
  const double magnitude = exponent == 0 ? std::ldexp(mantissa / one, 1 - bias)
                                         : std::ldexp(1 + mantissa / one, exponent - bias);
  return (code >> (exponent_bits + mantissa_bits) & 1) != 0 ? -magnitude : magnitude;
}

TEST(StoredRows, EveryFp8Code) {
  Row row{DType::kF8E4M3, 256};
  for (int i = 0; i < 256; ++i) row.codes[At(i)] = static_cast<std::byte>(i);
  const std::vector<float> numbers = Loaded(row);
  for (uint32_t i = 0; i < 256; ++i) {
    if ((i & 127) == 127) {
      EXPECT_TRUE(std::isnan(numbers[i])) << i;
    } else {
      EXPECT_EQ(D(numbers[i]), Formula(i, 4, 3, 7)) << i;
    }
  }
  // What is a code already stays it.
  std::vector<float> finite = numbers;
  for (float& x : finite) x = std::isnan(x) ? 0.0f : x;
  const Row again = Stored(DType::kF8E4M3, finite);
  for (int64_t i = 0; i < 256; ++i) {
    if ((i & 127) != 127) EXPECT_EQ(again.code(i), i);
  }
}

TEST(StoredRows, EveryFp16Code) {
  Row row{DType::kF16, 65536};
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto code = static_cast<uint16_t>(i);
    std::memcpy(row.codes.data() + 2 * i, &code, 2);
  }
  const std::vector<float> numbers = Loaded(row);
  const Row again = Stored(DType::kF16, numbers);
  for (uint32_t i = 0; i < 65536; ++i) {
    const bool is_number = (i >> 10 & 31) != 31;
    if (is_number) {
      ASSERT_EQ(D(numbers[i]), Formula(i, 5, 10, 15)) << i;
    } else if ((i & 1023) == 0) {
      ASSERT_TRUE(std::isinf(numbers[i])) << i;
    } else {
      ASSERT_TRUE(std::isnan(numbers[i])) << i;
      continue;
    }
    uint16_t code = 0;
    std::memcpy(&code, again.codes.data() + 2 * i, 2);
    ASSERT_EQ(code, i);
  }
}

TEST(StoredRows, EveryFp4Code) {
  constexpr double kNumbers[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  Row row{DType::kF4E2M1, 16};
  for (uint32_t i = 0; i < 8; ++i)  // the first of a pair lies in the low bits
    row.codes[i] = static_cast<std::byte>(2 * i | (2 * i + 1) << 4);
  for (uint32_t scale = 0; scale < 127; ++scale) {
    row.scales[0] = static_cast<std::byte>(scale);
    const std::vector<float> numbers = Loaded(row);
    for (uint32_t i = 0; i < 16; ++i) {
      const double expected = kNumbers[i & 7] * Formula(scale, 4, 3, 7);
      ASSERT_EQ(D(numbers[i]), i < 8 ? expected : -expected) << i << " scale " << scale;
    }
  }
}

// The nearest code by search over all of them, of two the even one.
TEST(StoredRows, Fp8TakesTheNearest) {
  std::vector<float> x = Floats(4000, 1, 500.0f);
  for (const float scale : {1.0f, 0.02f, 1e-3f}) {
    const std::vector<float> more = Floats(2000, 2, scale);
    x.insert(x.end(), more.begin(), more.end());
  }
  for (uint32_t i = 0; i < 126; ++i)  // ties
    x.push_back(static_cast<float>((Formula(i, 4, 3, 7) + Formula(i + 1, 4, 3, 7)) / 2));
  const Row row = Stored(DType::kF8E4M3, x);
  for (size_t i = 0; i < x.size(); ++i) {
    uint32_t best = 0;
    for (uint32_t code = 1; code < 127; ++code) {
      const double farther = std::abs(std::abs(D(x[i])) - Formula(best, 4, 3, 7)) -
                             std::abs(std::abs(D(x[i])) - Formula(code, 4, 3, 7));
      if (farther > 0 || (farther == 0 && code % 2 == 0)) best = code;
    }
    ASSERT_EQ(row.code(static_cast<int64_t>(i)), best | (std::signbit(x[i]) ? 128u : 0u)) << x[i];
  }
}

TEST(StoredRows, Fp8BeyondTheRange) {
  const Row row = Stored(DType::kF8E4M3, {448, 464, 1e9f, -kInfinity, NAN, 1e-9f, -0.0f});
  const std::vector<uint8_t> expected = {0x7E, 0x7E, 0x7E, 0xFE, 0x7F, 0x00, 0x80};
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(row.code(static_cast<int64_t>(i)) & (i == 4 ? 0x7F : 0xFF), expected[i]) << i;
}

TEST(StoredRows, Int8ByTheLargest) {
  for (const int64_t width : {1, 7, 16, 33, 64, 128}) {
    for (const float size : {1.0f, 1e-30f, 1e30f, 1e38f}) {
      const std::vector<float> x = Floats(width, static_cast<uint32_t>(width), size);
      float top = 0;
      for (const float v : x) top = std::max(top, std::abs(v));
      Row row = Stored(DType::kI8, x);
      EXPECT_EQ(row.row_scale(), top / 127.0f);
      const std::vector<float> numbers = Loaded(row);
      bool has_end = false;
      for (int64_t i = 0; i < width; ++i) {
        const int code = static_cast<int8_t>(row.code(i));
        has_end |= std::abs(code) == 127;
        EXPECT_EQ(numbers[At(i)], static_cast<float>(code) * row.row_scale());
        EXPECT_LE(std::abs(D(x[At(i)]) / D(row.row_scale()) - code), 0.5 + 1e-5) << x[At(i)];
      }
      EXPECT_TRUE(has_end) << "the largest number is the largest code";
    }
  }
  // 127 of them: ties between codes go to the even one.
  const Row ties = Stored(DType::kI8, {127, 0.5f, 1.5f, -2.5f, -3.5f, 126.5f});
  const std::vector<int> expected = {127, 0, 2, -2, -4, 126};
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(static_cast<int8_t>(ties.code(static_cast<int64_t>(i))), expected[i]) << i;
}

TEST(StoredRows, Int8RowsOfZerosAndOfNoNumbers) {
  Row zeros = Stored(DType::kI8, std::vector<float>(20, 0.0f));
  for (const float x : Loaded(zeros)) EXPECT_EQ(x, 0.0f);
  for (const float bad : {NAN, kInfinity, -kInfinity}) {
    std::vector<float> x(40, 1.0f);
    x[37] = bad;
    Row row = Stored(DType::kI8, x);
    for (const float y : Loaded(row)) EXPECT_TRUE(std::isnan(y)) << bad;
  }
  // The quotient of the smallest numbers rounds far: codes stay in their range.
  const Row tiny = Stored(DType::kI8, {190 * 1e-45f, -190 * 1e-45f});
  EXPECT_EQ(static_cast<int8_t>(tiny.code(0)), 127);
  EXPECT_EQ(static_cast<int8_t>(tiny.code(1)), -127);
}

TEST(StoredRows, Nvfp4ByTheLargestOfSixteen) {
  constexpr double kNumbers[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (const float tensor_scale : {1.0f, 0.01f}) {
    const std::vector<float> x = Floats(16 * 50, 5, 7.0f);
    const Row row = Stored(DType::kF4E2M1, x, tensor_scale);
    for (int64_t group = 0; group < 50; ++group) {
      float top = 0;
      for (int64_t i = 0; i < 16; ++i) top = std::max(top, std::abs(x[At(16 * group + i)]));
      const auto code = static_cast<uint32_t>(row.scales[At(group)]);
      const double wanted = D(top / 6.0f / tensor_scale);
      for (uint32_t other = 0; other < 127; ++other) {
        EXPECT_LE(std::abs(Formula(code, 4, 3, 7) - wanted),
                  std::abs(Formula(other, 4, 3, 7) - wanted));
      }
      const float scale = static_cast<float>(Formula(code, 4, 3, 7)) * tensor_scale;
      for (int64_t i = 0; i < 16; ++i) {
        const float number = x[At(16 * group + i)];
        const uint32_t pair = row.code(8 * group + i / 2);
        const uint32_t own = i % 2 == 0 ? pair & 15 : pair >> 4;
        EXPECT_EQ(own >> 3, std::signbit(number) ? 1u : 0u);
        const double magnitude = std::abs(D(number / scale));
        for (const double other : kNumbers) {
          EXPECT_LE(std::abs(kNumbers[own & 7] - magnitude), std::abs(other - magnitude));
        }
      }
    }
  }
  // With a largest of 6 the scale is 1: ties go to the even mantissa.
  const Row ties = Stored(DType::kF4E2M1, {6, 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, -5, -0.75f,
                                           0.26f, 5.01f, 0, 0, 0, 0});
  EXPECT_EQ(ties.scales[0], std::byte{0x38});
  const std::vector<uint32_t> expected = {7, 0, 2, 2, 4, 4, 6, 6, 14, 10, 1, 7, 0, 0, 0, 0};
  for (int64_t i = 0; i < 16; ++i)
    EXPECT_EQ(i % 2 == 0 ? ties.code(i / 2) & 15u : ties.code(i / 2) >> 4, expected[At(i)]) << i;
}

TEST(StoredRows, Nvfp4GroupsAreOfNoMatterToEachOther) {
  std::vector<float> x(64, 1.0f);
  x[20] = NAN;
  x[40] = 1e9f;
  std::fill(x.begin() + 48, x.end(), 0.0f);
  Row row = Stored(DType::kF4E2M1, x);
  const std::vector<float> y = Loaded(row);
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(y[i], 6 * 0.171875f) << "1 / 6 as e4m3";
  for (size_t i = 16; i < 32; ++i) EXPECT_TRUE(std::isnan(y[i]));
  EXPECT_EQ(y[40], 6 * 448.0f) << "the largest number there is";
  for (size_t i = 48; i < 64; ++i) EXPECT_EQ(y[i], 0.0f);
}

// Any bits as input: of every table the bytes and numbers that the reference has.
TEST(StoredRows, AllTablesGiveTheSameBits) {
  const AttentionKernels reference = ReferenceAttentionKernels();
  std::mt19937 random(3);
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3, DType::kI8, DType::kF4E2M1}) {
    for (int round = 0; round < 400; ++round) {
      const int64_t width = dtype == DType::kF4E2M1 ? 16 * (1 + round % 9) : 1 + round % 70;
      std::vector<float> x = Floats(width, static_cast<uint32_t>(round),
                                    std::ldexp(1.0f, static_cast<int>(random() % 40) - 20));
      if (round % 3 == 0) {  // any finite numbers
        for (float& v : x) v = std::bit_cast<float>(static_cast<uint32_t>(random()) & 0xBFFFFFFFu);
      }
      const float scale = round % 2 == 0 ? 1.0f : 0.3f;
      Row expected{dtype, width, scale};
      reference.store(x.data(), expected.at(), width);
      Row got = Stored(dtype, x, scale);
      ASSERT_EQ(got.codes, expected.codes) << NameOf(dtype) << " " << round;
      ASSERT_EQ(got.scales, expected.scales) << NameOf(dtype) << " " << round;
      std::vector<float> numbers(At(width));
      reference.load(expected.at(), numbers.data(), width);
      const std::vector<float> loaded = Loaded(got);
      for (size_t i = 0; i < numbers.size(); ++i)
        ASSERT_EQ(loaded[i], numbers[i]) << NameOf(dtype) << " " << round << " " << i;
    }
  }
}

}  // namespace
}  // namespace tenon
