#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/random_data.h"
#include "tenon/kernels/table.h"

namespace tenon {
namespace {

using test::At;
using test::D;

struct Routed {
  std::vector<int32_t> chosen;
  std::vector<float> weights;
};

Routed Route(const RouteKernelArgs& args, const std::vector<float>& logits) {
  Routed result{std::vector<int32_t>(At(args.top_k)), std::vector<float>(At(args.top_k))};
  std::vector<float> scratch(At(RouteScratchFloats(args.experts, args.groups)));
  test::Kernels().moe.route.run(args, logits.data(), result.chosen.data(), result.weights.data(),
                                scratch.data());
  return result;
}

RouteKernelArgs Args(int32_t experts, int32_t top_k) {
  RouteKernelArgs args;
  args.experts = experts;
  args.top_k = top_k;
  return args;
}

std::vector<double> SoftmaxOf(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += std::exp(v);
  std::vector<double> y;
  for (const double v : x) y.push_back(std::exp(v) / sum);
  return y;
}

// Indices by descending score, the lower index first among equals.
std::vector<int32_t> Order(const std::vector<double>& scores) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return scores[At(a)] > scores[At(b)]; });
  return order;
}

void MaskGroups(const RouteKernelArgs& a, std::vector<double>& choice) {
  const auto size = static_cast<size_t>(a.experts / a.groups);
  std::vector<double> group_scores;
  for (size_t g = 0; g < At(a.groups); ++g) {
    std::vector<double> members(choice.begin() + static_cast<std::ptrdiff_t>(g * size),
                                choice.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::sort(members.rbegin(), members.rend());
    group_scores.push_back(members[0] + (a.group_score_top2 && size > 1 ? members[1] : 0));
  }
  const std::vector<int32_t> order = Order(group_scores);
  for (size_t i = At(a.kept_groups); i < order.size(); ++i) {
    for (size_t e = 0; e < size; ++e) choice[At(order[i]) * size + e] = D(a.masked_score);
  }
}

// kernels.md section 7.6, by sorting and in double.
void ExpectRouted(const RouteKernelArgs& a, const std::vector<float>& logits) {
  std::vector<double> scores(logits.begin(), logits.end());
  if (a.sigmoid && !a.score_chosen) {
    for (double& s : scores) s = 1 / (1 + std::exp(-s));
  } else if (!a.score_chosen) {
    scores = SoftmaxOf(scores);
  }
  std::vector<double> choice = scores;
  for (size_t e = 0; e < choice.size(); ++e) {
    if (a.choice_bias != nullptr) choice[e] += D(a.choice_bias[e]);
  }
  if (a.kept_groups < a.groups) MaskGroups(a, choice);
  std::vector<int32_t> chosen = Order(choice);
  chosen.resize(At(a.top_k));
  std::vector<double> weights;
  for (const int32_t e : chosen) weights.push_back(scores[At(e)]);
  if (a.score_chosen && a.sigmoid) {
    for (double& w : weights) w = 1 / (1 + std::exp(-w));
  } else if (a.score_chosen) {
    weights = SoftmaxOf(weights);
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), D(a.renormalise_eps));
  const Routed got = Route(a, logits);
  RC_ASSERT(got.chosen == chosen);
  for (size_t k = 0; k < weights.size(); ++k) {
    const double expected = weights[k] / (a.renormalise ? sum : 1.0) * D(a.scale);
    RC_ASSERT(std::abs(D(got.weights[k]) - expected) <= 1e-6 * (1 + std::abs(expected)));
  }
}

// Logits and biases on a coarse grid, so that ties are common. All are dyadic: what ties in exact
// arithmetic ties in fp32 too. The offset keeps s(x) + s(-x) = 1 from making ties that rounding
// breaks.
TEST(RouteKernel, EqualsSorting) {
  EXPECT_TRUE(rc::check([] {
    RouteKernelArgs a;
    a.groups = *rc::gen::element(1, 1, 2, 4);
    a.experts = a.groups * *rc::gen::inRange(1, 9);
    a.top_k = *rc::gen::inRange(1, a.experts + 1);
    a.kept_groups = *rc::gen::inRange(1, a.groups + 1);
    a.sigmoid = *rc::gen::arbitrary<bool>();
    a.score_chosen = *rc::gen::inRange(0, 4) == 0;
    a.renormalise = *rc::gen::arbitrary<bool>();
    a.renormalise_eps = *rc::gen::element(0.0f, 1e-20f, 0.5f);
    a.group_score_top2 = *rc::gen::arbitrary<bool>();
    a.masked_score = *rc::gen::element(0.0f, -INFINITY);
    a.scale = *rc::gen::element(1.0f, 2.5f);
    const auto grid = *rc::gen::container<std::vector<int>>(At(a.experts), rc::gen::inRange(-9, 9));
    std::vector<float> logits;
    for (const int v : grid) logits.push_back(0.375f * static_cast<float>(v) + 0.125f);
    std::vector<float> bias(At(a.experts), -0.25f);
    bias[0] = 0.5f;
    if (*rc::gen::arbitrary<bool>()) a.choice_bias = bias.data();
    ExpectRouted(a, logits);
  }));
}

TEST(RouteKernel, TiesTakeTheLowerIndex) {
  EXPECT_EQ(Route(Args(4, 2), {1, 3, 3, 3}).chosen, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(Route(Args(4, 3), {0, 0, 0, 0}).chosen, (std::vector<int32_t>{0, 1, 2}));
  RouteKernelArgs grouped = Args(4, 1);
  grouped.groups = 2;
  EXPECT_EQ(Route(grouped, {1, 2, 2, 1}).chosen, (std::vector<int32_t>{1}));
}

// Softmax over all then renormalised equals the softmax of the chosen.
TEST(RouteKernel, WeightsByHand) {
  const std::vector<float> logits = {std::log(1.0f), std::log(4.0f), std::log(2.0f),
                                     std::log(1.0f)};
  const Routed plain = Route(Args(4, 2), logits);
  EXPECT_EQ(plain.chosen, (std::vector<int32_t>{1, 2}));
  EXPECT_FLOAT_EQ(plain.weights[0], 0.5f);
  EXPECT_FLOAT_EQ(plain.weights[1], 0.25f);
  RouteKernelArgs renormalised = Args(4, 2);
  renormalised.renormalise = true;
  renormalised.scale = 3;
  EXPECT_FLOAT_EQ(Route(renormalised, logits).weights[0], 2.0f);
  RouteKernelArgs chosen = Args(4, 2);
  chosen.score_chosen = true;
  EXPECT_FLOAT_EQ(Route(chosen, logits).weights[1], 1.0f / 3);
  // Scores of all would tie at 1 in fp32, and the lower index win.
  chosen.sigmoid = true;
  const Routed sure = Route(chosen, {20, 40, 30, 0});
  EXPECT_EQ(sure.chosen, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(sure.weights[1], 1.0f);
  EXPECT_FLOAT_EQ(Route(chosen, logits).weights[1], 2.0f / 3);
}

// The bias moves the choice and never the weight. When all kept choice scores are below zero,
// masking with 0 lets a masked expert win and masking with -infinity does not.
TEST(RouteKernel, BiasAndMaskedScore) {
  const std::vector<float> bias = {-2, -2, -3, -3};
  RouteKernelArgs a = Args(4, 2);
  a.sigmoid = true;
  a.choice_bias = bias.data();
  a.groups = 2;
  a.kept_groups = 1;
  a.group_score_top2 = true;
  const std::vector<float> logits = {0, 0, 0, 0};
  EXPECT_EQ(Route(a, logits).chosen, (std::vector<int32_t>{2, 3}));
  a.masked_score = -INFINITY;
  const Routed routed = Route(a, logits);
  EXPECT_EQ(routed.chosen, (std::vector<int32_t>{0, 1}));
  EXPECT_FLOAT_EQ(routed.weights[0], 0.5f);
}

TEST(RouteKernel, NanIsChosenSoThatItShows) {
  RouteKernelArgs a = Args(6, 2);
  a.sigmoid = true;
  const Routed one = Route(a, {5, 1, 2, NAN, 0, 0});
  EXPECT_EQ(one.chosen, (std::vector<int32_t>{3, 0}));
  EXPECT_TRUE(std::isnan(one.weights[0]));
  a.groups = 3;
  a.kept_groups = 1;
  a.group_score_top2 = true;
  EXPECT_EQ(Route(a, {5, 1, 2, NAN, 0, 0}).chosen, (std::vector<int32_t>{3, 2}));
  // All NaN: still experts of the layer, each once.
  const std::vector<float> all(6, NAN);
  EXPECT_EQ(Route(Args(6, 3), all).chosen, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(Route(a, all).chosen, (std::vector<int32_t>{0, 1}));
}

}  // namespace
}  // namespace tenon
