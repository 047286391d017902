// The feed-forward parts: GatedMlp (act(gate x) * up x, then down) and PlainMlp (act(up x), then
// down). Not thread-safe while recording.
#pragma once

#include "tenon/modules/linear.h"
#include "tenon/modules/residual.h"
#include "tenon/ops/activation.h"
#include "tenon/ops/gated_feed_forward.h"

namespace tenon {

struct MlpOptions {
  int64_t hidden = 0;
  int64_t intermediate = 0;
  Activation activation = Activation::kSilu;
  bool has_bias = false;
  // Names below the scope, as the family's checkpoints spell them.
  std::string gate = "gate_proj";
  std::string up = "up_proj";
  std::string down = "down_proj";
};

class GatedMlp {
 public:
  // among: whose share of the intermediate width this is; null: the world of the context.
  GatedMlp(const Scope& scope, const MlpOptions& options, const ParallelMapping* among = nullptr)
      : activation_(options.activation),
        gate_up_(scope, "gate_up_proj", options.hidden,
                 {{options.gate, options.intermediate, options.has_bias},
                  {options.up, options.intermediate, options.has_bias}},
                 {LinearShare::kRows, among}),
        down_(scope / options.down, options.intermediate, options.hidden, options.has_bias,
              {LinearShare::kColumns, among}) {}

  // x [num_tokens, hidden] -> the same shape.
  Value operator()(Forward& pass, const Value& x) const {
    return GatedFeedForward(pass.tape(), activation_, {gate_up(), down()}, x);
  }
  void AddTo(Forward& pass, const Value& x, Residual& residual) const {
    residual.Add((*this)(pass, x));
  }

  std::span<const MatrixRef, 2> gate_up() const { return gate_up_.matrices().first<2>(); }
  std::span<const MatrixRef, 1> down() const { return down_.matrices().first<1>(); }

 private:
  Activation activation_;
  Linear gate_up_;
  Linear down_;
};

class PlainMlp {
 public:
  PlainMlp(const Scope& scope, const MlpOptions& options)
      : activation_(options.activation),
        up_(scope / options.up, options.hidden, options.intermediate, options.has_bias,
            LinearShare::kRows),
        down_(scope / options.down, options.intermediate, options.hidden, options.has_bias,
              LinearShare::kColumns) {}

  Value operator()(Forward& pass, const Value& x) const {
    return down_(pass, Activate(pass.tape(), activation_, up_(pass, x)));
  }

 private:
  Activation activation_;
  Linear up_;
  Linear down_;
};

}  // namespace tenon
