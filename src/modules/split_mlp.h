// SplitMlp: a gated MLP in parts, each with its own rows of gate and up and its own columns of
// down, so that a step of one token needs no meeting inside it. The parts add up on the residual.
// For few threads and packed weights; GatedMlp is the general one. Not thread-safe while recording.
#pragma once

#include <deque>
#include <vector>

#include "tenon/modules/mlp.h"
#include "tenon/ops/split_feed_forward.h"

namespace tenon {

class SplitMlp {
 public:
  // options.has_bias is false; parts divide the intermediate width.
  SplitMlp(const Scope& scope, const MlpOptions& options, int parts)
      : activation_(options.activation) {
    for (int p = 0; p < parts; ++p) {
      const ParallelMapping share = {.tp = parts, .rank = p};
      parts_.emplace_back(scope, options, &share);
      matrices_.push_back({parts_.back().gate_up().data(), parts_.back().down().data()});
    }
  }

  // x [num_tokens, hidden]
  void AddTo(Forward& pass, const Value& x, Residual& residual) const {
    if (x.dim(0) != 1 || !CanSplitFeedForward(pass.tape().kernels(), matrices_)) {
      for (const GatedMlp& part : parts_) residual.Add(part(pass, x));
      return;
    }
    const Value sums = SplitFeedForward(pass.tape(), activation_, matrices_, x);
    for (int64_t p = 0; p < sums.dim(0); ++p) residual.Add(sums.Slice(0, p, p + 1));
  }

 private:
  Activation activation_;
  std::deque<GatedMlp> parts_;
  std::vector<FeedForwardPart> matrices_;  // of the parts, whose matrices stay where they are
};

}  // namespace tenon
