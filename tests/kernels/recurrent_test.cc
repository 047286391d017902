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

TEST(ConvKernel, AgainstDouble) {
  constexpr int64_t kChannels = 5;
  for (const int64_t width : {1, 2, 4}) {
    for (const int64_t rows : {0, 1, 2, 3, 9}) {
      for (const bool fresh : {false, true}) {
        const std::vector<float> past = Floats((width - 1) * kChannels, 1);
        const std::vector<float> x = Floats((rows + 1) * (kChannels + 2), 2);
        const std::vector<float> weight = Floats(kChannels * width, 3);
        const std::vector<float> bias = Floats(kChannels, 4);
        std::vector<float> state = past;
        std::vector<float> y(At(rows * kChannels), NAN);
        ConvKernelArgs a;
        a.channels = kChannels;
        a.width = width;
        a.weight = weight.data();
        a.bias = bias.data();
        a.x = x.data();
        a.x_stride = kChannels + 2;
        a.y = y.data();
        a.y_stride = kChannels;
        a.rows = rows;
        a.state = state.data();
        a.fresh = fresh;
        test::Kernels().recurrent.conv.run(a, 0, 2);
        test::Kernels().recurrent.conv.run(a, 2, kChannels);
        // Row j of past and present together, j from -(width - 1).
        const auto row = [&](int64_t j, int64_t c) {
          if (j >= 0) return D(x[At(j * a.x_stride + c)]);
          return fresh ? 0.0 : D(past[At((width - 1 + j) * kChannels + c)]);
        };
        for (int64_t c = 0; c < kChannels; ++c) {
          for (int64_t t = 0; t < rows; ++t) {
            double expected = D(bias[At(c)]);
            for (int64_t back = 0; back < width; ++back) {
              expected += D(weight[At(c * width + width - 1 - back)]) * row(t - back, c);
            }
            ASSERT_NEAR(D(y[At(t * kChannels + c)]), expected, 1e-6);
          }
          for (int64_t k = 0; k < width - 1; ++k) {
            ASSERT_EQ(D(state[At(k * kChannels + c)]), row(rows - (width - 1) + k, c));
          }
        }
      }
    }
  }
}

TEST(ScanKernel, AgainstDouble) {
  constexpr int64_t kRows = 11;
  constexpr int64_t kHeadDim = 3;
  constexpr int64_t kState = 5;
  for (const bool fresh : {false, true}) {
    const std::vector<float> x = Floats(kRows * 4, 1);
    const std::vector<float> b = Floats(kRows * 6, 2);
    const std::vector<float> c = Floats(kRows * 7, 3);
    const std::vector<float> dt = Floats(kRows * 2, 4, 3.0f);
    const std::vector<float> past = Floats(kHeadDim * kState, 5);
    std::vector<float> state = past;
    std::vector<float> y(At(kRows * kHeadDim));
    ScanKernelArgs a;
    a.head_dim = kHeadDim;
    a.state_size = kState;
    a.decay = -0.7f;
    a.d = 0.3f;
    a.dt_bias = 0.2f;
    a.dt_min = 0.1f;
    a.dt_max = 2.0f;
    a.x = x.data();
    a.b = b.data();
    a.c = c.data();
    a.dt = dt.data();
    a.x_stride = 4;
    a.b_stride = 6;
    a.c_stride = 7;
    a.dt_stride = 2;
    a.y = y.data();
    a.y_stride = kHeadDim;
    a.rows = kRows;
    a.state = state.data();
    a.fresh = fresh;
    test::Kernels().recurrent.scan.run(a);
    std::vector<double> h(past.begin(), past.end());
    if (fresh) h.assign(h.size(), 0.0);
    for (int64_t t = 0; t < kRows; ++t) {
      double step = std::log1p(std::exp(D(dt[At(t * 2)]) + D(a.dt_bias)));
      step = std::min(std::max(step, D(a.dt_min)), D(a.dt_max));
      for (int64_t i = 0; i < kHeadDim; ++i) {
        double expected = D(a.d) * D(x[At(t * 4 + i)]);
        for (int64_t s = 0; s < kState; ++s) {
          double& hs = h[At(i * kState + s)];
          hs = std::exp(D(a.decay) * step) * hs + step * D(x[At(t * 4 + i)]) * D(b[At(t * 6 + s)]);
          expected += hs * D(c[At(t * 7 + s)]);
        }
        ASSERT_NEAR(D(y[At(t * kHeadDim + i)]), expected, 5e-6);
      }
    }
    for (size_t i = 0; i < h.size(); ++i) ASSERT_NEAR(D(state[i]), h[i], 5e-6);
  }
}

// softplus of a large number is the number; an infinite upper limit is none.
TEST(ScanKernel, LargeStepsStayFinite) {
  const float x = 1;
  const float one = 1;
  const float dt = 100;
  float state = 2;
  float y = 0;
  ScanKernelArgs a;
  a.head_dim = 1;
  a.state_size = 1;
  a.decay = -0.001f;
  a.dt_max = INFINITY;
  a.x = &x;
  a.b = &one;
  a.c = &one;
  a.dt = &dt;
  a.y = &y;
  a.rows = 1;
  a.state = &state;
  test::Kernels().recurrent.scan.run(a);
  EXPECT_NEAR(D(y), 2 * std::exp(-0.1) + 100, 1e-4);
}

}  // namespace
}  // namespace tenon
