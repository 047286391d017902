#include "tenon/engine/repetition_penalty.h"

#include <gtest/gtest.h>

#include <vector>

namespace tenon {
namespace {

std::vector<float> Applied(RepetitionPenalty& penalty, const std::vector<float>& logits) {
  const std::span<const float> out = penalty.Apply(logits);
  return {out.begin(), out.end()};
}

// By hand from the definition: positive logits divided, others multiplied, each token once.
TEST(RepetitionPenalty, TokensThatWereSeenBecomeLessLikely) {
  RepetitionPenalty penalty(2, 4);
  const std::vector<float> logits = {3, -3, 1, 0};
  EXPECT_EQ(Applied(penalty, logits), logits);
  const int32_t ids[] = {0, 1, 0, 1, 3};
  penalty.See(ids);
  EXPECT_EQ(Applied(penalty, logits), (std::vector<float>{1.5f, -6, 1, 0}));
  EXPECT_EQ(Applied(penalty, logits), (std::vector<float>{1.5f, -6, 1, 0}));
}

TEST(RepetitionPenalty, BelowOneFavoursThem) {
  RepetitionPenalty penalty(0.5, 2);
  const int32_t ids[] = {0, 1};
  penalty.See(ids);
  EXPECT_EQ(Applied(penalty, {4, -4}), (std::vector<float>{8, -2}));
}

TEST(RepetitionPenalty, OneCopiesNothing) {
  RepetitionPenalty penalty(1, 2);
  const int32_t ids[] = {0};
  penalty.See(ids);
  const std::vector<float> logits = {4, -4};
  EXPECT_EQ(penalty.Apply(logits).data(), logits.data());
}

}  // namespace
}  // namespace tenon
