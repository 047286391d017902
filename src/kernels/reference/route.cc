#include <cmath>

#include "tenon/kernels/reference/reference.h"

namespace tenon::reference {
namespace {

// The one order of scores: NaN above everything, then by value.
bool IsAbove(float a, float b) { return a > b || (std::isnan(a) && !std::isnan(b)); }

// The group's best choice score, or the sum of its two best.
float GroupScore(const RouteKernelArgs& a, const float* choice, int64_t size) {
  float first = choice[0];
  float second = -INFINITY;
  for (int64_t i = 1; i < size; ++i) {
    if (IsAbove(choice[i], first)) {
      second = first;
      first = choice[i];
    } else if (IsAbove(choice[i], second)) {
      second = choice[i];
    }
  }
  return a.group_score_top2 && size > 1 ? first + second : first;
}

// Experts outside the kept groups get the masked score. Equal groups: the lower index stays.
void MaskGroups(const RouteKernelArgs& a, float* choice, float* group_scores) {
  const int64_t size = a.experts / a.groups;
  for (int64_t g = 0; g < a.groups; ++g) group_scores[g] = GroupScore(a, choice + g * size, size);
  for (int64_t g = 0; g < a.groups; ++g) {
    int64_t before = 0;
    for (int64_t other = 0; other < a.groups; ++other) {
      before += IsAbove(group_scores[other], group_scores[g]) ||
                (other < g && !IsAbove(group_scores[g], group_scores[other]));
    }
    if (before < a.kept_groups) continue;
    for (int64_t i = 0; i < size; ++i) choice[g * size + i] = a.masked_score;
  }
}

void Choose(const RouteKernelArgs& a, const float* choice, int32_t* chosen) {
  for (int32_t k = 0; k < a.top_k; ++k) {
    int32_t best = -1;
    for (int32_t e = 0; e < a.experts; ++e) {
      bool taken = false;
      for (int32_t j = 0; j < k; ++j) taken |= chosen[j] == e;
      if (!taken && (best < 0 || IsAbove(choice[e], choice[best]))) best = e;
    }
    chosen[k] = best;
  }
}

}  // namespace

void Route(const RouteKernelArgs& a, const float* logits, int32_t* chosen, float* weights,
           float* scratch) {
  float* scores = scratch;              // [experts]
  float* choice = scratch + a.experts;  // [experts]
  if (a.score_chosen) {
    for (int32_t e = 0; e < a.experts; ++e) scores[e] = logits[e];
  } else if (a.sigmoid) {
    Activate(Activation::kSigmoid, logits, scores, a.experts);
  } else {
    Softmax(logits, scores, a.experts);
  }
  for (int32_t e = 0; e < a.experts; ++e) {
    choice[e] = a.choice_bias == nullptr ? scores[e] : scores[e] + a.choice_bias[e];
  }
  if (a.kept_groups < a.groups) MaskGroups(a, choice, choice + a.experts);
  Choose(a, choice, chosen);
  for (int32_t k = 0; k < a.top_k; ++k) weights[k] = scores[chosen[k]];
  if (a.score_chosen && a.sigmoid) {
    Activate(Activation::kSigmoid, weights, weights, a.top_k);
  } else if (a.score_chosen) {
    Softmax(weights, weights, a.top_k);
  }
  if (a.renormalise) {
    double sum = static_cast<double>(a.renormalise_eps);
    for (int32_t k = 0; k < a.top_k; ++k) sum += static_cast<double>(weights[k]);
    for (int32_t k = 0; k < a.top_k; ++k) {
      weights[k] = static_cast<float>(static_cast<double>(weights[k]) / sum);
    }
  }
  Scale(a.scale, weights, weights, a.top_k);
}

}  // namespace tenon::reference
