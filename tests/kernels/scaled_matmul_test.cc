// Products of codes with scales beside them and fp32 activations, in every table, against double.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/scaled_weights.h"

namespace tenon {
namespace {

using test::At;
using test::D;
using test::Floats;
using test::GridShape;
using test::RandomScaled;
using test::ScaledWeights;

constexpr float kUntouched = 12345.0f;

struct Problem {
  const ScaledWeights* w = nullptr;
  const float* bias = nullptr;  // [rows] or null
  const float* x = nullptr;     // [num_tokens, x_stride]
  int64_t x_stride = 0;
  int64_t num_tokens = 0;
};

// y [num_tokens, rows], of which rows [begin, end) are computed. The codes that the kernel gets
// start at row `skipped` of the weight.
std::vector<float> Product(const Problem& p, int64_t begin, int64_t end, int64_t skipped = 0) {
  const test::Weights& codes = p.w->codes;
  std::vector<float> y(At(p.num_tokens * codes.rows), kUntouched);
  std::vector<float> scratch(At(MatmulScratchFloats(codes.cols)));
  MatmulKernelArgs args;
  args.w = codes.data() + skipped * codes.row_bytes;
  args.row_bytes = codes.row_bytes;
  args.cols = codes.cols;
  args.bias = p.bias == nullptr ? nullptr : p.bias + skipped;
  args.x = p.x;
  args.x_stride = p.x_stride;
  args.num_tokens = p.num_tokens;
  args.y = y.empty() ? nullptr : y.data() + skipped;
  args.y_stride = codes.rows;
  args.scales = {p.w->grid, skipped};
  test::Kernels()
      .matmul.Scaled(codes.dtype)
      .fp32.run(args, begin - skipped, end - skipped, scratch.data());
  return y;
}

// A weight, a product and each addition along one of 16 lanes round once: for at most n of them on
// the way of a product, 2^-24 (2 + cols / 16 + 5) of the sum of magnitudes.
double ToleranceOf(int64_t cols) { return 0x1p-24 * (8 + static_cast<double>(cols) / 16); }

void ExpectProduct(const Problem& p, int64_t begin, int64_t end, int64_t skipped = 0) {
  const std::vector<float> y = Product(p, begin, end, skipped);
  const int64_t cols = p.w->codes.cols;
  const int64_t rows = p.w->codes.rows;
  for (int64_t t = 0; t < p.num_tokens; ++t) {
    for (int64_t r = 0; r < rows; ++r) {
      const float got = y[At(t * rows + r)];
      if (r < begin || r >= end) {
        ASSERT_EQ(got, kUntouched);
        continue;
      }
      double expected = p.bias == nullptr ? 0.0 : D(p.bias[r]);
      double magnitude = std::abs(expected);
      for (int64_t c = 0; c < cols; ++c) {
        const double product = p.w->At(r, c) * D(p.x[t * p.x_stride + c]);
        expected += product;
        magnitude += std::abs(product);
      }
      ASSERT_NEAR(D(got), expected, ToleranceOf(cols) * magnitude + 1e-30)
          << "token " << t << " row " << r;
    }
  }
}

constexpr GridShape kGrids[] = {
    test::kPerTensor, test::kPerChannel, test::kBlocks, {3, 32}, {16, 96}};

TEST(ScaledMatmul, EveryGridAndSize) {
  for (const DType dtype : test::kCodeDTypes) {
    for (const GridShape& grid : kGrids) {
      for (const int64_t cols : {0, 1, 15, 16, 17, 31, 33, 127, 128, 129, 300}) {
        for (const int64_t num_tokens : {0, 1, 2, 3, 4, 5, 9}) {
          SCOPED_TRACE(testing::Message()
                       << NameOf(dtype) << " grid " << grid.rows << "x" << grid.cols << ", cols "
                       << cols << ", " << num_tokens << " tokens");
          constexpr int64_t kRows = 9;
          const ScaledWeights w = RandomScaled(dtype, kRows, cols, grid, 7);
          const int64_t stride = cols + 3;
          const std::vector<float> x = Floats(stride * (num_tokens + 1), 5);
          const std::vector<float> bias = Floats(kRows, 9);
          const Problem p{&w, bias.data(), x.data(), stride, num_tokens};
          ExpectProduct(p, 0, kRows);
          ExpectProduct(p, 1, 4);
          ExpectProduct(p, 3, 3);
          ExpectProduct({&w, nullptr, x.data(), stride, num_tokens}, 2, kRows, /*skipped=*/2);
        }
      }
    }
  }
}

// The last blocks of rows and of columns are partial.
TEST(ScaledMatmul, RaggedBlocks) {
  for (const DType dtype : test::kCodeDTypes) {
    for (const int64_t rows : {127, 128, 129, 259}) {
      const ScaledWeights w = RandomScaled(dtype, rows, 300, test::kBlocks, 3);
      const std::vector<float> x = Floats(5 * 300, 4);
      ExpectProduct({&w, nullptr, x.data(), 300, 1}, 0, rows);
      ExpectProduct({&w, nullptr, x.data(), 300, 5}, 0, rows);
      ExpectProduct({&w, nullptr, x.data(), 300, 2}, 126, rows, /*skipped=*/126);
    }
  }
}

// Each code alone times 1: exactly the number that it stands for, NaN where it is none.
TEST(ScaledMatmul, EveryCode) {
  for (const DType dtype : test::kCodeDTypes) {
    ScaledWeights w = RandomScaled(dtype, 256, 16, test::kPerTensor, 1);
    w.scales[0] = 0.375f;
    for (int64_t r = 0; r < 256; ++r) {
      w.codes.bytes[At(1 + r * w.codes.row_bytes)] = static_cast<std::byte>(r);
    }
    std::vector<float> x(16 * 5);
    for (size_t t = 0; t < 5; ++t) x[16 * t] = 1;
    for (const int64_t num_tokens : {1, 5}) {
      const std::vector<float> y = Product({&w, nullptr, x.data(), 16, num_tokens}, 0, 256);
      for (int64_t r = 0; r < 256; ++r) {
        const float expected = w.CodeOf(r, 0) * 0.375f;
        if (std::isnan(expected)) {
          EXPECT_TRUE(std::isnan(y[At(r)])) << "code " << r;
        } else {
          EXPECT_EQ(y[At(r)], expected) << "code " << r;
        }
      }
    }
  }
}

// A row's bits depend on neither its batch nor the range it was computed in.
TEST(ScaledMatmul, BatchInvariance) {
  for (const DType dtype : test::kCodeDTypes) {
    for (const int64_t cols : {96, 300}) {
      const ScaledWeights w = RandomScaled(dtype, 9, cols, {2, 32}, 7);
      const std::vector<float> x = Floats(6 * cols, 8);
      const std::vector<float> all = Product({&w, nullptr, x.data(), cols, 6}, 0, 9);
      for (int64_t t = 0; t < 6; ++t) {
        for (int64_t r = 0; r < 9; ++r) {
          for (const int64_t batch : {1, 3}) {
            if (t + batch > 6) continue;
            const Problem p{&w, nullptr, x.data() + t * cols, cols, batch};
            EXPECT_EQ(Product(p, r, r + 1)[At(r)], all[At(t * 9 + r)]);
          }
        }
      }
    }
  }
}

TEST(ScaledMatmul, NanStaysInItsToken) {
  for (const DType dtype : test::kCodeDTypes) {
    const ScaledWeights w = RandomScaled(dtype, 5, 40, test::kPerChannel, 7);
    std::vector<float> x = Floats(3 * 40, 8);
    const std::vector<float> clean = Product({&w, nullptr, x.data(), 40, 3}, 0, 5);
    x[At(40 + 39)] = NAN;
    const std::vector<float> y = Product({&w, nullptr, x.data(), 40, 3}, 0, 5);
    for (int64_t i = 0; i < 15; ++i) {
      if (i / 5 == 1) {
        EXPECT_TRUE(std::isnan(y[At(i)]));
      } else {
        EXPECT_EQ(y[At(i)], clean[At(i)]);
      }
    }
  }
}

TEST(ScaledMatmul, EveryTableHasBothDTypes) {
  for (const DType dtype : test::kCodeDTypes) {
    const Kernel<MatmulFunction>& kernel = test::Kernels().matmul.Scaled(dtype).fp32;
    ASSERT_NE(kernel.run, nullptr);
    EXPECT_TRUE(std::string_view(kernel.name)
                    .ends_with("/matmul_" + std::string(NameOf(dtype)) + "_scaled"))
        << kernel.name;
  }
}

}  // namespace
}  // namespace tenon
