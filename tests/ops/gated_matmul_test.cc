// The two products and their activation as one op are the two products, then the activation.
#include "tenon/ops/gated_matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/packed_matrices.h"
#include "tenon/ops/activation.h"

namespace tenon {
namespace {

using test::Floats;
using test::OpRunner;
using test::OverTeams;
using test::RandomWeights;
using test::RefTo;
using test::Weights;

void ExpectTheSame(const std::vector<MatrixRef>& refs, int64_t num_tokens) {
  const std::span<const MatrixRef, 2> gate_up(refs.data(), 2);
  const int64_t rows = refs[0].rows;
  const int64_t cols = refs[0].cols;
  const std::vector<float> x = Floats(num_tokens * cols, 3);
  const auto results = OverTeams([&](OpRunner& run) {
    const Value input = run.Input(Shape{num_tokens, cols}, x);
    const Value both = Matmul(run.tape(), refs, input);
    return std::vector{GatedMatmul(run.tape(), Activation::kSilu, gate_up, input),
                       GatedActivate(run.tape(), Activation::kSilu, both.Slice(1, 0, rows),
                                     both.Slice(1, rows, 2 * rows))};
  });
  ASSERT_EQ(results[0].size(), results[1].size());
  for (size_t i = 0; i < results[0].size(); ++i) {
    // Vectors of other lengths may take another path through the activation.
    ASSERT_NEAR(results[0][i], results[1][i], 1e-6f * (1 + std::abs(results[1][i]))) << "at " << i;
  }
}

TEST(GatedMatmul, IsTheProductsAndTheActivation) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ4_1, DType::kQ8_0}) {
    for (const int64_t rows : {1, 70, 300}) {
      const Weights gate = RandomWeights(dtype, rows, 96, 1);
      const Weights up = RandomWeights(dtype, rows, 96, 2);
      const std::vector<float> bias = Floats(rows, 5);
      for (const Compute compute : {Compute::kFp32, Compute::kBf16}) {
        std::vector<MatrixRef> refs = {RefTo(gate, bias.data()), RefTo(up)};
        for (MatrixRef& ref : refs) ref.compute = compute;
        for (const int64_t num_tokens : {0, 1, 3, 8, 9, 40, 200}) {
          SCOPED_TRACE(testing::Message() << NameOf(dtype) << ", " << NameOf(compute) << ", "
                                          << rows << " rows, " << num_tokens << " tokens");
          ExpectTheSame(refs, num_tokens);
        }
      }
    }
  }
}

TEST(GatedMatmul, OfPackedWeights) {
  for (const DType dtype : {DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    if (!CanPack(test::Kernels(), dtype)) continue;
    const Weights stored[] = {RandomWeights(dtype, 150, 96, 1), RandomWeights(dtype, 150, 96, 2)};
    test::PackedMatrices packed;
    std::vector<MatrixRef> refs;
    for (const Weights& w : stored) {
      MatrixRef rows = RefTo(w);
      rows.compute = Compute::kBf16;
      refs.push_back(packed.Of(rows));
    }
    for (const int64_t num_tokens : {1, 8, 33}) {
      SCOPED_TRACE(testing::Message() << NameOf(dtype) << ", " << num_tokens << " tokens");
      ExpectTheSame(refs, num_tokens);
    }
  }
}

// Held differently, they are two products.
TEST(GatedMatmul, OfTwoDTypes) {
  const Weights gate = RandomWeights(DType::kQ4_1, 20, 96, 1);
  const Weights up = RandomWeights(DType::kBF16, 20, 96, 2);
  std::vector<MatrixRef> refs = {RefTo(gate), RefTo(up)};
  for (MatrixRef& ref : refs) ref.compute = Compute::kBf16;
  for (const int64_t num_tokens : {1, 33}) ExpectTheSame(refs, num_tokens);
}

}  // namespace
}  // namespace tenon
