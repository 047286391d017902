// Mixture of experts: a router and per-expert matrices as arrays of addresses, so that one tensor
// per expert, stacked and block formats all stay as the file has them. Shared experts are a
// GatedMlp beside it, added by the family. Not thread-safe while recording.
#pragma once

#include "tenon/modules/linear.h"
#include "tenon/ops/moe.h"

namespace tenon {

struct MoeOptions {
  int64_t hidden = 0;
  int64_t intermediate = 0;
  GatedUnit activation = Activation::kSilu;
  RoutingSpec routing;
  ExpertWeights::Weighs weighs = ExpertWeights::Weighs::kResult;
  bool router_bias = false;
  bool expert_bias = false;      // of all three matrices of every expert
  bool has_choice_bias = false;  // a float tensor `choice_bias` of [experts]
  // Names below the scope; `{expert}` in the scope is experts.<index>.
  std::string router = "gate";
  std::string choice_bias = "gate.e_score_correction_bias";
  std::string gate = "gate_proj";
  std::string up = "up_proj";
  std::string down = "down_proj";
};

class Moe : public Module {
 public:
  Moe(const Scope& scope, const MoeOptions& options);

  void Quantise(Quantiser& quantiser) override;
  void CreateWeights(LoadContext& context) override;
  Status DecodeWeights() override;
  void LinkWeights() override;
  int64_t derived_bytes() const override;

  // x [num_tokens, hidden] -> the weighted sum of the chosen experts, the same shape.
  Value operator()(Forward& pass, const Value& x) const;

 private:
  // Addresses, once there are some, for products.
  void LinkExperts();

  MoeOptions options_;
  RoutingSpec routing_;
  Linear router_;
  std::vector<WeightMatrix> experts_;     // [experts, 3]: gate, up, down
  std::vector<const Parameter*> biases_;  // as experts_; null: none
  const Parameter* choice_bias_ = nullptr;
  std::vector<MatrixRef> gate_;  // [experts]
  std::vector<MatrixRef> up_;
  std::vector<MatrixRef> down_;
  ExpertWeights weights_;
};

}  // namespace tenon
