// Checkpoints with something odd about their files that are served all the same: their logits are
// the golden's. And whose tokens end an answer when three files disagree.
#include <gtest/gtest.h>

#include <set>

#include "engine/runners.h"
#include "plan/weights_fixtures.h"
#include "tenon/engine/text.h"

namespace tenon {
namespace {

class ServedWeights : public testing::TestWithParam<const char*> {};

TEST_P(ServedWeights, GiveTheGoldensLogits) {
  test::WeightsFixture fixture(GetParam());
  auto plan = test::PlanPath(fixture.path());
  ASSERT_TRUE(plan.ok()) << plan.message();
  const auto runner = ModelRunner::Load(*std::move(plan));
  ASSERT_TRUE(runner.ok()) << runner.message();
  const test::Golden golden(test::DataPath("goldens/llama"));
  ASSERT_FALSE(golden.prompts.empty());
  for (const test::GoldenPrompt& prompt : golden.prompts) {
    (*runner)->Reset();
    ASSERT_TRUE((*runner)->Extend(prompt.input_ids, WantLogits::kAll).ok());
    ASSERT_EQ((*runner)->logits().size(), prompt.logits.size());
    EXPECT_LE(test::Compare((*runner)->logits(), prompt.logits, golden.rtol).worst, golden.atol);
  }
}

INSTANTIATE_TEST_SUITE_P(Weights, ServedWeights,
                         testing::Values("tied_with_lm_head", "stray_consolidated", "stale_index"));

// generation_config.json says 3, config.json 2, the tokenizer's eos_token is 4.
TEST(EndTokensFixture, AreThoseOfAllThreeFiles) {
  const auto plan = test::PlanPath(test::DataPath("fixtures/config_only/eos_conflict"));
  ASSERT_TRUE(plan.ok()) << plan.message();
  const auto tokenizer = LoadTokenizer(*(*plan)->checkpoint);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  EXPECT_EQ(EndTokens((*plan)->generation, **tokenizer), (std::set<int32_t>{2, 3, 4}));
}

}  // namespace
}  // namespace tenon
