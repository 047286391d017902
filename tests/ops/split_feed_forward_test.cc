// A gated MLP in parts: each part's result is that of its own stretch of products, whatever the
// number of threads.
#include "tenon/ops/split_feed_forward.h"

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

// Parts side by side: gate and up of each, then its down.
struct Mlp {
  std::vector<std::vector<MatrixRef>> gate_up;  // [parts][2]
  std::vector<MatrixRef> down;                  // [parts]
  std::vector<FeedForwardPart> Parts() const {
    std::vector<FeedForwardPart> parts;
    for (size_t p = 0; p < down.size(); ++p) parts.push_back({gate_up[p].data(), &down[p]});
    return parts;
  }
};

void ExpectThePartsOf(const Mlp& mlp) {
  const int64_t cols = mlp.gate_up[0][0].cols;
  const int64_t rows = mlp.gate_up[0][0].rows;
  const std::vector<float> x = Floats(cols, 3);
  const std::vector<FeedForwardPart> parts = mlp.Parts();
  const auto results = OverTeams([&](OpRunner& run) {
    const Value input = run.Input(Shape{1, cols}, x);
    std::vector<Value> values = {SplitFeedForward(run.tape(), Activation::kSilu, parts, input)};
    for (size_t p = 0; p < parts.size(); ++p) {
      const Value both = Matmul(run.tape(), mlp.gate_up[p], input);
      const Value gated = GatedActivate(run.tape(), Activation::kSilu, both.Slice(1, 0, rows),
                                        both.Slice(1, rows, 2 * rows));
      values.push_back(Matmul(run.tape(), {&mlp.down[p], 1}, gated));
    }
    return values;
  });
  const size_t width = results[1].size();
  ASSERT_EQ(results[0].size(), width * parts.size());
  for (size_t p = 0; p < parts.size(); ++p) {
    for (size_t i = 0; i < width; ++i) {
      const float want = results[p + 1][i];
      ASSERT_NEAR(results[0][p * width + i], want, 2e-4f * (1 + std::abs(want)))
          << "part " << p << " at " << i;
    }
  }
}

class SplitTest : public testing::Test {
 protected:
  const Weights& Make(DType dtype, int64_t rows, int64_t cols, int seed) {
    return weights_.emplace_back(RandomWeights(dtype, rows, cols, seed));
  }
  MatrixRef Narrow(const Weights& w, bool packs) {
    MatrixRef ref = RefTo(w);
    ref.compute = Compute::kBf16;
    return packs ? packed_.Of(ref) : ref;
  }
  // hidden 256 and 40, `part` of the intermediate width each.
  Mlp MlpOf(DType dtype, bool packs, int64_t part, int parts) {
    Mlp mlp;
    for (int p = 0; p < parts; ++p) {
      mlp.gate_up.push_back({Narrow(Make(dtype, part, 256, 2 * p), packs),
                             Narrow(Make(dtype, part, 256, 2 * p + 1), packs)});
      mlp.down.push_back(Narrow(Make(dtype, 40, part, 10 + p), packs));
    }
    return mlp;
  }
  std::deque<Weights> weights_;
  test::PackedMatrices packed_;
};

TEST_F(SplitTest, PartsAreTheirStretchesOfTheProducts) {
  int split = 0;
  for (const DType dtype : test::kFloatDTypes) {
    for (const bool packs : {false, true}) {
      if (packs && !CanPack(test::Kernels(), dtype)) continue;
      for (const int parts : {1, 2, 4}) {
        const Mlp mlp = MlpOf(dtype, packs, 256, parts);
        if (!CanSplitFeedForward(test::Kernels(), mlp.Parts())) continue;
        SCOPED_TRACE(testing::Message() << NameOf(dtype) << (packs ? " packed " : " ") << parts);
        ExpectThePartsOf(mlp);
        ++split;
      }
    }
  }
  EXPECT_EQ(split > 0, HasNarrowMatmuls(test::Kernels()));
}

TEST_F(SplitTest, WhatCannotBeTakenInParts) {
  const KernelTable& kernels = test::Kernels();
  const Mlp fine = MlpOf(DType::kBF16, false, 64, 2);
  EXPECT_EQ(CanSplitFeedForward(kernels, fine.Parts()), HasNarrowMatmuls(kernels));
  Mlp exact = fine;
  exact.gate_up[0][0].compute = exact.gate_up[0][1].compute = Compute::kFp32;
  EXPECT_FALSE(CanSplitFeedForward(kernels, exact.Parts()));
  Mlp mixed = fine;
  mixed.gate_up[1][1] = Narrow(Make(DType::kQ8_0, 64, 256, 3), false);
  EXPECT_FALSE(CanSplitFeedForward(kernels, mixed.Parts()));
  const float bias[40] = {};
  Mlp biased = fine;
  biased.down[1].bias = bias;
  EXPECT_FALSE(CanSplitFeedForward(kernels, biased.Parts()));
  EXPECT_FALSE(CanSplitFeedForward(kernels, {}));
}

}  // namespace
}  // namespace tenon
