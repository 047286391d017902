#include "tenon/engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tenon {

Status CheckSampling(const SamplingOptions& o) {
  if (!(o.temperature >= 0) || std::isinf(o.temperature)) {
    return UsageError(
        fmt::format("temp = {}, allowed: 0 (greedy) or a positive number", o.temperature));
  }
  if (o.top_k < 0)
    return UsageError(fmt::format("top-k = {}, allowed: 0 (all) or a positive number", o.top_k));
  if (!(o.top_p > 0 && o.top_p <= 1))
    return UsageError(fmt::format("top-p = {}, allowed: above 0, at most 1", o.top_p));
  if (!(o.min_p >= 0 && o.min_p < 1))
    return UsageError(fmt::format("min-p = {}, allowed: 0 to below 1", o.min_p));
  return {};
}

namespace {

// The first of the largest; an error when they are no logits.
Result<size_t> BestOf(std::span<const float> logits) {
  size_t best = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] < std::numeric_limits<float>::infinity())) {
      return InternalError(fmt::format(
          "the logit of token {} is {}: the model's arithmetic broke down, nothing can be chosen",
          i, logits[i]));
    }
    if (logits[i] > logits[best]) best = i;
  }
  if (logits.empty() || std::isinf(logits[best])) {
    return InternalError("no token has a logit above -infinity, nothing can be chosen");
  }
  return best;
}

}  // namespace

// splitmix64 (Steele, Lea, Flood 2014).
double Sampler::NextUniform() {
  state_ += 0x9E3779B97F4A7C15u;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

void Sampler::KeepLikely(std::span<const float> logits, float top) {
  candidates_.clear();
  // Probabilities are relative to the best, as min-p is. Only top-p needs those below min-p.
  const double least = options_.top_p < 1 ? 0 : options_.min_p;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double p = std::exp(static_cast<double>(logits[i] - top) / options_.temperature);
    if (p > 0 && p >= least) candidates_.push_back({static_cast<int32_t>(i), p});
  }
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.probability != b.probability ? a.probability > b.probability : a.id < b.id;
  };
  size_t kept = candidates_.size();
  if (options_.top_k > 0) kept = std::min(kept, static_cast<size_t>(options_.top_k));
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(kept),
                    candidates_.end(), likelier);
  candidates_.resize(kept);
  if (options_.top_p >= 1) return;
  // top-p counts the probability that is left after top-k, and min-p comes last, as Hugging Face's
  // warpers do in this order.
  double left = 0;
  for (const Candidate& c : candidates_) left += c.probability;
  double sum = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    sum += candidates_[i].probability;
    if (sum >= options_.top_p * left) candidates_.resize(i + 1);
  }
  while (candidates_.back().probability < options_.min_p) candidates_.pop_back();
}

Result<int32_t> Sampler::Sample(std::span<const float> logits) {
  TN_ASSIGN_OR_RETURN(const size_t best, BestOf(logits));
  if (options_.temperature <= 0) return static_cast<int32_t>(best);
  KeepLikely(logits, logits[best]);
  double total = 0;
  for (const Candidate& c : candidates_) total += c.probability;
  double point = NextUniform() * total;
  for (const Candidate& c : candidates_) {
    point -= c.probability;
    if (point < 0) return c.id;
  }
  return candidates_.back().id;
}

}  // namespace tenon
