#include "tenon/engine/repetition_penalty.h"

namespace tenon {

void RepetitionPenalty::See(std::span<const int32_t> ids) {
  if (is_seen_.empty()) return;
  for (const int32_t id : ids) {
    const auto index = static_cast<size_t>(id);
    if (is_seen_[index]) continue;
    is_seen_[index] = true;
    seen_.push_back(id);
  }
}

std::span<const float> RepetitionPenalty::Apply(std::span<const float> logits) {
  if (is_seen_.empty()) return logits;
  changed_.assign(logits.begin(), logits.end());
  for (const int32_t id : seen_) {
    float& logit = changed_[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / penalty_ : logit * penalty_;
  }
  return changed_;
}

}  // namespace tenon
