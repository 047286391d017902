#include "tenon/modules/rope_table.h"

#include <algorithm>

#include "tenon/modules/forward.h"

namespace tenon {

RopeTable::RopeTable(const Scope& scope, const RopeParameters& parameters, int64_t rotary_dim,
                     int64_t max_position)
    : parameters_(parameters), max_position_(max_position) {
  const int64_t regimes = DependsOnLength() ? kRegimes : 1;
  inv_freq_.resize(static_cast<size_t>(regimes * (rotary_dim / 2)));
  attention_factor_.resize(static_cast<size_t>(regimes));
  table_ = {inv_freq_.data(), attention_factor_.data(), rotary_dim};
  for (int64_t regime = 0; regime < regimes; ++regime) SetRegime(regime, 1);
  scope.context().ropes.push_back(this);
}

bool RopeTable::DependsOnLength() const {
  return parameters_.type == RopeType::kDynamic || parameters_.type == RopeType::kLongrope;
}

int64_t RopeTable::KeyOf(int64_t seq_len) const {
  if (parameters_.type == RopeType::kDynamic) return std::max(seq_len, max_position_);
  if (parameters_.type == RopeType::kLongrope) {
    return seq_len > parameters_.original_max_position.value_or(max_position_) ? 1 : 0;
  }
  return 0;
}

void RopeTable::SetRegime(int64_t regime, int64_t seq_len) {
  const RopeFrequencies frequencies =
      ComputeRope(parameters_, table_.rotary_dim, seq_len, max_position_);
  std::copy(frequencies.inv_freq.begin(), frequencies.inv_freq.end(),
            inv_freq_.begin() + regime * (table_.rotary_dim / 2));
  attention_factor_[static_cast<size_t>(regime)] = frequencies.attention_factor;
}

Value Forward::Angles(const RopeTable& rope) {
  const auto it = angles_.find(&rope);
  if (it != angles_.end()) return it->second;
  // Others have one row for all sequences.
  const int32_t* regimes = rope.DependsOnLength() ? layout_.rope_regimes : nullptr;
  const Value angles = RopeAngles(tape_, rope.table(), layout_.positions, regimes, num_tokens());
  angles_.emplace(&rope, angles);
  return angles;
}

}  // namespace tenon
