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

// One head by the definition, in double: S [key_dim, value_dim].
struct DeltaHead {
  double decay, dt_bias, query_scale, eps;
  std::vector<double> state;

  static std::vector<double> Unit(const float* x, size_t n, double eps) {
    double squares = eps;
    for (size_t i = 0; i < n; ++i) squares += D(x[i]) * D(x[i]);
    std::vector<double> y;
    for (size_t i = 0; i < n; ++i) y.push_back(D(x[i]) / std::sqrt(squares));
    return y;
  }
  std::vector<double> Step(const DeltaKernelArgs& a, int64_t t) {
    const size_t keys = At(a.key_dim);
    const size_t values = At(a.value_dim);
    const std::vector<double> q = Unit(a.q + t * a.q_stride, keys, eps);
    const std::vector<double> k = Unit(a.k + t * a.k_stride, keys, eps);
    const double dt = std::log1p(std::exp(D(a.dt[t * a.dt_stride]) + dt_bias));
    const double beta = 1 / (1 + std::exp(-D(a.b[t * a.b_stride])));
    for (double& s : state) s *= std::exp(decay * dt);
    std::vector<double> y(values);
    for (size_t j = 0; j < values; ++j) {
      double stored = 0;
      for (size_t i = 0; i < keys; ++i) stored += state[i * values + j] * k[i];
      const double missing = D(a.v[t * a.v_stride + static_cast<int64_t>(j)]) - stored;
      for (size_t i = 0; i < keys; ++i) {
        state[i * values + j] += k[i] * beta * missing;
        y[j] += query_scale * q[i] * state[i * values + j];
      }
    }
    return y;
  }
};

TEST(DeltaKernel, AgainstDouble) {
  constexpr int64_t kRows = 13;
  for (const auto& [keys, values] : {std::pair<int64_t, int64_t>{1, 1}, {8, 12}, {33, 17}}) {
    for (const bool fresh : {false, true}) {
      const std::vector<float> q = Floats(kRows * (keys + 1), 1);
      const std::vector<float> k = Floats(kRows * (keys + 2), 2);
      const std::vector<float> v = Floats(kRows * (values + 3), 3);
      const std::vector<float> dt = Floats(kRows * 2, 4, 3.0f);
      const std::vector<float> b = Floats(kRows * 3, 5, 3.0f);
      const std::vector<float> past = Floats(keys * values, 6);
      std::vector<float> state = past;
      std::vector<float> y(At(kRows * values));
      std::vector<float> scratch(At(DeltaScratchFloats(keys, values)), NAN);
      DeltaKernelArgs a;
      a.key_dim = keys;
      a.value_dim = values;
      a.decay = -0.7f;
      a.dt_bias = 0.2f;
      a.query_scale = 0.25f;
      a.eps = 0.01f;
      a.q = q.data();
      a.k = k.data();
      a.v = v.data();
      a.dt = dt.data();
      a.b = b.data();
      a.q_stride = keys + 1;
      a.k_stride = keys + 2;
      a.v_stride = values + 3;
      a.dt_stride = 2;
      a.b_stride = 3;
      a.y = y.data();
      a.y_stride = values;
      a.rows = kRows;
      a.state = state.data();
      a.fresh = fresh;
      test::Kernels().recurrent.delta.run(a, scratch.data());
      DeltaHead head{D(a.decay), D(a.dt_bias), D(a.query_scale), D(a.eps), {}};
      head.state.assign(past.begin(), past.end());
      if (fresh) head.state.assign(past.size(), 0.0);
      for (int64_t t = 0; t < kRows; ++t) {
        const std::vector<double> expected = head.Step(a, t);
        for (size_t j = 0; j < expected.size(); ++j) {
          ASSERT_NEAR(D(y[At(t * values) + j]), expected[j], 5e-6);
        }
      }
      for (size_t i = 0; i < state.size(); ++i) ASSERT_NEAR(D(state[i]), head.state[i], 5e-6);
    }
  }
}

// A key of unit length whose gate is open: the state gives its value back, whatever it held.
TEST(DeltaKernel, AnOpenGateStoresTheValue) {
  const std::vector<float> k = {0.6f, 0.8f};
  const std::vector<float> v = {3, -5, 7};
  const float shut = -100;
  const float open = 100;
  std::vector<float> state = {9, 8, 7, 6, 5, 4};
  std::vector<float> y(3);
  std::vector<float> scratch(At(DeltaScratchFloats(2, 3)));
  DeltaKernelArgs a;
  a.key_dim = 2;
  a.value_dim = 3;
  a.decay = -1;
  a.q = a.k = k.data();
  a.v = v.data();
  a.dt = &shut;  // nothing decays
  a.b = &open;
  a.y = y.data();
  a.rows = 1;
  a.state = state.data();
  test::Kernels().recurrent.delta.run(a, scratch.data());
  for (size_t j = 0; j < 3; ++j) EXPECT_NEAR(y[j], v[j], 1e-5);
}

}  // namespace
}  // namespace tenon
