#include <cmath>

#include "tenon/kernels/reference/reference.h"

namespace tenon::reference {
namespace {

void Softmax(float* x, int64_t n) {
  float top = x[0];
  for (int64_t i = 1; i < n; ++i) top = x[i] > top ? x[i] : top;
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    x[i] = std::exp(x[i] - top);
    sum += static_cast<double>(x[i]);
  }
  for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(static_cast<double>(x[i]) / sum);
}

// The group's best choice score, or the sum of its two best.
float GroupScore(const RouteKernelArgs& a, const float* choice, int64_t size) {
  float first = -INFINITY;
  float second = -INFINITY;
  for (int64_t i = 0; i < size; ++i) {
    if (choice[i] > first) {
      second = first;
      first = choice[i];
    } else if (choice[i] > second) {
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
    int64_t better = 0;
    for (int64_t other = 0; other < a.groups; ++other) {
      better += group_scores[other] > group_scores[g] ||
                (group_scores[other] == group_scores[g] && other < g);
    }
    if (better < a.kept_groups) continue;
    for (int64_t i = 0; i < size; ++i) choice[g * size + i] = a.masked_score;
  }
}

}  // namespace

void Route(const RouteKernelArgs& a, const float* logits, int32_t* chosen, float* weights,
           float* scratch) {
  float* scores = scratch;              // [experts]
  float* choice = scratch + a.experts;  // [experts]
  for (int32_t e = 0; e < a.experts; ++e) {
    scores[e] = a.sigmoid ? 1.0f / (1.0f + std::exp(-logits[e])) : logits[e];
  }
  if (!a.sigmoid && !a.softmax_of_chosen) Softmax(scores, a.experts);
  for (int32_t e = 0; e < a.experts; ++e) {
    choice[e] = a.choice_bias == nullptr ? scores[e] : scores[e] + a.choice_bias[e];
  }
  if (a.groups > 1 && a.kept_groups < a.groups) MaskGroups(a, choice, scratch + 2 * a.experts);
  for (int32_t k = 0; k < a.top_k; ++k) {
    int32_t best = -1;
    for (int32_t e = 0; e < a.experts; ++e) {
      bool taken = false;
      for (int32_t j = 0; j < k; ++j) taken |= chosen[j] == e;
      // A NaN score never wins, so the first free expert stands in.
      if (!taken && (best < 0 || choice[e] > choice[best])) best = e;
    }
    chosen[k] = best;
    weights[k] = scores[best];
  }
  if (a.softmax_of_chosen) Softmax(weights, a.top_k);
  if (a.renormalise) {
    double sum = static_cast<double>(a.renormalise_eps);
    for (int32_t k = 0; k < a.top_k; ++k) sum += static_cast<double>(weights[k]);
    for (int32_t k = 0; k < a.top_k; ++k)
      weights[k] = static_cast<float>(static_cast<double>(weights[k]) / sum);
  }
  for (int32_t k = 0; k < a.top_k; ++k) weights[k] *= a.scale;
}

}  // namespace tenon::reference
