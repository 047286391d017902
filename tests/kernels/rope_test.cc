#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/random_data.h"
#include "tenon/kernels/table.h"

namespace tenon {
namespace {

using test::At;
using test::D;
using test::Floats;

TEST(RopeKernels, Angles) {
  const std::vector<float> inv_freq = {1.0f, 0.31622776f, 0.1f, 3.0e-6f};
  std::vector<float> y(8);
  for (const int32_t position : {0, 1, 511, 131071, 10000019}) {
    test::Kernels().rope.angles.run(position, inv_freq.data(), 1.25f, 4, y.data());
    for (int64_t i = 0; i < 4; ++i) {
      // The angle itself is an fp32 number: at large positions this decides the digits.
      const float angle = static_cast<float>(position) * inv_freq[At(i)];
      EXPECT_NEAR(D(y[At(i)]), 1.25 * std::cos(D(angle)), 2e-7);
      EXPECT_NEAR(D(y[At(4 + i)]), 1.25 * std::sin(D(angle)), 2e-7);
    }
  }
}

// Rotation is multiplication by cos + i sin of the pair as a complex number.
void ExpectRotated(bool interleaved, int64_t half, int64_t width) {
  const std::vector<float> x = Floats(width, 3);
  const std::vector<float> cos_sin = Floats(2 * half, 4);
  const RopeKernels& kernels = test::Kernels().rope;
  RotateFunction* rotate = interleaved ? kernels.rotate_interleaved.run : kernels.rotate_half.run;
  std::vector<float> y(At(width), NAN);
  rotate(cos_sin.data(), half, x.data(), y.data(), width);
  for (int64_t i = 0; i < half; ++i) {
    const int64_t a = interleaved ? 2 * i : i;
    const int64_t b = interleaved ? 2 * i + 1 : half + i;
    const std::complex<double> expected =
        std::complex<double>(D(x[At(a)]), D(x[At(b)])) *
        std::complex<double>(D(cos_sin[At(i)]), D(cos_sin[At(half + i)]));
    EXPECT_NEAR(D(y[At(a)]), expected.real(), 3e-7);
    EXPECT_NEAR(D(y[At(b)]), expected.imag(), 3e-7);
  }
  for (int64_t i = 2 * half; i < width; ++i) EXPECT_EQ(y[At(i)], x[At(i)]);
  std::vector<float> in_place = x;
  rotate(cos_sin.data(), half, in_place.data(), in_place.data(), width);
  EXPECT_EQ(in_place, y);
}

TEST(RopeKernels, Rotate) {
  for (const bool interleaved : {false, true}) {
    for (const int64_t half : {0, 1, 3, 8, 32}) {
      for (const int64_t rest : {0, 1, 16}) ExpectRotated(interleaved, half, 2 * half + rest);
    }
  }
}

}  // namespace
}  // namespace tenon
