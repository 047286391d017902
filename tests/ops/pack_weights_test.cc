// Packed weights: products with them are those with the rows they were made from, whatever is
// beside them; sizes. Tables without packed forms have nothing to test here.
#include "tenon/ops/pack_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/packed_matrices.h"

namespace tenon {
namespace {

using test::At;
using test::D;
using test::Floats;
using test::OpRunner;
using test::OverTeams;
using test::RandomWeights;
using test::RefTo;
using test::Weights;

std::vector<DType> PackedDTypes() {
  std::vector<DType> dtypes;
  for (const DType dtype : test::kFloatDTypes) {
    if (CanPack(test::Kernels(), dtype)) dtypes.push_back(dtype);
  }
  return dtypes;
}

MatrixRef Narrow(MatrixRef matrix) {
  matrix.compute = Compute::kBf16;
  return matrix;
}

std::vector<float> Product(const std::vector<MatrixRef>& refs, int64_t num_tokens) {
  const int64_t cols = refs[0].cols;
  const std::vector<float> x = Floats(num_tokens * cols, 77);
  return OverTeams([&](OpRunner& run) {
    return std::vector{Matmul(run.tape(), refs, run.Input(Shape{num_tokens, cols}, x))};
  })[0];
}

TEST(PackWeights, ProductsAreThoseOfTheRows) {
  for (const DType dtype : PackedDTypes()) {
    for (const int64_t cols : {96, 256, 768}) {
      if (cols % InfoOf(dtype).block_elements != 0) continue;
      const Weights a = RandomWeights(dtype, 70, cols, 1);
      const Weights b = RandomWeights(dtype, 1, cols, 2);
      const Weights c = RandomWeights(DType::kQ8_0, 33, cols, 3);
      const Weights d = RandomWeights(dtype, 300, cols, 4);
      const std::vector<float> bias = Floats(70, 5);
      const std::vector<MatrixRef> rows = {Narrow(RefTo(a, bias.data())), Narrow(RefTo(b)),
                                           Narrow(RefTo(c)), Narrow(RefTo(d))};
      test::PackedMatrices packed;
      // One of them stays as it is.
      const std::vector<MatrixRef> mixed = {packed.Of(rows[0], 2), packed.Of(rows[1]), rows[2],
                                            packed.Of(rows[3], 3)};
      for (const int64_t num_tokens : {1, 2, 7, 8, 9, 40}) {
        SCOPED_TRACE(testing::Message()
                     << NameOf(dtype) << " " << cols << " columns, " << num_tokens << " tokens");
        const std::vector<float> expected = Product(rows, num_tokens);
        const std::vector<float> got = Product(mixed, num_tokens);
        ASSERT_EQ(got.size(), expected.size());
        double top = 0;
        for (const float y : expected) top = std::max(top, std::abs(D(y)));
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_NEAR(D(got[i]), D(expected[i]), 2e-6 * top) << "at " << i;
        }
      }
    }
  }
}

// Rows are filled up to groups of 16, columns to what the kernels read at a time.
TEST(PackWeights, Sizes) {
  for (const DType dtype : PackedDTypes()) {
    const MatrixRef whole = PackedShapeOf(test::Kernels(), RefTo(RandomWeights(dtype, 32, 256, 1)));
    // Scales of 6 bits have a byte each.
    const int64_t row_bytes = RowBytes(dtype, 256) + (dtype == DType::kQ4_K ? 4 : 0);
    EXPECT_EQ(PackedBytes(whole), 32 * row_bytes) << NameOf(dtype);
    if (96 % InfoOf(dtype).block_elements != 0) continue;
    const MatrixRef odd = PackedShapeOf(test::Kernels(), RefTo(RandomWeights(dtype, 33, 96, 1)));
    EXPECT_GE(PackedBytes(odd), 48 * RowBytes(dtype, 96)) << NameOf(dtype);
    EXPECT_LE(PackedBytes(odd), 48 * RowBytes(dtype, 128)) << NameOf(dtype);
    EXPECT_EQ(odd.rows, 33);
    EXPECT_EQ(odd.form, HeldForm::kPacked);
  }
}

}  // namespace
}  // namespace tenon
