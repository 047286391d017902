#include "tenon/modules/residual.h"

#include "tenon/modules/embedding.h"

namespace tenon {

Value Residual::Norm(Forward& pass, const NormWeights& weights) {
  if (pending_.empty()) return tenon::Norm(pass.tape(), weights, base_);
  if (pending_.size() > kMaxAddends) Sum(pass);
  if (pending_.empty()) return tenon::Norm(pass.tape(), weights, base_);
  const NormedSum result = AddNorm(pass.tape(), weights, base_, pending_);
  base_ = result.sum;
  pending_.clear();
  return result.normed;
}

Value Residual::Sum(Forward& pass) {
  while (!pending_.empty()) {
    const size_t count = std::min(pending_.size(), kMaxAddends);
    base_ = tenon::Add(pass.tape(), base_, std::span<const Value>(pending_).first(count));
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(count));
  }
  return base_;
}

void Residual::KeepLogitRows(Forward& pass) {
  if (pass.taps) return;
  base_ = LogitRows(pass, base_);
  for (Value& addend : pending_) addend = LogitRows(pass, addend);
}

void Residual::Tap(Forward& pass, const std::string& name) {
  if (pass.taps) pass.Tap(name, Sum(pass));
}

}  // namespace tenon
