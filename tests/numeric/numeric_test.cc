#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "tenon/numeric/codecs.h"
#include "tenon/numeric/decode.h"
#include "tenon/numeric/dtype.h"

namespace tenon {
namespace {

TEST(Codecs, EveryF16RoundTrips) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = F16ToFloat(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(F16ToFloat(FloatToF16(value))));
    } else {
      EXPECT_EQ(FloatToF16(value), half);
    }
  }
}

TEST(Codecs, F16AgainstTheCompiler) {
#if defined(__FLT16_MANT_DIG__)
  EXPECT_TRUE(rc::check("FloatToF16 equals the compiler's conversion", [](uint32_t bits) {
    const float value = std::bit_cast<float>(bits);
    RC_PRE(!std::isnan(value));
    const auto expected = static_cast<_Float16>(value);
    RC_ASSERT(FloatToF16(value) == std::bit_cast<uint16_t>(expected));
  }));
#endif
  EXPECT_EQ(FloatToF16(65504.0f), 0x7BFF);
  EXPECT_EQ(FloatToF16(65520.0f), 0x7C00);  // a tie rounds to even: infinity
  EXPECT_EQ(FloatToF16(0x1p-24f), 0x0001);
  EXPECT_EQ(FloatToF16(0x1p-25f), 0x0000);  // a tie rounds to even: zero
}

TEST(Codecs, Bf16RoundsToNearestEven) {
  EXPECT_EQ(FloatToBf16(1.0f), 0x3F80);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3F808000u)), 0x3F80);  // tie, even below
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3F818000u)), 0x3F82);  // tie, even above
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(NAN))));
}

// Values computed from the formats' definitions (OCP); reference/kernels.md section 8 lists the
// same.
TEST(Codecs, Fp8Values) {
  EXPECT_EQ(F8E4M3ToFloat(0x7E), 448.0f);
  EXPECT_EQ(F8E4M3ToFloat(0x01), 0x1p-9f);
  EXPECT_EQ(F8E4M3ToFloat(0xAA), -0.3125f);
  EXPECT_EQ(F8E4M3ToFloat(0x1D), 0.1015625f);
  EXPECT_TRUE(std::isnan(F8E4M3ToFloat(0x7F)));
  EXPECT_EQ(F8E5M2ToFloat(0x7B), 57344.0f);
  EXPECT_EQ(F8E8M0ToFloat(127), 1.0f);
  EXPECT_EQ(F8E8M0ToFloat(0), 0x1p-127f);
  EXPECT_EQ(F4E2M1ToFloat(3), 1.5f);
  EXPECT_EQ(F4E2M1ToFloat(15), -6.0f);
}

TEST(DType, SizesAndNames) {
  EXPECT_EQ(RowBytes(DType::kQ4_1, 64), 40);
  EXPECT_EQ(RowBytes(DType::kQ6_K, 512), 420);
  EXPECT_EQ(RowBytes(DType::kBF16, 3), 6);
  EXPECT_EQ(*ParseDType("Q4_0"), DType::kQ4_0);
  EXPECT_NE(ParseDType("q3_z").message().find("q8_0"), std::string::npos);
}

}  // namespace
}  // namespace tenon
