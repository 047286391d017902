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

constexpr Activation kActivations[] = {
    Activation::kNone,     Activation::kSilu,      Activation::kGelu,
    Activation::kGeluTanh, Activation::kQuickGelu, Activation::kRelu,
    Activation::kRelu2,    Activation::kSigmoid,   Activation::kTanh};

// The definitions, in double.
double Expected(Activation activation, double x) {
  constexpr double kPi = 3.14159265358979323846;
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGelu:
      return x / 2 * std::erfc(-x / std::sqrt(2.0));
    case Activation::kGeluTanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / kPi) * (x + 0.044715 * x * x * x)));
    case Activation::kQuickGelu:
      return x / (1 + std::exp(-1.702 * x));
    case Activation::kRelu:
      return std::fmax(x, 0.0);
    case Activation::kRelu2:
      return std::fmax(x, 0.0) * std::fmax(x, 0.0);
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::kTanh:
      return std::tanh(x);
  }
  return NAN;
}

float One(Activation activation, float x) {
  float y = 0;
  test::Kernels().elementwise.activate.run(activation, &x, &y, 1);
  return y;
}

TEST(ElementwiseKernels, ActivationsAgainstDouble) {
  const ElementwiseKernels& kernels = test::Kernels().elementwise;
  for (const Activation activation : kActivations) {
    for (const int64_t n : {0, 1, 7, 1001}) {
      const std::vector<float> x = Floats(n, 1, 12.0f);
      const std::vector<float> up = Floats(n, 2, 2.0f);
      std::vector<float> y(At(n));
      std::vector<float> gated(At(n));
      kernels.activate.run(activation, x.data(), y.data(), n);
      kernels.gated_activate.run(activation, x.data(), up.data(), gated.data(), n);
      std::vector<float> in_place = x;
      kernels.activate.run(activation, in_place.data(), in_place.data(), n);
      EXPECT_EQ(y, in_place);
      for (int64_t i = 0; i < n; ++i) {
        const double expected = Expected(activation, D(x[At(i)]));
        const double tolerance = 2e-6 * (1 + std::abs(expected));
        ASSERT_NEAR(D(y[At(i)]), expected, tolerance) << NameOf(activation) << " " << x[At(i)];
        ASSERT_NEAR(D(gated[At(i)]), expected * D(up[At(i)]), 3 * tolerance);
      }
    }
  }
}

TEST(ElementwiseKernels, ClampedSwigluAgainstDouble) {
  const ElementwiseKernels& kernels = test::Kernels().elementwise;
  for (const ClampedSwiglu unit : {ClampedSwiglu{}, ClampedSwiglu{.alpha = 0.5f, .limit = 1}}) {
    const double limit = D(unit.limit);
    for (const int64_t n : {0, 1, 7, 1001}) {
      const std::vector<float> gate = Floats(n, 1, 12.0f);
      const std::vector<float> up = Floats(n, 2, 12.0f);
      std::vector<float> y(At(n));
      kernels.clamped_swiglu.run(unit, gate.data(), up.data(), y.data(), n);
      for (int64_t i = 0; i < n; ++i) {
        const double g = std::fmin(D(gate[At(i)]), limit);
        const double u = std::fmax(std::fmin(D(up[At(i)]), limit), -limit);
        const double expected = (u + 1) * g / (1 + std::exp(-D(unit.alpha) * g));
        ASSERT_NEAR(D(y[At(i)]), expected, 4e-6 * (1 + std::abs(expected)));
      }
    }
  }
  for (const auto& [gate, up] : {std::pair{NAN, 1.0f}, std::pair{1.0f, NAN}}) {
    float y = 0;
    kernels.clamped_swiglu.run({}, &gate, &up, &y, 1);
    EXPECT_TRUE(std::isnan(y));
  }
}

// Published values: the two gelus differ in the fourth digit, quick gelu in the second.
TEST(ElementwiseKernels, KnownValues) {
  EXPECT_NEAR(D(One(Activation::kGelu, 1)), 0.8413447461, 1e-7);
  EXPECT_NEAR(D(One(Activation::kGeluTanh, 1)), 0.8411919906, 1e-7);
  EXPECT_NEAR(D(One(Activation::kQuickGelu, 1)), 0.8457957659, 1e-7);
  EXPECT_NEAR(D(One(Activation::kSilu, 1)), 0.7310585786, 1e-7);
  EXPECT_EQ(One(Activation::kRelu2, -3), 0.0f);
  EXPECT_EQ(One(Activation::kRelu2, 3), 9.0f);
}

TEST(ElementwiseKernels, ExtremesAndNan) {
  for (const Activation activation : kActivations) {
    EXPECT_TRUE(std::isnan(One(activation, NAN))) << NameOf(activation);
    EXPECT_NEAR(D(One(activation, -200)), Expected(activation, -200), 1e-6) << NameOf(activation);
    EXPECT_NEAR(D(One(activation, 200)), Expected(activation, 200), 1e-6) << NameOf(activation);
  }
}

TEST(ElementwiseKernels, Arithmetic) {
  const ElementwiseKernels& kernels = test::Kernels().elementwise;
  const std::vector<float> a = {1, -2, 3};
  const std::vector<float> b = {10, 20, -30};
  const std::vector<float> c = {0.5f, 0.25f, 0};
  std::vector<float> y(3);
  kernels.multiply.run(a.data(), b.data(), y.data(), 3);
  EXPECT_EQ(y, (std::vector<float>{10, -40, -90}));
  const float* addends[] = {b.data(), c.data()};
  kernels.add.run(a.data(), addends, 2, y.data(), 3);
  EXPECT_EQ(y, (std::vector<float>{11.5f, 18.25f, -27}));
  kernels.add.run(y.data(), addends, 0, y.data(), 3);
  EXPECT_EQ(y, (std::vector<float>{11.5f, 18.25f, -27}));
  kernels.add_scaled.run(2, a.data(), y.data(), 3);
  EXPECT_EQ(y, (std::vector<float>{13.5f, 14.25f, -21}));
  kernels.scale.run(-2, y.data(), y.data(), 3);
  EXPECT_EQ(y, (std::vector<float>{-27, -28.5f, 42}));
  kernels.soft_cap.run(30, y.data(), y.data(), 3);
  EXPECT_NEAR(D(y[0]), 30 * std::tanh(-0.9), 1e-5);
  EXPECT_NEAR(D(y[2]), 30 * std::tanh(1.4), 1e-5);
}

TEST(ElementwiseKernels, Softmax) {
  const auto softmax = [](std::vector<float> x) {
    test::Kernels().elementwise.softmax.run(x.data(), x.data(), static_cast<int64_t>(x.size()));
    return x;
  };
  EXPECT_TRUE(softmax({}).empty());
  EXPECT_EQ(softmax({-1000}), (std::vector<float>{1}));
  EXPECT_EQ(softmax({2000, 2000}), (std::vector<float>{0.5f, 0.5f}));
  const std::vector<float> masked = softmax({0, -INFINITY, std::log(3.0f)});
  EXPECT_FLOAT_EQ(masked[0], 0.25f);
  EXPECT_EQ(masked[1], 0.0f);
  EXPECT_FLOAT_EQ(masked[2], 0.75f);
  const std::vector<float> x = Floats(999, 4, 20.0f);
  const std::vector<float> y = softmax(x);
  double total = 0;
  for (const float v : x) total += std::exp(D(v));
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(D(y[i]), std::exp(D(x[i])) / total, 2e-6 * D(y[i]) + 1e-12);
  }
  for (const float v : softmax({1, NAN, 2})) EXPECT_TRUE(std::isnan(v));
}

}  // namespace
}  // namespace tenon
