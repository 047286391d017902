// RepetitionPenalty: makes tokens that a sequence already holds less likely (Keskar et al. 2019;
// Hugging Face RepetitionPenaltyLogitsProcessor): positive logits divided, negative multiplied,
// once per token however often it occurred. Not a sampler. One per generation; not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tenon {

class RepetitionPenalty {
 public:
  // penalty > 0; 1 changes nothing and costs nothing.
  RepetitionPenalty(double penalty, int64_t vocab)
      : penalty_(static_cast<float>(penalty)), is_seen_(penalty == 1 ? 0 : vocab) {}

  // ids in [0, vocab).
  void See(std::span<const int32_t> ids);
  // logits [vocab] -> the same, or a changed copy that lives until the next call.
  std::span<const float> Apply(std::span<const float> logits);

 private:
  float penalty_;
  std::vector<bool> is_seen_;   // [vocab]; empty without a penalty
  std::vector<int32_t> seen_;   // each once
  std::vector<float> changed_;  // [vocab]
};

}  // namespace tenon
