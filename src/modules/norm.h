// RmsNorm and LayerNorm as modules: a weight (and bias) under a scope. Per-head norms use the same
// class over a smaller width. Not thread-safe while recording.
#pragma once

#include "tenon/modules/module.h"
#include "tenon/modules/residual.h"

namespace tenon {

struct NormOptions {
  NormKind kind = NormKind::kRms;
  int64_t width = 0;
  float eps = 0;
  bool has_bias = false;
  float weight_offset = 0;  // 1 where this container stores w of (1 + w)
};

class NormModule : public Module {
 public:
  NormModule(const Scope& scope, const NormOptions& options);

  void CreateWeights(LoadContext& context) override;
  void LinkWeights() override;

  // x [..., width] -> normed, contiguous.
  Value operator()(Forward& pass, const Value& x) const { return Norm(pass.tape(), weights_, x); }
  // Consumes the residual's pending addends.
  Value operator()(Forward& pass, Residual& x) const { return x.Norm(pass, weights_); }
  void InPlace(Forward& pass, const Value& x) const { NormInPlace(pass.tape(), weights_, x); }
  const NormWeights& weights() const { return weights_; }

 private:
  NormOptions options_;
  NormWeights weights_;
};

}  // namespace tenon
