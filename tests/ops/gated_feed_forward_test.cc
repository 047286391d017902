// The products and their activation as one op are the two products, the activation, the last
// product.
#include "tenon/ops/gated_feed_forward.h"

#include <gtest/gtest.h>

#include <algorithm>
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

// gate, up, down
void ExpectTheSame(const std::vector<MatrixRef>& refs, int64_t num_tokens) {
  const std::span<const MatrixRef, 2> gate_up(refs.data(), 2);
  const std::span<const MatrixRef, 1> down(refs.data() + 2, 1);
  const int64_t rows = refs[0].rows;
  const int64_t cols = refs[0].cols;
  const std::vector<float> x = Floats(num_tokens * cols, 3);
  const auto results = OverTeams([&](OpRunner& run) {
    const Value input = run.Input(Shape{num_tokens, cols}, x);
    const Value both = Matmul(run.tape(), gate_up, input);
    const Value gated = GatedActivate(run.tape(), Activation::kSilu, both.Slice(1, 0, rows),
                                      both.Slice(1, rows, 2 * rows));
    return std::vector{GatedFeedForward(run.tape(), Activation::kSilu, {gate_up, down}, input),
                       Matmul(run.tape(), down, gated)};
  });
  ASSERT_EQ(results[0].size(), results[1].size());
  for (size_t i = 0; i < results[0].size(); ++i) {
    // Vectors of other lengths may take another path through the activation, and what differs in
    // the last bit may be rounded differently.
    ASSERT_NEAR(results[0][i], results[1][i], 2e-4f * (1 + std::abs(results[1][i]))) << "at " << i;
  }
}

std::vector<MatrixRef> Narrow(std::vector<MatrixRef> refs) {
  for (MatrixRef& ref : refs) ref.compute = Compute::kBf16;
  return refs;
}

TEST(GatedFeedForward, IsTheProductsAndTheActivation) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ4_1, DType::kQ8_0}) {
    for (const int64_t rows : {32, 96, 320}) {
      const Weights gate = RandomWeights(dtype, rows, 96, 1);
      const Weights up = RandomWeights(dtype, rows, 96, 2);
      const Weights down = RandomWeights(dtype, 70, rows, 4);
      const std::vector<float> bias = Floats(std::max<int64_t>(rows, 70), 5);
      const std::vector<MatrixRef> exact = {RefTo(gate, bias.data()), RefTo(up),
                                            RefTo(down, bias.data())};
      for (const auto& refs : {exact, Narrow(exact)}) {
        for (const int64_t num_tokens : {0, 1, 3, 8, 9, 40, 200}) {
          SCOPED_TRACE(testing::Message() << NameOf(dtype) << ", " << NameOf(refs[0].compute)
                                          << ", " << rows << " rows, " << num_tokens << " tokens");
          ExpectTheSame(refs, num_tokens);
        }
      }
    }
  }
}

// Rows of weights that are not blocks may end anywhere.
TEST(GatedFeedForward, OfOddWidths) {
  for (const int64_t rows : {1, 33, 70}) {
    const Weights gate = RandomWeights(DType::kBF16, rows, 50, 1);
    const Weights up = RandomWeights(DType::kBF16, rows, 50, 2);
    const Weights down = RandomWeights(DType::kBF16, 7, rows, 4);
    for (const int64_t num_tokens : {1, 9, 65}) {
      SCOPED_TRACE(testing::Message() << rows << " rows, " << num_tokens << " tokens");
      ExpectTheSame(Narrow({RefTo(gate), RefTo(up), RefTo(down)}), num_tokens);
    }
  }
}

TEST(GatedFeedForward, OfPackedWeights) {
  for (const DType dtype : test::kFloatDTypes) {
    if (!CanPack(test::Kernels(), dtype)) continue;
    const Weights stored[] = {RandomWeights(dtype, 256, 256, 1), RandomWeights(dtype, 256, 256, 2),
                              RandomWeights(dtype, 40, 256, 4)};
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

// Held or computed differently, they are products of their own.
TEST(GatedFeedForward, OfTwoKinds) {
  const Weights gate = RandomWeights(DType::kQ4_1, 32, 96, 1);
  const Weights up = RandomWeights(DType::kBF16, 32, 96, 2);
  const Weights down = RandomWeights(DType::kF32, 20, 32, 4);
  std::vector<MatrixRef> exact_down = Narrow({RefTo(up), RefTo(up), RefTo(down)});
  exact_down[2].compute = Compute::kFp32;
  for (const int64_t num_tokens : {1, 33}) {
    ExpectTheSame(Narrow({RefTo(gate), RefTo(up), RefTo(down)}), num_tokens);
    ExpectTheSame(exact_down, num_tokens);
  }
}

}  // namespace
}  // namespace tenon
