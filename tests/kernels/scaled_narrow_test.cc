// Products of codes with scales beside them and narrow activations against double on the rounded
// operands. Tables without such kernels have nothing to test here.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/scaled_weights.h"
#include "tenon/tensor/buffer.h"

namespace tenon {
namespace {

using test::At;
using test::D;
using test::Floats;
using test::GridShape;
using test::RandomScaled;
using test::ScaledWeights;

constexpr float kUntouched = 12345.0f;

double Bf16(float x) { return D(Bf16ToFloat(FloatToBf16(x))); }
Buffer Scratch(int64_t bytes) { return *Buffer::Allocate(bytes, "test"); }

struct Case {
  DType dtype = DType::kF8E4M3;
  GridShape grid;
  int64_t rows = 0, cols = 0, tokens = 0;
};

testing::Message Describe(const Case& c) {
  return testing::Message() << NameOf(c.dtype) << " grid " << c.grid.rows << "x" << c.grid.cols
                            << ", " << c.rows << "x" << c.cols << ", " << c.tokens << " tokens";
}

// One problem: what goes in, and the bias.
struct Problem {
  explicit Problem(const Case& of)
      : c(of),
        w(RandomScaled(c.dtype, c.rows, c.cols, c.grid, 7)),
        x(Floats(c.tokens * c.cols, 3, 2.0f)),
        bias(Floats(c.rows, 5)),
        has_bias(c.rows % 2 == 1) {}

  const float* Row(int64_t t) const { return x.data() + t * c.cols; }
  const float* Bias() const { return has_bias ? bias.data() : nullptr; }
  double BiasOf(int64_t r) const { return has_bias ? D(bias[At(r)]) : 0.0; }

  Case c;
  ScaledWeights w;
  std::vector<float> x;  // [tokens, cols]
  std::vector<float> bias;
  bool has_bias;
};

// y [tokens, rows] by a kernel that reads rows, in two ranges of rows.
std::vector<float> FewProduct(const Problem& p, const FewTokensKernel& kernel) {
  const int64_t bytes = ActivationRowBytes(kernel.form, p.c.cols);
  const Buffer packed = Scratch(std::max<int64_t>(64, bytes * p.c.tokens));
  for (int64_t t = 0; t < p.c.tokens; ++t) {
    test::Kernels().matmul.Pack(kernel.form).run(p.Row(t), p.c.cols, packed.data() + t * bytes);
  }
  std::vector<float> y(At(p.c.tokens * p.c.rows), kUntouched);
  const int64_t middle = p.c.rows / 2 / kMatmulTileRows * kMatmulTileRows;
  NarrowMatmulArgs args{p.w.codes.data(), p.w.codes.row_bytes,
                        p.c.cols,         p.Bias(),
                        packed.data(),    bytes,
                        p.c.tokens,       y.data(),
                        p.c.rows,         {p.w.grid, 0}};
  kernel.matmul.run(args, 0, middle);
  for (int64_t t = 0; t < p.c.tokens; ++t) {
    for (int64_t r = middle; r < p.c.rows; ++r) EXPECT_EQ(y[At(t * p.c.rows + r)], kUntouched);
  }
  // The others as a weight of their own, whose scales start in the middle of the grid.
  args.w += middle * args.row_bytes;
  args.bias = p.has_bias ? p.bias.data() + middle : nullptr;
  if (!y.empty()) args.y += middle;
  args.scales.first_row = middle;
  kernel.matmul.run(args, 0, p.c.rows - middle);
  return y;
}

// A block's sum takes 2 roundings for each 32 columns and lane, its scale and the sum over blocks
// and lanes at most as many again: 2^-24 (cols / 16 + 12) of the magnitudes.
double ToleranceOf(int64_t cols) { return 0x1p-24 * (12 + static_cast<double>(cols) / 16); }

void ExpectFew(const Case& c) {
  SCOPED_TRACE(Describe(c));
  const Problem p(c);
  const std::vector<float> y = FewProduct(p, test::Kernels().matmul.Scaled(c.dtype).few);
  for (int64_t t = 0; t < c.tokens; ++t) {
    for (int64_t r = 0; r < c.rows; ++r) {
      double expected = p.BiasOf(r);
      double magnitude = std::abs(expected);
      for (int64_t k = 0; k < c.cols; ++k) {
        const double product = p.w.At(r, k) * Bf16(p.Row(t)[k]);
        expected += product;
        magnitude += std::abs(product);
      }
      ASSERT_NEAR(D(y[At(t * c.rows + r)]), expected, ToleranceOf(c.cols) * magnitude + 1e-12)
          << "token " << t << " row " << r;
    }
  }
}

constexpr GridShape kGrids[] = {
    test::kPerTensor, test::kPerChannel, test::kBlocks, {3, 32}, {8, 96}};

TEST(ScaledNarrow, FewTokens) {
  for (const DType dtype : test::kCodeDTypes) {
    if (test::Kernels().matmul.Scaled(dtype).few.matmul.run == nullptr) continue;
    for (const GridShape& grid : kGrids) {
      for (const int64_t cols : {1, 31, 32, 63, 64, 65, 127, 128, 129, 300, 1088}) {
        for (const int64_t rows : {1, 3, 4, 5, 9, 133}) {
          for (const int64_t tokens : {1, 2, 3, 5}) ExpectFew({dtype, grid, rows, cols, tokens});
        }
      }
    }
  }
}

// The numbers that each code is, NaN included, by the tables of the narrow kernel.
TEST(ScaledNarrow, EveryCode) {
  const FewTokensKernel& kernel = test::Kernels().matmul.Scaled(DType::kF8E4M3).few;
  if (kernel.matmul.run == nullptr) GTEST_SKIP() << "no such kernel in this table";
  for (const int64_t column : {0, 7, 8, 17, 40, 63}) {
    Problem p({DType::kF8E4M3, test::kPerTensor, 256, 64, 1});
    p.w.scales[0] = 0.375f;
    std::fill(p.x.begin(), p.x.end(), 0.0f);
    p.x[At(column)] = 1;
    for (int64_t r = 0; r < 256; ++r) {
      p.w.codes.bytes[At(1 + r * p.w.codes.row_bytes + column)] = static_cast<std::byte>(r);
    }
    const std::vector<float> y = FewProduct(p, kernel);
    for (int64_t r = 0; r < 256; ++r) {
      const float expected = p.w.CodeOf(r, column) * 0.375f;
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(y[At(r)])) << "code " << r;
      } else {
        EXPECT_EQ(y[At(r)], expected) << "code " << r;
      }
    }
  }
}

// y [tokens, rows] by panels, the tokens in two parts.
std::vector<float> PanelProduct(const Problem& p) {
  const MatmulKernels& kernels = test::Kernels().matmul;
  const TokenBlocks& form = kernels.blocks;
  const int64_t bytes = form.Bytes(p.c.cols);
  const int64_t count = (p.c.tokens + form.tokens - 1) / form.tokens;
  const Buffer blocks = Scratch(bytes * count);
  const Buffer panel = Scratch(PanelBytes(p.c.cols));
  for (int64_t b = 0; b < count; ++b) {
    const int64_t t = b * form.tokens;
    form.pack.run(p.Row(t), p.c.cols, std::min(form.tokens, p.c.tokens - t), p.c.cols,
                  blocks.data() + b * bytes);
  }
  std::vector<float> y(At(p.c.tokens * p.c.rows), kUntouched);
  const PanelArgs args{p.w.codes.data(), p.w.codes.row_bytes, p.c.rows, p.c.cols, p.Bias(),
                       blocks.data(),    p.c.tokens,          y.data(), p.c.rows, {p.w.grid, 0}};
  const int64_t middle = p.c.tokens / 2 / form.tokens * form.tokens;
  const Kernel<PanelFunction>& panels = kernels.Scaled(p.c.dtype).panels;
  for (int64_t row = 0; row < p.c.rows; row += kPanelRows) {
    if (middle > 0) panels.run(args, row, 0, middle, panel.data());
    panels.run(args, row, middle, p.c.tokens, panel.data());
  }
  return y;
}

void ExpectPanels(const Case& c) {
  SCOPED_TRACE(Describe(c));
  const Problem p(c);
  const std::vector<float> y = PanelProduct(p);
  for (int64_t t = 0; t < c.tokens; ++t) {
    for (int64_t r = 0; r < c.rows; ++r) {
      double expected = p.BiasOf(r);
      double magnitude = std::abs(expected);
      for (int64_t k = 0; k < c.cols; ++k) {
        const double w = Bf16(p.w.CodeOf(r, k) * p.w.ScaleOf(r, k));
        const double product = w * Bf16(p.Row(t)[k]);
        expected += product;
        magnitude += std::abs(product);
      }
      ASSERT_NEAR(D(y[At(t * c.rows + r)]), expected, 2e-6 * magnitude + 1e-12)
          << "token " << t << " row " << r;
    }
  }
}

TEST(ScaledNarrow, ManyTokens) {
  for (const DType dtype : test::kCodeDTypes) {
    if (test::Kernels().matmul.Scaled(dtype).panels.run == nullptr) continue;
    for (const GridShape& grid : kGrids) {
      for (const int64_t cols : {1, 32, 33, 129, 300, 2048 + 5}) {
        for (const int64_t rows : {1, 65, 133}) {
          for (const int64_t tokens : {1, 6, 9, 33}) {
            ExpectPanels({dtype, grid, rows, cols, tokens});
          }
        }
      }
    }
  }
}

// --- int8 activations

// As the form says.
struct Int8Row {
  std::vector<int64_t> integers;
  float scale = 0;
};
Int8Row RoundedToInt8(const float* x, int64_t cols) {
  float top = 0;
  for (int64_t i = 0; i < cols; ++i) top = std::max(top, std::abs(x[i]));
  Int8Row row;
  row.scale = top / 127;
  const float inverse = top > 0 ? 127 / top : 0.0f;
  for (int64_t i = 0; i < cols; ++i) {
    row.integers.push_back(static_cast<int64_t>(std::nearbyint(x[i] * inverse)));
  }
  return row;
}

// The sum is exact as an integer; its conversion, two scales and the bias round once each.
void ExpectInt8(const Case& c) {
  SCOPED_TRACE(Describe(c));
  const Problem p(c);
  const std::vector<float> y = FewProduct(p, test::Kernels().matmul.Scaled(c.dtype).per_token);
  for (int64_t t = 0; t < c.tokens; ++t) {
    const Int8Row row = RoundedToInt8(p.Row(t), c.cols);
    for (int64_t r = 0; r < c.rows; ++r) {
      int64_t sum = 0;
      for (int64_t k = 0; k < c.cols; ++k) {
        sum += static_cast<int64_t>(p.w.CodeOf(r, k)) * row.integers[At(k)];
      }
      const float scale = c.cols > 0 ? p.w.ScaleOf(r, 0) : 0.0f;
      const float product = static_cast<float>(sum) * row.scale * scale;
      const float expected = product + (p.has_bias ? p.bias[At(r)] : 0.0f);
      ASSERT_EQ(y[At(t * c.rows + r)], expected) << "token " << t << " row " << r;
      const double exact = static_cast<double>(sum) * D(row.scale) * D(scale) + p.BiasOf(r);
      ASSERT_NEAR(D(expected), exact, 0x1p-22 * (std::abs(exact) + std::abs(p.BiasOf(r))));
    }
  }
}

const FewTokensKernel& Int8Kernel() { return test::Kernels().matmul.Scaled(DType::kI8).per_token; }

TEST(Int8PerToken, IsExact) {
  if (Int8Kernel().matmul.run == nullptr) GTEST_SKIP() << "no such kernel in this table";
  for (const GridShape& grid : {test::kPerTensor, test::kPerChannel, GridShape{3, 0}}) {
    for (const int64_t cols : {0, 1, 15, 31, 63, 64, 65, 129, 300, 4096}) {
      for (const int64_t rows : {1, 3, 4, 5, 9, 133}) {
        for (const int64_t tokens : {0, 1, 2, 3, 4, 5, 9}) {
          if (cols == 4096 && rows > 9) continue;
          ExpectInt8({DType::kI8, grid, rows, cols, tokens});
        }
      }
    }
  }
}

// More rows than stay in a cache while all tokens pass.
TEST(Int8PerToken, ManyRowsAndTokens) {
  if (Int8Kernel().matmul.run == nullptr) GTEST_SKIP() << "no such kernel in this table";
  ExpectInt8({DType::kI8, test::kPerChannel, 300, 2000, 7});
}

// The extremes of both sides, as long as sums fit.
TEST(Int8PerToken, LongestRowsDoNotOverflow) {
  if (Int8Kernel().matmul.run == nullptr) GTEST_SKIP() << "no such kernel in this table";
  Problem p({DType::kI8, test::kPerTensor, 1, kMostInt8Cols, 2});
  std::fill(p.w.codes.bytes.begin(), p.w.codes.bytes.end(), std::byte{0x80});
  for (int64_t k = 0; k < kMostInt8Cols; ++k) {
    p.x[At(k)] = 127;
    p.x[At(kMostInt8Cols + k)] = -127;
  }
  p.has_bias = false;
  p.w.scales[0] = 1;
  const std::vector<float> y = FewProduct(p, Int8Kernel());
  EXPECT_EQ(y[0], -128.0f * 127.0f * static_cast<float>(kMostInt8Cols));
  EXPECT_EQ(y[1], 128.0f * 127.0f * static_cast<float>(kMostInt8Cols));
}

// Rows of zeros give the bias; numbers that are none reach every result of their token alone.
TEST(Int8PerToken, ZeroTinyAndNotFiniteTokens) {
  if (Int8Kernel().matmul.run == nullptr) GTEST_SKIP() << "no such kernel in this table";
  constexpr int64_t kCols = 70, kRows = 5;
  Problem p({DType::kI8, test::kPerChannel, kRows, kCols, 6});
  const std::vector<float> clean = FewProduct(p, Int8Kernel());
  float* x = p.x.data();
  std::fill(x, x + kCols, 0.0f);
  std::fill(x + kCols, x + 2 * kCols, 1e-45f);
  x[2 * kCols + 69] = NAN;
  x[3 * kCols] = INFINITY;
  x[4 * kCols + 1] = -INFINITY;
  const std::vector<float> y = FewProduct(p, Int8Kernel());
  for (int64_t r = 0; r < kRows; ++r) {
    EXPECT_EQ(y[At(r)], p.bias[At(r)]);
    EXPECT_EQ(y[At(kRows + r)], p.bias[At(r)]);
    for (int64_t t = 2; t < 5; ++t) EXPECT_TRUE(std::isnan(y[At(t * kRows + r)])) << "token " << t;
    EXPECT_EQ(y[At(5 * kRows + r)], clean[At(5 * kRows + r)]);
  }
}

// What selection relies on.
TEST(ScaledNarrow, EveryKernelHasItsPacking) {
  const MatmulKernels& kernels = test::Kernels().matmul;
  for (const DType dtype : test::kCodeDTypes) {
    const ScaledWeightKernels& scaled = kernels.Scaled(dtype);
    for (const FewTokensKernel& kernel : {scaled.few, scaled.per_token}) {
      if (kernel.matmul.run != nullptr) EXPECT_NE(kernels.Pack(kernel.form).run, nullptr);
    }
    if (scaled.panels.run != nullptr) EXPECT_NE(kernels.blocks.pack.run, nullptr);
  }
  if (test::TestIsa() < Isa::kAvx512Bf16Vnni) return;
  EXPECT_NE(kernels.Scaled(DType::kF8E4M3).few.matmul.run, nullptr);
  EXPECT_NE(kernels.Scaled(DType::kI8).per_token.matmul.run, nullptr);
  for (const DType dtype : test::kCodeDTypes) EXPECT_NE(kernels.Scaled(dtype).panels.run, nullptr);
}

}  // namespace
}  // namespace tenon
