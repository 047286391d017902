// A tiny mixture of experts, from its tensors to its output, against brute force in double: every
// way of scoring, choosing and weighting.
#include "tenon/modules/moe.h"

#include <rapidcheck.h>

#include <algorithm>
#include <limits>

#include "modules/bench.h"

namespace tenon {
namespace {

using test::D;
using test::ExpectWords;
using test::Floats;
using test::ModuleBench;
using test::Recording;
using test::RowOf;
using test::Times;

constexpr int64_t kHidden = 6;
constexpr int64_t kIntermediate = 5;

MoeOptions Options(int experts, int top_k) {
  MoeOptions options;
  options.hidden = kHidden;
  options.intermediate = kIntermediate;
  options.routing.experts = experts;
  options.routing.top_k = top_k;
  options.gate = "w1";
  options.up = "w3";
  options.down = "w2";
  return options;
}

void PutTensors(ModuleBench& bench, const MoeOptions& options) {
  bench.Put("moe.gate.weight", {options.routing.experts, kHidden});
  if (options.has_choice_bias) {
    bench.Put("moe.gate.e_score_correction_bias", {options.routing.experts});
  }
  for (int e = 0; e < options.routing.experts; ++e) {
    const std::string prefix = "moe.experts." + std::to_string(e) + ".";
    bench.Put(prefix + "w1.weight", {kIntermediate, kHidden}, DType::kBF16);
    bench.Put(prefix + "w3.weight", {kIntermediate, kHidden});
    bench.Put(prefix + "w2.weight", {kHidden, kIntermediate}, DType::kF16);
    if (!options.expert_bias) continue;
    bench.Put(prefix + "w1.bias", {kIntermediate});
    bench.Put(prefix + "w3.bias", {kIntermediate}, DType::kBF16);
    bench.Put(prefix + "w2.bias", {kHidden});
  }
  if (options.router_bias) bench.Put("moe.gate.bias", {options.routing.experts});
}

std::vector<double> SoftmaxOf(std::vector<double> x) {
  const double top = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& v : x) sum += v = std::exp(v - top);
  for (double& v : x) v /= sum;
  return x;
}

// The best `count` of `scores`, and how far the last of them is ahead of the first that is not.
std::vector<size_t> BestOf(const std::vector<double>& scores, int count, double& margin) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  const auto n = static_cast<size_t>(count);
  if (n < order.size()) margin = std::min(margin, scores[order[n - 1]] - scores[order[n]]);
  order.resize(n);
  return order;
}

// Masks the experts of the groups that are not kept.
void MaskGroups(const RoutingSpec& spec, std::vector<double>& choice, double& margin) {
  const size_t size = choice.size() / static_cast<size_t>(spec.groups);
  std::vector<double> scores;
  for (size_t g = 0; g * size < choice.size(); ++g) {
    std::vector<double> group = {choice.begin() + static_cast<std::ptrdiff_t>(g * size),
                                 choice.begin() + static_cast<std::ptrdiff_t>((g + 1) * size)};
    std::sort(group.rbegin(), group.rend());
    const bool two = spec.group_score == RoutingSpec::GroupScore::kSumOfTop2 && size > 1;
    scores.push_back(two ? group[0] + group[1] : group[0]);
  }
  const std::vector<size_t> kept = BestOf(scores, spec.kept_groups, margin);
  for (size_t e = 0; e < choice.size(); ++e) {
    if (std::find(kept.begin(), kept.end(), e / size) == kept.end()) {
      choice[e] = D(spec.masked_score);
    }
  }
}

struct Expected {
  std::vector<double> y;
  double margin = std::numeric_limits<double>::infinity();  // of the closest decision
};

void AddTo(std::vector<double>& y, const std::vector<float>& bias) {
  for (size_t i = 0; i < y.size(); ++i) y[i] += D(bias[i]);
}

double Join(const GatedUnit& unit, double gate, double up) {
  const auto* clamped = std::get_if<ClampedSwiglu>(&unit);
  if (clamped == nullptr) return test::Silu(gate) * up;
  const double limit = D(clamped->limit);
  const double g = std::min(gate, limit);
  return (std::clamp(up, -limit, limit) + 1) * g / (1 + std::exp(-D(clamped->alpha) * g));
}

// down(join(gate x, up x)) of one expert.
std::vector<double> ApplyExpert(const ModuleBench& bench, const MoeOptions& options, size_t e,
                                const std::vector<double>& x) {
  const std::string prefix = "moe.experts." + std::to_string(e) + ".";
  std::vector<double> inner = Times(bench.Of(prefix + "w1.weight"), x);
  std::vector<double> up = Times(bench.Of(prefix + "w3.weight"), x);
  if (options.expert_bias) {
    AddTo(inner, bench.Of(prefix + "w1.bias"));
    AddTo(up, bench.Of(prefix + "w3.bias"));
  }
  for (size_t i = 0; i < inner.size(); ++i) inner[i] = Join(options.activation, inner[i], up[i]);
  std::vector<double> down = Times(bench.Of(prefix + "w2.weight"), inner);
  if (options.expert_bias) AddTo(down, bench.Of(prefix + "w2.bias"));
  return down;
}

Expected Apply(const ModuleBench& bench, const MoeOptions& options, const std::vector<double>& x) {
  const RoutingSpec& spec = options.routing;
  Expected expected{std::vector<double>(kHidden)};
  std::vector<double> logits = Times(bench.Of("moe.gate.weight"), x);
  if (options.router_bias) AddTo(logits, bench.Of("moe.gate.bias"));
  std::vector<double> scores = logits;
  if (!spec.score_chosen) {
    if (spec.scoring == RoutingSpec::Scoring::kSoftmax)
      scores = SoftmaxOf(logits);
    else
      for (double& s : scores) s = 1 / (1 + std::exp(-s));
  }
  std::vector<double> choice = scores;
  if (options.has_choice_bias) {
    const auto& bias = bench.Of("moe.gate.e_score_correction_bias");
    for (size_t e = 0; e < choice.size(); ++e) choice[e] += D(bias[e]);
  }
  if (spec.kept_groups < spec.groups) MaskGroups(spec, choice, expected.margin);
  const std::vector<size_t> chosen = BestOf(choice, spec.top_k, expected.margin);
  std::vector<double> weights;
  for (const size_t e : chosen) weights.push_back(scores[e]);
  if (spec.score_chosen && spec.scoring == RoutingSpec::Scoring::kSigmoid) {
    for (double& w : weights) w = 1 / (1 + std::exp(-w));
  } else if (spec.score_chosen) {
    weights = SoftmaxOf(weights);
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), D(spec.renormalise_eps));
  for (size_t k = 0; k < chosen.size(); ++k) {
    const double weight = weights[k] / (spec.renormalise ? sum : 1) * D(spec.scale);
    const bool weighs_input = options.weighs == ExpertWeights::Weighs::kInput;
    std::vector<double> in = x;
    for (double& v : in) v *= weighs_input ? weight : 1;
    const std::vector<double> y = ApplyExpert(bench, options, chosen[k], in);
    for (size_t i = 0; i < y.size(); ++i) expected.y[i] += (weighs_input ? 1 : weight) * y[i];
  }
  return expected;
}

// Rows that were compared: those whose choice is not a tie within rounding.
int Compare(const MoeOptions& options, int64_t tokens, uint32_t seed) {
  ModuleBench bench;
  PutTensors(bench, options);
  bench.Open();
  const Moe moe(bench.At("moe"), options);
  bench.Load();
  EXPECT_TRUE(bench.index().UnusedStored().empty());
  const std::vector<float> x = Floats(tokens * kHidden, seed, 2.0f);
  Recording recording(tokens);
  const std::vector<float> got = recording.Run(moe(recording.pass, recording.Input(x)));
  int compared = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    const auto row = static_cast<size_t>(t);
    const Expected expected = Apply(bench, options, RowOf(x, row, kHidden));
    if (expected.margin < 1e-5) continue;
    ++compared;
    for (size_t i = 0; i < kHidden; ++i) {
      EXPECT_NEAR(D(got[row * kHidden + i]), expected.y[i], 4e-5 + 2e-6 * std::abs(expected.y[i]))
          << "token " << t;
    }
  }
  return compared;
}

TEST(Moe, MixtralsWay) {
  MoeOptions options = Options(4, 2);
  options.routing.renormalise = true;
  EXPECT_GE(Compare(options, 8, 1), 7);
}

TEST(Moe, DeepSeekV3sWay) {
  MoeOptions options = Options(8, 3);
  options.has_choice_bias = true;
  options.routing.scoring = RoutingSpec::Scoring::kSigmoid;
  options.routing.renormalise = true;
  options.routing.renormalise_eps = 1e-20f;
  options.routing.scale = 2.5f;
  options.routing.groups = 4;
  options.routing.kept_groups = 2;
  options.routing.group_score = RoutingSpec::GroupScore::kSumOfTop2;
  options.routing.masked_score = -std::numeric_limits<float>::infinity();
  EXPECT_GE(Compare(options, 8, 2), 7);
}

TEST(Moe, GptOssWay) {
  MoeOptions options = Options(5, 2);
  options.routing.score_chosen = true;
  options.router_bias = true;
  options.expert_bias = true;
  options.activation = ClampedSwiglu{.alpha = 1.702f, .limit = 0.75f};
  EXPECT_GE(Compare(options, 8, 3), 7);
}

TEST(Moe, Llama4sWay) {
  MoeOptions options = Options(5, 2);
  options.routing.score_chosen = true;
  options.routing.scoring = RoutingSpec::Scoring::kSigmoid;
  options.weighs = ExpertWeights::Weighs::kInput;
  EXPECT_GE(Compare(options, 12, 4), 11);
}

TEST(Moe, EveryCombination) {
  EXPECT_TRUE(rc::check("the module is the formula", [] {
    const int groups = *rc::gen::element(1, 2, 3);
    const int group_size = *rc::gen::inRange(1, 5);
    const int kept = *rc::gen::inRange(1, groups + 1);
    const int top_k = *rc::gen::inRange(1, kept * group_size + 1);
    MoeOptions options = Options(groups * group_size, top_k);
    RoutingSpec& routing = options.routing;
    options.has_choice_bias = *rc::gen::arbitrary<bool>();
    routing.scoring =
        *rc::gen::element(RoutingSpec::Scoring::kSoftmax, RoutingSpec::Scoring::kSigmoid);
    routing.score_chosen = *rc::gen::arbitrary<bool>();
    routing.renormalise = *rc::gen::arbitrary<bool>();
    routing.scale = *rc::gen::element(1.0f, 2.5f);
    options.router_bias = *rc::gen::arbitrary<bool>();
    options.expert_bias = *rc::gen::arbitrary<bool>();
    options.weighs =
        *rc::gen::element(ExpertWeights::Weighs::kResult, ExpertWeights::Weighs::kInput);
    routing.groups = groups;
    routing.kept_groups = kept;
    routing.group_score =
        *rc::gen::element(RoutingSpec::GroupScore::kMax, RoutingSpec::GroupScore::kSumOfTop2);
    routing.masked_score = -std::numeric_limits<float>::infinity();
    // A sum of raw logits has no meaning as a norm.
    if (routing.score_chosen) routing.renormalise = false;
    RC_ASSERT(Compare(options, 3, *rc::gen::arbitrary<uint32_t>()) >= 1);
    RC_ASSERT(!testing::Test::HasFailure());
  }));
}

TEST(Moe, EachExpertReportsItsOwnErrors) {
  MoeOptions options = Options(3, 1);
  options.has_choice_bias = true;
  ModuleBench bench;
  bench.Put("moe.gate.weight", {2, kHidden});
  for (const char* e : {"0", "1"}) {
    const std::string prefix = std::string("moe.experts.") + e + ".";
    bench.Put(prefix + "w1.weight", {kIntermediate, kHidden});
    bench.Put(prefix + "w3.weight", {kIntermediate, kHidden});
    bench.Put(prefix + "w2.weight", {kHidden, kIntermediate});
  }
  bench.Open();
  const Moe moe(bench.At("moe"), options);
  ExpectWords(
      bench.Create().message(),
      {"5 problems", "moe.gate.weight: shape [2, 6]", "[3, 6]", "moe.gate.e_score_correction_bias",
       "moe.experts.2.w1.weight", "moe.experts.2.w2.weight", "moe.experts.2.w3.weight"});
}

}  // namespace
}  // namespace tenon
