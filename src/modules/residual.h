// Residual: the stream through the blocks. Addends stay pending until a norm consumes them in one
// pass, so that no block needs to know its neighbour. One per recording; not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "tenon/modules/forward.h"
#include "tenon/ops/norm.h"

namespace tenon {

class Residual {
 public:
  explicit Residual(Value base) : base_(std::move(base)) {}
  // value [num_tokens, hidden]
  void Add(const Value& value) { pending_.push_back(value); }
  // norm(base + pending); the sum becomes the base.
  Value Norm(Forward& pass, const NormWeights& weights);
  // base + pending, materialised.
  Value Sum(Forward& pass);
  // Drops the rows that no logits are asked for: after the last attention, where nothing reads them
  // any more. All stay when taps are on. LogitRows (embedding.h) takes the stream either way.
  void KeepLogitRows(Forward& pass);
  // Keeps the sum under `name` when taps are on; costs nothing otherwise.
  void Tap(Forward& pass, const std::string& name);

 private:
  Value base_;
  std::vector<Value> pending_;
};

// Block after block (pass, residual), with taps of the stream: "embed" before the first, "hidden.0"
// and so on after each; `taps` begins their names.
template <typename Blocks>
void RunBlocks(Forward& pass, const Blocks& blocks, Residual& x, const std::string& taps = "") {
  x.Tap(pass, taps + "embed");
  int layer = 0;
  for (const auto& block : blocks) {
    block(pass, x);
    x.Tap(pass, taps + "hidden." + std::to_string(layer++));
  }
}

}  // namespace tenon
