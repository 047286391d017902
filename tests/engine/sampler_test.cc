// The sampler against brute force over small vocabularies: exact probabilities, exact draws of the
// published generator, and what it refuses.
#include "tenon/engine/sampler.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "support/words.h"

namespace tenon {
namespace {

using test::ExpectWords;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// splitmix64 as published (Steele, Lea, Flood 2014): the state moves by the golden gamma.
struct SplitMix {
  uint64_t state;
  uint64_t Next() {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  double Uniform() { return std::ldexp(static_cast<double>(Next() >> 11), -53); }
};

// The token ids, most probable first; equal ones by id.
std::vector<size_t> Order(std::span<const float> logits) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  return order;
}

void Renormalise(std::vector<double>& p) {
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& v : p) v /= sum;
}

// Hugging Face's warpers, one after the other, each on the probabilities that the one before left:
// temperature, top-k, top-p, min-p.
std::vector<double> Exact(std::span<const float> logits, const SamplingOptions& options) {
  const std::vector<size_t> order = Order(logits);
  std::vector<double> p(logits.size());
  for (size_t i = 0; i < p.size(); ++i) {
    p[i] = std::exp((static_cast<double>(logits[i]) - static_cast<double>(logits[order[0]])) /
                    options.temperature);
  }
  Renormalise(p);
  for (size_t rank = 0; rank < order.size(); ++rank) {
    if (options.top_k > 0 && static_cast<int64_t>(rank) >= options.top_k) p[order[rank]] = 0;
  }
  Renormalise(p);
  double before = 0;  // of all that are likelier
  for (const size_t id : order) {
    const double own = p[id];
    if (before >= options.top_p) p[id] = 0;
    before += own;
  }
  Renormalise(p);
  const double best = p[order[0]];
  for (double& v : p) v = v < options.min_p * best ? 0 : v;
  Renormalise(p);
  return p;
}

std::vector<float> RandomLogits(uint64_t seed, size_t vocab) {
  SplitMix random{seed};
  std::vector<float> logits(vocab);
  for (float& v : logits) v = static_cast<float>(6 * random.Uniform() - 3);
  return logits;
}

TEST(Greedy, TheFirstOfTheLargest) {
  Sampler sampler({});
  const std::vector<float> logits = {-1, 3, 2, 3, -kInf};
  EXPECT_EQ(*sampler.Sample(logits), 1);
  EXPECT_EQ(*sampler.Sample(std::vector<float>{5, 5, 5}), 0);
  EXPECT_EQ(*sampler.Sample(std::vector<float>{-kInf, -kInf, -7}), 2);
  EXPECT_EQ(*sampler.Sample(std::vector<float>{-0.0f, 0.0f}), 0);
  for (uint64_t seed = 0; seed < 5; ++seed) {
    Sampler seeded({.seed = seed});
    EXPECT_EQ(*seeded.Sample(logits), 1);
  }
}

// The first outputs of splitmix64 from the state 1234567 (Rosetta Code, "Pseudo-random numbers/
// Splitmix64"); over equal logits the draw is the number's leading bits.
TEST(Sampling, DrawsThePublishedSequence) {
  constexpr uint64_t kOutputs[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                                   4593380528125082431u, 16408922859458223821u};
  Sampler sampler({.temperature = 0.7, .seed = 1234567});
  const std::vector<float> equal(4096, 1.5f);
  for (const uint64_t output : kOutputs) {
    EXPECT_EQ(*sampler.Sample(equal), static_cast<int32_t>(output >> 52));
  }
}

TEST(Sampling, SameSeedSameTokens) {
  const std::vector<float> logits = RandomLogits(1, 50);
  const auto draw = [&](uint64_t seed) {
    Sampler sampler({.temperature = 1, .seed = seed});
    std::vector<int32_t> ids;
    for (int i = 0; i < 40; ++i) ids.push_back(*sampler.Sample(logits));
    return ids;
  };
  EXPECT_EQ(draw(7), draw(7));
  EXPECT_NE(draw(7), draw(8));
}

// Probabilities 0.5, 0.3, 0.1, 0.1: top-p 0.6 keeps two, min-p 0.5 the same two; in the other
// order min-p would leave 0.8, of which the first is more than 0.6.
TEST(Sampling, MinPComesAfterTopP) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.1f),
                                     std::log(0.1f)};
  Sampler sampler({.temperature = 1, .top_p = 0.6, .min_p = 0.5, .seed = 3});
  int counts[4] = {};
  for (int i = 0; i < 4000; ++i) ++counts[*sampler.Sample(logits)];
  EXPECT_EQ(counts[2] + counts[3], 0);
  EXPECT_NEAR(counts[1], 1500, 5 * std::sqrt(4000 * 0.375 * 0.625));
}

// Every draw is the token whose interval of the exact distribution holds the generator's number.
TEST(Sampling, EveryDrawIsTheExactOne) {
  EXPECT_TRUE(rc::check("draws follow the exact distribution", [] {
    const auto vocab = *rc::gen::inRange<size_t>(1, 12);
    std::vector<float> logits = RandomLogits(*rc::gen::arbitrary<uint64_t>(), vocab);
    for (size_t i = 1; i < vocab; ++i) {
      const int kind = *rc::gen::inRange(0, 8);
      if (kind == 0) logits[i] = logits[i - 1];  // a tie
      if (kind == 1) logits[i] = -kInf;          // masked
    }
    const SamplingOptions options = {.temperature = *rc::gen::element(0.1, 0.7, 1.0, 3.0, 100.0),
                                     .top_k = *rc::gen::inRange<int64_t>(0, 14),
                                     .top_p = *rc::gen::element(0.05, 0.37, 0.61, 0.93, 1.0),
                                     .min_p = *rc::gen::element(0.0, 0.013, 0.21, 0.77),
                                     .seed = *rc::gen::arbitrary<uint64_t>()};
    RC_ASSERT(CheckSampling(options).ok());
    const std::vector<double> p = Exact(logits, options);
    const std::vector<size_t> order = Order(logits);
    Sampler sampler(options);
    SplitMix random{options.seed};
    for (int i = 0; i < 50; ++i) {
      const auto id = static_cast<size_t>(*sampler.Sample(logits));
      const double point = random.Uniform();
      double begin = 0;
      for (size_t rank = 0; order[rank] != id; ++rank) begin += p[order[rank]];
      RC_ASSERT(p[id] > 0);
      RC_ASSERT(begin <= point + 1e-12);
      RC_ASSERT(point <= begin + p[id] + 1e-12);
    }
  }));
}

TEST(Sampling, ChiSquareAgainstTheExactProbabilities) {
  const std::vector<float> logits = RandomLogits(2, 24);
  const SamplingOptions cases[] = {{.temperature = 1, .seed = 1},
                                   {.temperature = 0.5, .seed = 2},
                                   {.temperature = 2, .top_k = 7, .seed = 3},
                                   {.temperature = 1, .top_p = 0.8, .seed = 4},
                                   {.temperature = 1.5, .min_p = 0.1, .seed = 5},
                                   {.temperature = 2, .top_k = 12, .top_p = 0.9, .min_p = 0.2}};
  constexpr int kDraws = 50000;
  for (const SamplingOptions& options : cases) {
    const std::vector<double> p = Exact(logits, options);
    Sampler sampler(options);
    std::vector<int> counts(p.size());
    for (int i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(*sampler.Sample(logits))];
    double chi_square = 0;
    double freedom = -1;
    for (size_t i = 0; i < p.size(); ++i) {
      if (p[i] == 0) {
        EXPECT_EQ(counts[i], 0) << "token " << i << ", seed " << options.seed;
        continue;
      }
      const double expected = p[i] * kDraws;
      chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
      ++freedom;
    }
    ASSERT_GE(freedom, 1);
    // Mean `freedom`, variance 2 * freedom: five deviations. The seeds are fixed.
    EXPECT_LT(chi_square, freedom + 5 * std::sqrt(2 * freedom)) << "seed " << options.seed;
  }
}

TEST(Sampling, MaskedTokensNeverCome) {
  Sampler sampler({.temperature = 1000, .seed = 9});
  const std::vector<float> logits = {-kInf, 0, -kInf, 0.1f, -kInf};
  for (int i = 0; i < 1000; ++i) {
    const int32_t id = *sampler.Sample(logits);
    ASSERT_TRUE(id == 1 || id == 3) << id;
  }
}

TEST(Sampling, ExtremesStayDefined) {
  Sampler cold({.temperature = 1e-300, .seed = 1});
  EXPECT_EQ(*cold.Sample(std::vector<float>{1, 2, 1.9999999f}), 1);
  Sampler wide({.temperature = 1, .seed = 1});
  EXPECT_EQ(*wide.Sample(std::vector<float>{-3e38f, 3e38f}), 1);
  Sampler narrow({.temperature = 1, .top_k = std::numeric_limits<int64_t>::max(), .top_p = 1e-300});
  EXPECT_EQ(*narrow.Sample(std::vector<float>{0, 0.5f, 0.25f}), 1);
}

TEST(Sampling, WhatAreNoLogitsIsAnError) {
  for (const double temperature : {0.0, 1.0}) {
    Sampler sampler({.temperature = temperature});
    for (const float bad : {kNan, -kNan, kInf}) {
      for (size_t at = 0; at < 3; ++at) {
        std::vector<float> logits = {1, -kInf, 2};
        logits[at] = bad;
        const auto id = sampler.Sample(logits);
        ASSERT_FALSE(id.ok()) << "at " << at;
        EXPECT_EQ(id.code(), StatusCode::kInternal);
        ExpectWords(id.message(), {"token " + std::to_string(at)});
      }
    }
    EXPECT_FALSE(sampler.Sample(std::vector<float>{-kInf, -kInf}).ok());
    EXPECT_FALSE(sampler.Sample({}).ok());
    EXPECT_EQ(*sampler.Sample(std::vector<float>{-kInf, 4}), 1) << "and goes on afterwards";
  }
}

TEST(CheckSampling, NamesTheFieldItsValueAndWhatIsAllowed) {
  const auto refused = [](const SamplingOptions& options,
                          std::initializer_list<std::string_view> words) {
    const Status status = CheckSampling(options);
    EXPECT_EQ(status.code(), StatusCode::kUsage);
    ExpectWords(status.message(), words);
    ExpectWords(status.message(), {"allowed"});
  };
  refused({.temperature = -0.5}, {"temp", "-0.5"});
  refused({.temperature = std::nan("")}, {"temp", "nan"});
  refused({.temperature = HUGE_VAL}, {"temp", "inf"});
  refused({.top_k = -1}, {"top-k", "-1"});
  refused({.top_p = 0}, {"top-p", "0"});
  refused({.top_p = 1.25}, {"top-p", "1.25"});
  refused({.top_p = std::nan("")}, {"top-p", "nan"});
  refused({.min_p = -0.25}, {"min-p", "-0.25"});
  refused({.min_p = 1}, {"min-p", "1"});
  refused({.min_p = std::nan("")}, {"min-p", "nan"});
  EXPECT_TRUE(CheckSampling({}).ok());
  EXPECT_TRUE(CheckSampling({.temperature = 5, .top_k = 1, .top_p = 1e-9, .min_p = 0.999}).ok());
}

}  // namespace
}  // namespace tenon
