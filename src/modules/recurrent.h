// Mixers with a state per sequence: Mamba2Mixer and ShortConv (LFM2). StateCache is a layer's slot
// of fixed bytes; any recurrent family composes it. Not thread-safe while recording.
#pragma once

#include "tenon/modules/linear.h"
#include "tenon/modules/norm.h"
#include "tenon/ops/recurrent.h"

namespace tenon {

// A layer's per-sequence state: declared once, its address read by ops when the tape runs.
class StateCache {
 public:
  StateCache(const Scope& scope, int layer, int64_t bytes);
  StateCache(const StateCache&) = delete;
  StateCache& operator=(const StateCache&) = delete;

  const StatePool& states() const { return cache_.states; }
  // The sequences of this step with their slots.
  const SequenceRuns& RunsOf(Forward& pass) const;

 private:
  LayerCache cache_;
};

struct CausalConvOptions {
  int layer = 0;  // names the state in the plan
  int64_t channels = 0;
  int64_t width = 0;  // taps
  bool has_bias = false;
  Activation activation = Activation::kNone;
};

// Causal depthwise convolution over the last taps, with its weight and state.
class CausalConvModule : public Module {
 public:
  CausalConvModule(const Scope& scope, const CausalConvOptions& options);
  void CreateWeights(LoadContext& context) override;
  void LinkWeights() override;
  Value operator()(Forward& pass, const Value& x) const;

 private:
  CausalConvSpec spec_;
  bool has_bias_;
  StateCache state_;
};

struct Mamba2Options {
  int layer = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t groups = 0;
  int64_t state_size = 0;
  int64_t conv_width = 0;
  bool conv_bias = false;
  bool proj_bias = false;
  Activation activation = Activation::kSilu;
  float dt_min = 0;
  float dt_max = 0;
  float norm_eps = 0;
  int64_t norm_group = 0;  // columns normed together
};

// Hugging Face modeling_mamba2.py, Mamba2Mixer.
class Mamba2Mixer : public Module {
 public:
  Mamba2Mixer(const Scope& scope, const Mamba2Options& options);
  void CreateWeights(LoadContext& context) override;
  void LinkWeights() override;
  // x [num_tokens, hidden] -> the same shape.
  Value operator()(Forward& pass, const Value& x) const;

 private:
  Mamba2Options options_;
  int64_t inner_;  // heads * head_dim
  Linear in_proj_;
  CausalConvModule conv_;
  SelectiveScanSpec scan_;
  StateCache state_;
  NormModule norm_;
  Linear out_proj_;
};

struct ShortConvOptions {
  int layer = 0;
  int64_t hidden = 0;
  int64_t width = 0;
  bool has_bias = false;
};

// out(c * conv(b * x)), b, c, x = in(input). Hugging Face modeling_lfm2.py, Lfm2ShortConv.
class ShortConv {
 public:
  ShortConv(const Scope& scope, const ShortConvOptions& options);
  Value operator()(Forward& pass, const Value& x) const;

 private:
  int64_t hidden_;
  Linear in_proj_;
  CausalConvModule conv_;
  Linear out_proj_;
};

}  // namespace tenon
