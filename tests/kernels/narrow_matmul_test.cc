// Matmuls with narrow activations against plain code in double on the rounded operands: what is
// left is the order of fp32 additions. Tables without such kernels have nothing to test here.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/random_data.h"
#include "tenon/tensor/buffer.h"

namespace tenon {
namespace {

using test::At;
using test::D;
using test::Floats;
using test::RandomWeights;
using test::Weights;

constexpr float kUntouched = 12345.0f;
constexpr double kTolerance = 2e-6;  // of the sum of |w x|

double Bf16(float x) { return D(Bf16ToFloat(FloatToBf16(x))); }

// x as integers up to kIntegerTop in blocks of 32 with one scale, back as numbers.
std::vector<double> IntegerRounded(const float* x, int64_t cols) {
  std::vector<double> rounded(At(cols));
  for (int64_t begin = 0; begin < cols; begin += 32) {
    const int64_t end = std::min(cols, begin + 32);
    float top = 0;
    for (int64_t i = begin; i < end; ++i) top = std::max(top, std::abs(x[i]));
    const float inverse = top > 0 ? kIntegerTop / top : 0.0f;
    for (int64_t i = begin; i < end; ++i) {
      rounded[At(i)] = D(std::nearbyint(x[i] * inverse)) * D(top / kIntegerTop);
    }
  }
  return rounded;
}

std::vector<double> Bf16Rounded(const float* x, int64_t cols) {
  std::vector<double> rounded(At(cols));
  for (int64_t i = 0; i < cols; ++i) rounded[At(i)] = Bf16(x[i]);
  return rounded;
}

struct Expected {
  double value = 0;
  double magnitude = 0;
};
Expected Dot(const std::vector<double>& w, const std::vector<double>& x) {
  Expected e;
  for (size_t c = 0; c < w.size(); ++c) {
    e.value += w[c] * x[c];
    e.magnitude += std::abs(w[c] * x[c]);
  }
  return e;
}

// The weights' rows, as they are or rounded to bf16.
std::vector<std::vector<double>> Rows(const Weights& w, bool bf16) {
  std::vector<std::vector<double>> rows(At(w.rows), std::vector<double>(At(w.cols)));
  for (int64_t r = 0; r < w.rows; ++r) {
    for (int64_t c = 0; c < w.cols; ++c) {
      const double value = w.At(r, c);
      rows[At(r)][At(c)] = bf16 ? Bf16(static_cast<float>(value)) : value;
    }
  }
  return rows;
}

Buffer Scratch(int64_t bytes) { return *Buffer::Allocate(bytes, "test"); }

// A weight as its kernels read it: rows, or groups of packed ones.
struct Held {
  const std::byte* data = nullptr;
  int64_t row_bytes = 0;
  int64_t unit_rows = kMatmulTileRows;  // ranges of rows are made of
  FewTokensKernel few;
  Kernel<PanelFunction> panels;
  Buffer packed;
};
Held HeldAs(bool packed, DType dtype, const Weights& w) {
  const MatmulKernels& kernels = test::Kernels().matmul;
  if (!packed) {
    return {w.data(), w.row_bytes, kMatmulTileRows, kernels.Few(dtype), kernels.Panels(dtype), {}};
  }
  const PackedWeightKernels& of = kernels.Packed(dtype);
  const int64_t groups = (w.rows + kPackedRows - 1) / kPackedRows;
  const int64_t row_bytes = CeilDiv(w.cols, of.unit_cols) * of.unit_bytes;
  Held held{nullptr, row_bytes, kPackedRows,
            of.few,  of.panels, Scratch(groups * kPackedRows * row_bytes)};
  std::memset(held.packed.data(), 0xFF, static_cast<size_t>(held.packed.size()));  // NaN
  const PackWeightArgs args{w.data(), w.row_bytes, w.rows, w.cols, held.packed.data()};
  of.pack.run(args, 0, groups / 2);
  of.pack.run(args, groups / 2, groups);
  held.data = held.packed.data();
  return held;
}

struct Case {
  DType dtype = DType::kF32;
  int64_t rows = 0, cols = 0, tokens = 0;
  bool has_bias = false;
  bool packed = false;
};

void ExpectFew(const Case& c) {
  SCOPED_TRACE(testing::Message() << NameOf(c.dtype) << (c.packed ? " packed " : " ") << c.rows
                                  << "x" << c.cols << ", " << c.tokens << " tokens");
  const MatmulKernels& kernels = test::Kernels().matmul;
  const Weights w = RandomWeights(c.dtype, c.rows, c.cols, 7);
  const Held held = HeldAs(c.packed, c.dtype, w);
  const FewTokensKernel& kernel = held.few;
  const std::vector<float> x = Floats(c.tokens * c.cols, 3, 2.0f);
  const std::vector<float> bias = Floats(c.rows, 5);
  const int64_t bytes = ActivationRowBytes(kernel.form, c.cols);
  const Buffer packed = Scratch(bytes * c.tokens);
  for (int64_t t = 0; t < c.tokens; ++t) {
    kernels.Pack(kernel.form).run(x.data() + t * c.cols, c.cols, packed.data() + t * bytes);
  }
  std::vector<float> y(At(c.tokens * c.rows), kUntouched);
  NarrowMatmulArgs args{held.data,     held.row_bytes, c.cols,   c.has_bias ? bias.data() : nullptr,
                        packed.data(), bytes,          c.tokens, y.data(),
                        c.rows};
  const int64_t middle = c.rows / 2 / held.unit_rows * held.unit_rows;
  kernel.matmul.run(args, 0, middle);
  for (int64_t t = 0; t < c.tokens; ++t) {
    for (int64_t r = middle; r < c.rows; ++r) ASSERT_EQ(y[At(t * c.rows + r)], kUntouched);
  }
  kernel.matmul.run(args, middle, c.rows);
  const auto rows = Rows(w, false);
  for (int64_t t = 0; t < c.tokens; ++t) {
    const float* row = x.data() + t * c.cols;
    const std::vector<double> rounded = kernel.form == ActivationForm::kBf16
                                            ? Bf16Rounded(row, c.cols)
                                            : IntegerRounded(row, c.cols);
    for (int64_t r = 0; r < c.rows; ++r) {
      const Expected e = Dot(rows[At(r)], rounded);
      const double b = c.has_bias ? D(bias[At(r)]) : 0.0;
      ASSERT_NEAR(D(y[At(t * c.rows + r)]), e.value + b,
                  kTolerance * (e.magnitude + std::abs(b)) + 1e-12)
          << "token " << t << " row " << r;
    }
  }
}

void ExpectPanels(const Case& c) {
  SCOPED_TRACE(testing::Message() << NameOf(c.dtype) << (c.packed ? " packed " : " ") << c.rows
                                  << "x" << c.cols << ", " << c.tokens << " tokens");
  const MatmulKernels& kernels = test::Kernels().matmul;
  const Weights w = RandomWeights(c.dtype, c.rows, c.cols, 11);
  const Held held = HeldAs(c.packed, c.dtype, w);
  const std::vector<float> x = Floats(c.tokens * c.cols, 13, 2.0f);
  const std::vector<float> bias = Floats(c.rows, 17);
  const TokenBlocks& form = kernels.blocks;
  const int64_t bytes = form.Bytes(c.cols);
  const int64_t count = (c.tokens + form.tokens - 1) / form.tokens;
  const Buffer blocks = Scratch(bytes * count);
  const Buffer panel = Scratch(PanelBytes(c.cols));
  for (int64_t b = 0; b < count; ++b) {
    const int64_t t = b * form.tokens;
    form.pack.run(x.data() + t * c.cols, c.cols, std::min(form.tokens, c.tokens - t), c.cols,
                  blocks.data() + b * bytes);
  }
  std::vector<float> y(At(c.tokens * c.rows), kUntouched);
  const PanelArgs args{
      held.data,     held.row_bytes, c.rows,   c.cols, c.has_bias ? bias.data() : nullptr,
      blocks.data(), c.tokens,       y.data(), c.rows};
  const int64_t middle = c.tokens / 2 / form.tokens * form.tokens;
  for (int64_t row = 0; row < c.rows; row += kPanelRows) {
    if (middle > 0) held.panels.run(args, row, 0, middle, panel.data());
    held.panels.run(args, row, middle, c.tokens, panel.data());
  }
  const auto rows = Rows(w, true);
  for (int64_t t = 0; t < c.tokens; ++t) {
    const std::vector<double> rounded = Bf16Rounded(x.data() + t * c.cols, c.cols);
    for (int64_t r = 0; r < c.rows; ++r) {
      const Expected e = Dot(rows[At(r)], rounded);
      const double b = c.has_bias ? D(bias[At(r)]) : 0.0;
      ASSERT_NEAR(D(y[At(t * c.rows + r)]), e.value + b,
                  kTolerance * (e.magnitude + std::abs(b)) + 1e-12)
          << "token " << t << " row " << r;
    }
  }
}

// What the table has: dtypes as stored, and packed.
std::vector<std::pair<DType, bool>> Forms() {
  const MatmulKernels& kernels = test::Kernels().matmul;
  std::vector<std::pair<DType, bool>> forms;
  for (const DType dtype : test::kFloatDTypes) {
    if (kernels.Few(dtype).matmul.run != nullptr || kernels.Panels(dtype).run != nullptr) {
      forms.emplace_back(dtype, false);
    }
    if (kernels.Packed(dtype).pack.run != nullptr) forms.emplace_back(dtype, true);
  }
  return forms;
}

TEST(NarrowMatmul, FewTokens) {
  for (const auto& [dtype, packed] : Forms()) {
    if (!packed && test::Kernels().matmul.Few(dtype).matmul.run == nullptr) continue;
    const int64_t block = std::max<int64_t>(1, InfoOf(dtype).block_elements);
    for (const int64_t cols : {1, 31, 32, 33, 64, 95, 96, 256, 576, 1536, 2048, 2112}) {
      if (cols % block != 0) continue;
      for (const int64_t rows : {1, 3, 4, 5, 8, 16, 23, 50}) {
        for (const int64_t tokens : {1, 2, 3, 5}) {
          ExpectFew({dtype, rows, cols, tokens, rows % 2 == 0, packed});
        }
      }
    }
  }
}

TEST(NarrowMatmul, ManyTokens) {
  for (const auto& [dtype, packed] : Forms()) {
    const int64_t block = std::max<int64_t>(1, InfoOf(dtype).block_elements);
    for (const int64_t cols : {1, 2, 31, 32, 33, 96, 256, 512, 608, 2048 + 256, 2048 + 5}) {
      if (cols % block != 0) continue;
      for (const int64_t rows : {1, 15, 64, 65, 100}) {
        for (const int64_t tokens : {1, 5, 6, 9, 16, 33, 50}) {
          ExpectPanels({dtype, rows, cols, tokens, rows % 2 == 1, packed});
        }
      }
    }
  }
}

// A number that is none stays none, whatever it is rounded to.
TEST(NarrowMatmul, NanReachesEveryResult) {
  const MatmulKernels& kernels = test::Kernels().matmul;
  for (const auto& [dtype, packed_weight] : Forms()) {
    if (!packed_weight && kernels.Few(dtype).matmul.run == nullptr) continue;
    constexpr int64_t kCols = 512, kRows = 5;
    const Weights w = RandomWeights(dtype, kRows, kCols, 23);
    const Held held = HeldAs(packed_weight, dtype, w);
    const FewTokensKernel& kernel = held.few;
    std::vector<float> x = Floats(kCols, 3, 2.0f);
    x[77] = NAN;
    const Buffer packed = Scratch(ActivationRowBytes(kernel.form, kCols));
    kernels.Pack(kernel.form).run(x.data(), kCols, packed.data());
    std::vector<float> y(At(kRows));
    kernel.matmul.run(
        {held.data, held.row_bytes, kCols, nullptr, packed.data(), 0, 1, y.data(), kRows}, 0,
        kRows);
    for (const float v : y) EXPECT_TRUE(std::isnan(v)) << NameOf(dtype);
  }
}

// What selection relies on: the best table has all of them, each with what it needs.
TEST(NarrowMatmul, EveryKernelHasItsPacking) {
  const MatmulKernels& kernels = test::Kernels().matmul;
  for (const DType dtype : test::kFloatDTypes) {
    const FewTokensKernel& few = kernels.Few(dtype);
    if (few.matmul.run != nullptr) EXPECT_NE(kernels.Pack(few.form).run, nullptr);
    if (kernels.Panels(dtype).run != nullptr) EXPECT_NE(kernels.blocks.pack.run, nullptr);
    const PackedWeightKernels& packed = kernels.Packed(dtype);
    if (packed.pack.run == nullptr) continue;
    ASSERT_NE(packed.few.matmul.run, nullptr);
    EXPECT_NE(packed.panels.run, nullptr);
    EXPECT_NE(kernels.Pack(packed.few.form).run, nullptr);
  }
  if (test::TestIsa() < Isa::kAvx512Bf16Vnni) return;
  for (const DType dtype :
       {DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K}) {
    EXPECT_NE(kernels.Few(dtype).matmul.run, nullptr) << NameOf(dtype);
    EXPECT_NE(kernels.Panels(dtype).run, nullptr) << NameOf(dtype);
  }
  for (const DType dtype : {DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0, DType::kQ4_K}) {
    EXPECT_NE(kernels.Packed(dtype).pack.run, nullptr) << NameOf(dtype);
  }
}

}  // namespace
}  // namespace tenon
