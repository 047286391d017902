#include "tenon/ops/moe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/op_runner.h"

namespace tenon {
namespace {

using test::At;
using test::D;
using test::Floats;
using test::OpRunner;
using test::OverTeams;
using test::Placement;
using test::RandomWeights;
using test::RefTo;
using test::Weights;

struct Experts {
  std::vector<Weights> gate, up, down;
  std::vector<float> bias;  // of every down matrix
  std::vector<MatrixRef> gate_refs, up_refs, down_refs;
  ExpertWeights refs;

  Experts(int count, int64_t hidden, int64_t intermediate, DType dtype) : bias(Floats(hidden, 99)) {
    for (uint32_t e = 0; e < static_cast<uint32_t>(count); ++e) {
      gate.push_back(RandomWeights(dtype, intermediate, hidden, 3 * e));
      up.push_back(RandomWeights(dtype, intermediate, hidden, 3 * e + 1));
      down.push_back(RandomWeights(dtype, hidden, intermediate, 3 * e + 2));
    }
    for (const Weights& w : gate) gate_refs.push_back(RefTo(w));
    for (const Weights& w : up) up_refs.push_back(RefTo(w));
    for (const Weights& w : down) down_refs.push_back(RefTo(w, bias.data()));
    refs = {gate_refs, up_refs, down_refs, Activation::kSilu};
  }

  // One expert on one row, in double.
  std::vector<double> Apply(size_t e, const float* x) const {
    std::vector<double> inner;
    for (int64_t r = 0; r < gate[e].rows; ++r) {
      double g = 0;
      double u = 0;
      for (int64_t c = 0; c < gate[e].cols; ++c) {
        g += gate[e].At(r, c) * D(x[c]);
        u += up[e].At(r, c) * D(x[c]);
      }
      inner.push_back(g / (1 + std::exp(-g)) * u);
    }
    std::vector<double> y;
    for (int64_t r = 0; r < down[e].rows; ++r) {
      double sum = D(bias[At(r)]);
      for (int64_t c = 0; c < down[e].cols; ++c) sum += down[e].At(r, c) * inner[At(c)];
      y.push_back(sum);
    }
    return y;
  }
};

struct Case {
  int experts = 4;
  int top_k = 2;
  int64_t num_tokens = 1;
  int64_t hidden = 32;
  int64_t intermediate = 64;
  DType dtype = DType::kF32;
};

// Routing through the op is checked by the kernel's test; here it must agree with what the op
// itself says it chose, and the sum over the chosen must be right.
void Check(const Case& c) {
  const Experts experts(c.experts, c.hidden, c.intermediate, c.dtype);
  RoutingSpec spec;
  spec.experts = c.experts;
  spec.top_k = c.top_k;
  spec.renormalise = true;
  const std::vector<float> logits = Floats(c.num_tokens * c.experts, 7, 3.0f);
  const std::vector<float> x = Floats(c.num_tokens * c.hidden, 8);
  const auto results = OverTeams([&](OpRunner& run) {
    const Routing routing = Route(
        run.tape(), spec, run.Input(Shape{c.num_tokens, c.experts}, logits, Placement::kSlice));
    const Value y = ApplyExperts(run.tape(), experts.refs, routing,
                                 run.Input(Shape{c.num_tokens, c.hidden}, x, Placement::kSlice));
    return std::vector{routing.experts, routing.weights, y};
  });
  for (int64_t t = 0; t < c.num_tokens; ++t) {
    std::vector<double> expected(At(c.hidden));
    double weight_sum = 0;
    float previous = std::numeric_limits<float>::infinity();
    for (int64_t k = 0; k < c.top_k; ++k) {
      const auto e = static_cast<size_t>(results[0][At(t * c.top_k + k)]);
      const float logit = logits[At(t * c.experts) + e];
      EXPECT_LE(logit, previous);
      previous = logit;
      const double weight = D(results[1][At(t * c.top_k + k)]);
      weight_sum += weight;
      const std::vector<double> part = experts.Apply(e, x.data() + t * c.hidden);
      for (size_t i = 0; i < expected.size(); ++i) expected[i] += weight * part[i];
    }
    EXPECT_NEAR(weight_sum, 1, 1e-6);
    for (size_t i = 0; i < expected.size(); ++i) {
      const float got = results[2][At(t * c.hidden) + i];
      ASSERT_NEAR(D(got), expected[i], 1e-5 * (1 + std::abs(expected[i])));
    }
  }
  EXPECT_EQ(results[2].size(), x.size());
}

TEST(Moe, SizesAndDTypes) {
  Check({.num_tokens = 0});
  Check({.num_tokens = 1});
  Check({.num_tokens = 3, .dtype = DType::kQ4_0});
  Check({.num_tokens = 2, .hidden = 96, .intermediate = 32, .dtype = DType::kQ8_0});
  Check({.experts = 1, .top_k = 1, .num_tokens = 5, .hidden = 7, .intermediate = 9});
  Check({.experts = 16, .top_k = 16, .num_tokens = 2, .hidden = 17, .intermediate = 33});
  // More tokens of one expert than are gathered at once.
  Check({.experts = 2, .top_k = 2, .num_tokens = 29, .hidden = 31, .intermediate = 15});
  Check({.experts = 5, .top_k = 2, .num_tokens = 40, .hidden = 16, .intermediate = 16});
}

// Every field of the spec reaches the kernel.
TEST(Moe, SpecReachesTheKernel) {
  const std::vector<float> logits = {0.1f, 0.9f, 0.3f, 0.8f, 2.0f, -1.0f, 0.0f, 0.0f};
  const auto route = [&](const RoutingSpec& spec) {
    return OverTeams([&](OpRunner& run) {
      const Routing routing = Route(run.tape(), spec, run.Input(Shape{1, 8}, logits));
      return std::vector{routing.experts, routing.weights};
    });
  };
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const std::vector<float> bias = {5, 0, 4, 0, 0, 0, 0, 0};
  RoutingSpec spec;
  spec.experts = 8;
  spec.top_k = 2;
  spec.scoring = RoutingSpec::Scoring::kSigmoid;
  EXPECT_EQ(route(spec)[0], (std::vector<float>{4, 1}));
  EXPECT_NEAR(D(route(spec)[1][0]), sigmoid(2), 1e-6);
  spec.groups = 4;  // {0,1} {2,3} {4,5} {6,7}
  spec.kept_groups = 1;
  spec.masked_score = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(route(spec)[0], (std::vector<float>{4, 5}));  // the group of the best one
  spec.group_score = RoutingSpec::GroupScore::kSumOfTop2;
  EXPECT_EQ(route(spec)[0], (std::vector<float>{3, 2}));  // the group of the best pair
  spec.choice_bias = bias.data();
  EXPECT_EQ(route(spec)[0], (std::vector<float>{0, 1}));
  spec.scale = 2;
  EXPECT_NEAR(D(route(spec)[1][1]), 2 * sigmoid(0.9), 1e-6);
  spec.renormalise = true;
  spec.renormalise_eps = 1;
  EXPECT_NEAR(D(route(spec)[1][1]), 2 * sigmoid(0.9) / (sigmoid(0.1) + sigmoid(0.9) + 1), 1e-6);
  RoutingSpec chosen;
  chosen.experts = 8;
  chosen.top_k = 2;
  chosen.score_chosen = true;
  EXPECT_NEAR(D(route(chosen)[1][0]), std::exp(2.0) / (std::exp(2.0) + std::exp(0.9)), 1e-6);
  chosen.scoring = RoutingSpec::Scoring::kSigmoid;
  EXPECT_NEAR(D(route(chosen)[1][1]), sigmoid(0.9), 1e-6);
}

TEST(Moe, NanTokenStaysInItsRow) {
  const Experts experts(4, 16, 16, DType::kF32);
  RoutingSpec spec;
  spec.experts = 4;
  spec.top_k = 2;
  std::vector<float> logits = Floats(3 * 4, 1);
  std::vector<float> x = Floats(3 * 16, 2);
  const auto apply = [&] {
    return OverTeams([&](OpRunner& run) {
      const Routing routing = Route(run.tape(), spec, run.Input(Shape{3, 4}, logits));
      return std::vector{
          ApplyExperts(run.tape(), experts.refs, routing, run.Input(Shape{3, 16}, x))};
    })[0];
  };
  const std::vector<float> clean = apply();
  for (size_t i = 4; i < 8; ++i) logits[i] = NAN;
  for (size_t i = 16; i < 32; ++i) x[i] = NAN;
  const std::vector<float> y = apply();
  for (size_t i = 0; i < y.size(); ++i) {
    if (i / 16 == 1) {
      EXPECT_TRUE(std::isnan(y[i]));
    } else {
      EXPECT_EQ(y[i], clean[i]);
    }
  }
}

}  // namespace
}  // namespace tenon
