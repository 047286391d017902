#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/random_data.h"
#include "tenon/kernels/table.h"

namespace tenon {
namespace {

using test::At;
using test::D;
using test::Floats;

enum class Kind { kRms, kLayer };

std::vector<double> Expected(Kind kind, const NormKernelArgs& a, const std::vector<float>& x) {
  const auto n = static_cast<double>(a.width);
  double mean = 0;
  if (kind == Kind::kLayer) {
    for (const float v : x) mean += D(v) / n;
  }
  double square = 0;
  for (const float v : x) square += (D(v) - mean) * (D(v) - mean) / n;
  std::vector<double> y;
  for (int64_t i = 0; i < a.width; ++i) {
    double v = (D(x[At(i)]) - mean) / std::sqrt(square + D(a.eps));
    if (a.weight != nullptr) v *= D(a.weight[i]) + D(a.weight_offset);
    if (a.bias != nullptr) v += D(a.bias[i]);
    y.push_back(v);
  }
  return y;
}

TEST(NormKernels, AgainstDouble) {
  for (const int64_t width : {1, 2, 3, 15, 16, 17, 64, 129, 2051}) {
    const std::vector<float> x = Floats(width, 1, 3.0f);
    const std::vector<float> weight = Floats(width, 2);
    const std::vector<float> bias = Floats(width, 3);
    for (int variant = 0; variant < 8; ++variant) {
      NormKernelArgs a;
      a.width = width;
      a.eps = 0.01f;
      a.weight = (variant & 1) != 0 ? weight.data() : nullptr;
      a.bias = (variant & 2) != 0 ? bias.data() : nullptr;
      a.weight_offset = (variant & 4) != 0 ? 1.0f : 0.0f;
      for (const Kind kind : {Kind::kRms, Kind::kLayer}) {
        const NormKernels& kernels = test::Kernels().norm;
        NormFunction* norm = kind == Kind::kRms ? kernels.rms.run : kernels.layer.run;
        std::vector<float> y(At(width));
        norm(a, x.data(), y.data());
        std::vector<float> in_place = x;
        norm(a, in_place.data(), in_place.data());
        EXPECT_EQ(y, in_place);
        const std::vector<double> expected = Expected(kind, a, x);
        for (int64_t i = 0; i < width; ++i) {
          ASSERT_NEAR(D(y[At(i)]), expected[At(i)], 2e-6 * (1 + std::abs(expected[At(i)])));
        }
      }
    }
  }
}

TEST(NormKernels, ClosedForms) {
  const float x[2] = {1, 3};
  float y[2];
  NormKernelArgs a;
  a.width = 2;
  a.eps = 3;
  test::Kernels().norm.layer.run(a, x, y);  // mean 2, biased variance 1
  EXPECT_FLOAT_EQ(y[0], -0.5f);
  EXPECT_FLOAT_EQ(y[1], 0.5f);
  a.eps = 4;
  test::Kernels().norm.rms.run(a, x, y);  // mean square 5
  EXPECT_FLOAT_EQ(y[0], 1.0f / 3);
  EXPECT_FLOAT_EQ(y[1], 1.0f);
  const float zeros[2] = {0, 0};
  test::Kernels().norm.rms.run(a, zeros, y);
  EXPECT_EQ(y[0], 0.0f);
}

// A large common offset must not eat the variance.
TEST(NormKernels, LayerNormOfShiftedRow) {
  const std::vector<float> x = {10000.0f, 10001.0f, 10002.0f, 10003.0f};
  NormKernelArgs a;
  a.width = 4;
  float y[4];
  test::Kernels().norm.layer.run(a, x.data(), y);
  const double scale = 1 / std::sqrt(1.25);
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(D(y[i]), (i - 1.5) * scale, 1e-6);
}

TEST(NormKernels, GatedInGroups) {
  constexpr int64_t kWidth = 24;
  for (const int64_t group : {1, 4, 12, 24}) {
    const std::vector<float> x = Floats(kWidth, 1, 2.0f);
    const std::vector<float> gate = Floats(kWidth, 2, 4.0f);
    const std::vector<float> weight = Floats(kWidth, 3);
    const std::vector<float> bias = Floats(kWidth, 4);
    NormKernelArgs a;
    a.width = kWidth;
    a.eps = 0.01f;
    a.weight = weight.data();
    a.bias = bias.data();
    std::vector<float> y(At(kWidth));
    test::Kernels().norm.gated_rms.run(a, group, x.data(), gate.data(), y.data());
    for (int64_t i = 0; i < kWidth; ++i) {
      const auto gated = [&](int64_t j) {
        const double g = D(gate[At(j)]);
        return D(x[At(j)]) * g / (1 + std::exp(-g));
      };
      double square = 0;
      for (int64_t j = i / group * group; j < (i / group + 1) * group; ++j) {
        square += gated(j) * gated(j) / static_cast<double>(group);
      }
      const double expected =
          gated(i) / std::sqrt(square + 0.01) * D(weight[At(i)]) + D(bias[At(i)]);
      ASSERT_NEAR(D(y[At(i)]), expected, 3e-6) << group;
    }
  }
}

}  // namespace
}  // namespace tenon
