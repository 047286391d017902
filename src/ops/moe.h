// Mixture of experts: routing (scores, top-k, weights) and the experts' gated MLPs. No result
// reaches family code: the chosen experts stay inside the tape. Records on the tape; family code's
// thread only.
#pragma once

#include <span>

#include "tenon/ops/activation.h"
#include "tenon/ops/matmul.h"

namespace tenon {

// Ops keep the address: lives as long as the tape.
struct RoutingSpec {
  enum class Scoring { kSoftmax, kSigmoid };
  enum class GroupScore { kMax, kSumOfTop2 };
  int experts = 0;
  int top_k = 0;
  Scoring scoring = Scoring::kSoftmax;  // over all experts, before the choice
  bool score_chosen = false;  // the raw logits choose, and `scoring` is over the chosen ones alone
  bool renormalise = false;   // weights divided by their sum (+ renormalise_eps)
  float renormalise_eps = 0;
  float scale = 1;                     // multiplies the weights at the end
  const float* choice_bias = nullptr;  // [experts]: added for the choice only; null: none
  int groups = 1;                      // experts / groups per group
  int kept_groups = 1;                 // groups that may be chosen from
  GroupScore group_score = GroupScore::kMax;
  float masked_score = 0;  // the choice score of experts outside the kept groups (0 or -infinity)
};

struct Routing {
  Value experts;  // [num_tokens, top_k] i32; equal scores: the lower index first
  Value weights;  // [num_tokens, top_k] fp32
};
// logits [num_tokens, experts]
Routing Route(Tape& tape, const RoutingSpec& spec, const Value& logits);

// All experts of a layer; the arrays and this struct live as long as the tape.
struct ExpertWeights {
  enum class Weighs { kResult, kInput };  // what the routing's weights multiply
  std::span<const MatrixRef> gate;        // [experts] of [intermediate, hidden]
  std::span<const MatrixRef> up;          // [experts] of [intermediate, hidden]
  std::span<const MatrixRef> down;        // [experts] of [hidden, intermediate]
  GatedUnit activation = Activation::kSilu;
  Weighs weighs = Weighs::kResult;
};
// sum over the chosen: weight * down(act(gate x) * up x), or down(...) of weight * x.
// x [num_tokens, hidden] -> the same shape.
Value ApplyExperts(Tape& tape, const ExpertWeights& experts, const Routing& routing,
                   const Value& x);

}  // namespace tenon
