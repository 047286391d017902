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
using test::RandomWeights;
using test::Weights;

constexpr float kUntouched = 12345.0f;

struct Problem {
  const Weights* w = nullptr;
  const float* bias = nullptr;  // [rows] or null
  const float* x = nullptr;     // [num_tokens, cols], x_stride apart
  int64_t x_stride = 0;
  int64_t num_tokens = 0;
};

// y [num_tokens, rows], where only rows [begin, end) are computed.
std::vector<float> Product(const Problem& p, int64_t begin, int64_t end) {
  std::vector<float> y(At(p.num_tokens * p.w->rows), kUntouched);
  std::vector<float> scratch(At(MatmulScratchFloats(p.w->cols)));
  MatmulKernelArgs args;
  args.w = p.w->data();
  args.row_bytes = p.w->row_bytes;
  args.cols = p.w->cols;
  args.bias = p.bias;
  args.x = p.x;
  args.x_stride = p.x_stride;
  args.num_tokens = p.num_tokens;
  args.y = y.data();
  args.y_stride = p.w->rows;
  test::Kernels().matmul.For(p.w->dtype).run(args, begin, end, scratch.data());
  return y;
}

void ExpectProduct(const Problem& p, int64_t begin, int64_t end) {
  const std::vector<float> y = Product(p, begin, end);
  for (int64_t t = 0; t < p.num_tokens; ++t) {
    for (int64_t r = 0; r < p.w->rows; ++r) {
      const float got = y[At(t * p.w->rows + r)];
      if (r < begin || r >= end) {
        ASSERT_EQ(got, kUntouched);
        continue;
      }
      double expected = p.bias == nullptr ? 0.0 : D(p.bias[r]);
      double magnitude = std::abs(expected);
      for (int64_t c = 0; c < p.w->cols; ++c) {
        const double product = p.w->At(r, c) * D(p.x[t * p.x_stride + c]);
        expected += product;
        magnitude += std::abs(product);
      }
      ASSERT_NEAR(D(got), expected, 1e-6 * magnitude + 1e-30)
          << NameOf(p.w->dtype) << " cols " << p.w->cols << " token " << t << " row " << r;
    }
  }
}

TEST(MatmulKernel, EveryDTypeAndSize) {
  constexpr int64_t kRows = 5;
  for (const DType dtype : test::kFloatDTypes) {
    const int64_t block = InfoOf(dtype).block_elements;
    const std::vector<int64_t> sizes = block == 1
                                           ? std::vector<int64_t>{0, 1, 3, 15, 16, 17, 31, 33, 67}
                                           : std::vector<int64_t>{0, block, 2 * block, 5 * block};
    for (const int64_t cols : sizes) {
      for (const int64_t num_tokens : {0, 1, 2, 7}) {
        const Weights w = RandomWeights(dtype, kRows, cols, static_cast<uint32_t>(cols + 1),
                                        /*shift=*/1);
        const int64_t x_stride = cols + 3;
        const std::vector<float> x = Floats(x_stride * (num_tokens + 1), 5);
        const std::vector<float> bias = Floats(kRows, 9);
        const Problem p{&w, bias.data(), x.data(), x_stride, num_tokens};
        ExpectProduct(p, 0, kRows);
        ExpectProduct(p, 1, 4);
        ExpectProduct(p, 3, 3);
        ExpectProduct({&w, nullptr, x.data(), x_stride, num_tokens}, 0, kRows);
      }
    }
  }
}

// Long rows stay within what the goldens allow.
TEST(MatmulKernel, PrecisionOfLongRows) {
  for (const int64_t cols : {4096, 8192}) {
    const Weights w = RandomWeights(DType::kF32, 32, cols, 3);
    const std::vector<float> x = Floats(4 * cols, 4);
    const std::vector<float> y = Product({&w, nullptr, x.data(), cols, 4}, 0, 32);
    for (int64_t t = 0; t < 4; ++t) {
      for (int64_t r = 0; r < 32; ++r) {
        double expected = 0;
        for (int64_t c = 0; c < cols; ++c) expected += w.At(r, c) * D(x[At(t * cols + c)]);
        ASSERT_NEAR(D(y[At(t * 32 + r)]), expected, 2e-4);
      }
    }
  }
}

// A row's bits depend on neither its batch nor the range it was computed in.
TEST(MatmulKernel, BatchInvariance) {
  const Weights w = RandomWeights(DType::kQ4_1, 9, 96, 7);
  const std::vector<float> x = Floats(6 * 96, 8);
  const std::vector<float> all = Product({&w, nullptr, x.data(), 96, 6}, 0, 9);
  for (int64_t t = 0; t < 6; ++t) {
    for (int64_t r = 0; r < 9; ++r) {
      const std::vector<float> one = Product({&w, nullptr, x.data() + t * 96, 96, 1}, r, r + 1);
      EXPECT_EQ(one[At(r)], all[At(t * 9 + r)]);
    }
  }
}

TEST(MatmulKernel, NanStaysInItsRow) {
  const Weights w = RandomWeights(DType::kBF16, 4, 40, 7);
  std::vector<float> x = Floats(3 * 40, 8);
  const std::vector<float> clean = Product({&w, nullptr, x.data(), 40, 3}, 0, 4);
  x[At(40 + 39)] = NAN;
  const std::vector<float> y = Product({&w, nullptr, x.data(), 40, 3}, 0, 4);
  for (int64_t t = 0; t < 3; ++t) {
    for (int64_t r = 0; r < 4; ++r) {
      const float got = y[At(t * 4 + r)];
      if (t == 1) {
        EXPECT_TRUE(std::isnan(got));
      } else {
        EXPECT_EQ(got, clean[At(t * 4 + r)]);
      }
    }
  }
}

}  // namespace
}  // namespace tenon
