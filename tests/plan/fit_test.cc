// The fit verdict: what does not fit is refused with the longest context that does, and that one
// does fit; what nobody asked for is set to what fits.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "plan/wish.h"
#include "support/words.h"

namespace tenon {
namespace {

using test::ExpectWords;
using test::PlanGolden;

// Nine tenths of the memory may be used.
int64_t Budget(int64_t memory) { return memory / 10 * 9; }

// The number that the refusal names.
int64_t LongestIn(const std::string& message) {
  constexpr std::string_view kWords = "longest context that fits is ";
  const size_t at = message.find(kWords);
  return at == std::string::npos ? -1 : std::stoll(message.substr(at + kWords.size()));
}

const Decision* DecisionOf(const PlannedModel& plan, std::string_view field) {
  for (const Decision& decision : plan.context->ledger.decisions()) {
    if (decision.field == field) return &decision;
  }
  return nullptr;
}

class FitTest : public testing::TestWithParam<const char*> {};

TEST_P(FitTest, TheLongestThatFitsIsNamedAndFits) {
  const std::string golden = GetParam();
  const auto unlimited = PlanGolden(golden, {.memory_bytes = int64_t{64} << 30});
  ASSERT_TRUE(unlimited.ok()) << unlimited.message();
  const int64_t most = std::min<int64_t>(128, (*unlimited)->max_seq_len);
  const auto whole = PlanGolden(golden, {.max_seq_len = most, .prefill_chunk = 32});
  ASSERT_TRUE(whole.ok()) << whole.message();
  const auto smallest = PlanGolden(golden, {.max_seq_len = 1, .prefill_chunk = 32});
  ASSERT_TRUE(smallest.ok()) << smallest.message();
  const int64_t low = (*smallest)->memory.Total();
  const int64_t high = (*whole)->memory.Total();
  int refused = 0;
  EXPECT_TRUE(rc::check("the verdict is exact", [&] {
    const int64_t total = *rc::gen::inRange<int64_t>(low * 9 / 10, high * 11 / 10);
    const int64_t memory = total / 9 * 10;
    const auto plan = [&](int64_t length) {
      return PlanGolden(golden,
                        {.max_seq_len = length, .memory_bytes = memory, .prefill_chunk = 32});
    };
    const auto wanted = plan(most);
    if (wanted.ok()) {
      RC_ASSERT((*wanted)->max_seq_len == most);
      RC_ASSERT((*wanted)->memory.Total() <= Budget(memory));
      return;
    }
    ++refused;
    RC_ASSERT(wanted.code() == StatusCode::kDoesNotFit);
    RC_ASSERT(ExitCodeOf(wanted.code()) == 4);
    const int64_t longest = LongestIn(wanted.message());
    RC_ASSERT(longest >= 0);
    RC_ASSERT(longest < most);
    if (longest > 0) {
      const auto fits = plan(longest);
      RC_ASSERT(fits.ok());
      RC_ASSERT((*fits)->max_seq_len == longest);
      RC_ASSERT((*fits)->memory.Total() <= Budget(memory));
    }
    const auto longer = plan(longest + 1);
    RC_ASSERT(!longer.ok());
    RC_ASSERT(longer.code() == StatusCode::kDoesNotFit);
    RC_ASSERT(LongestIn(longer.message()) == longest);
  }));
  if (high > low) EXPECT_GT(refused, 0);
}

TEST_P(FitTest, AutomaticallyTheLongestThatFits) {
  const std::string golden = GetParam();
  const auto plan = [&](int64_t length, int64_t memory) {
    return PlanGolden(golden, {.max_seq_len = length, .memory_bytes = memory, .prefill_chunk = 32});
  };
  const auto forty = plan(40, 0);
  ASSERT_TRUE(forty.ok()) << forty.message();
  // Room for forty tokens and not for much more.
  const int64_t memory = (*forty)->memory.Total() / 9 * 10 + 10;
  const auto automatic = plan(0, memory);
  ASSERT_TRUE(automatic.ok()) << automatic.message();
  EXPECT_GE((*automatic)->max_seq_len, 40);
  EXPECT_LE((*automatic)->memory.Total(), Budget(memory));
  const Decision* decision = DecisionOf(**automatic, "max_seq_len");
  ASSERT_NE(decision, nullptr);
  EXPECT_EQ(decision->requested, "auto");
  EXPECT_EQ(decision->resolved, std::to_string((*automatic)->max_seq_len));
  if (decision->why == "what fits") {
    EXPECT_FALSE(plan((*automatic)->max_seq_len + 1, memory).ok());
  } else {
    EXPECT_EQ((*automatic)->memory.cache, (*forty)->memory.cache) << "states do not grow";
  }
}

INSTANTIATE_TEST_SUITE_P(All, FitTest,
                         testing::Values("llama", "deepseek_v2", "lfm2", "t5", "bert", "mamba2"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Fit, TooSmallForOneToken) {
  const auto plan = PlanGolden("llama", {.memory_bytes = 1000});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.code(), StatusCode::kDoesNotFit);
  EXPECT_EQ(LongestIn(plan.message()), 0);
  ExpectWords(plan.message(), {"llama", "weights of", "more memory"});
}

TEST(Fit, WithRoomForAllTheModelsMaximum) {
  struct Row {
    const char* golden;
    int64_t expected;
    const char* why;
  };
  // 128: max_position_embeddings. T5 and Mamba-2 state none; dynamic ropes stretch.
  for (const Row& row :
       {Row{"llama", 128, "the model's maximum"}, Row{"mixtral", 128, "the model's maximum"},
        Row{"t5", 32768, "the model states none"}, Row{"mamba2", 32768, "the model states none"},
        Row{"llama_rope_dynamic", 32768, "the model states none"}}) {
    SCOPED_TRACE(row.golden);
    const auto plan = PlanGolden(row.golden, {.memory_bytes = int64_t{64} << 30});
    ASSERT_TRUE(plan.ok()) << plan.message();
    EXPECT_EQ((*plan)->max_seq_len, row.expected);
    const Decision* decision = DecisionOf(**plan, "max_seq_len");
    ASSERT_NE(decision, nullptr);
    EXPECT_EQ(decision->why, row.why);
  }
}

TEST(Fit, MoreThanTheModelAllowsIsAUsageError) {
  EXPECT_TRUE(PlanGolden("llama", {.max_seq_len = 128}).ok());
  const auto plan = PlanGolden("llama", {.max_seq_len = 129});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.code(), StatusCode::kUsage);
  ExpectWords(plan.message(), {"129", "--max-seq-len", "at most 128", "max_position_embeddings"});
  EXPECT_TRUE(PlanGolden("llama_rope_dynamic", {.max_seq_len = 129}).ok());
}

TEST(Fit, TheCachesTokensLimitTheContext) {
  const auto automatic = PlanGolden("llama", {.kv_tokens = 48});
  ASSERT_TRUE(automatic.ok()) << automatic.message();
  EXPECT_EQ((*automatic)->max_seq_len, 48);
  const auto wanted = PlanGolden("llama", {.max_seq_len = 49, .kv_tokens = 48});
  ASSERT_FALSE(wanted.ok());
  EXPECT_EQ(wanted.code(), StatusCode::kDoesNotFit);
  EXPECT_EQ(LongestIn(wanted.message()), 48);
  const auto wide = PlanGolden("llama", {.max_seq_len = 16, .kv_tokens = 128, .page_tokens = 16});
  ASSERT_TRUE(wide.ok()) << wide.message();
  EXPECT_EQ((*wide)->max_seq_len, 16);
  EXPECT_EQ((*wide)->cache_plan.groups[0].pages, 8);
}

TEST(Fit, TheFractionOfTheMemoryIsAChoice) {
  const auto whole = PlanGolden("llama", {.max_seq_len = 64});
  ASSERT_TRUE(whole.ok()) << whole.message();
  const int64_t total = (*whole)->memory.Total();
  const auto plan = [&](const char* fraction, int64_t memory) {
    return PlanGolden("llama",
                      {.kv_fraction = fraction, .max_seq_len = 64, .memory_bytes = memory});
  };
  EXPECT_TRUE(plan("1", total).ok());
  EXPECT_FALSE(plan("1", total - 1).ok());
  EXPECT_TRUE(plan("0.5", 2 * total).ok());
  EXPECT_FALSE(plan("0.5", 2 * total - 2).ok());
  ExpectWords(plan("0.5", total).message(), {"may be used", "kv-fraction = 0.5", "--kv-fraction"});
  ExpectWords(plan("auto", total).message(), {"kv-fraction = 0.9", "default"});
  for (const char* wrong : {"0", "1.5", "-1"}) {
    const auto refused = plan(wrong, total);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.code(), StatusCode::kUsage);
    ExpectWords(refused.message(), {"kv-fraction", wrong});
  }
}

// Several sequences: as many tokens as all can have, or as many as fit, and one whole context at
// the least.
TEST(Fit, SeveralSequencesShareWhatFits) {
  const auto plan = [](int64_t sequences, int64_t kv_tokens, int64_t memory) {
    return PlanGolden("llama", {.kv_fraction = "1",
                                .max_seq_len = 64,
                                .kv_tokens = kv_tokens,
                                .max_sequences = sequences,
                                .page_tokens = 16,
                                .memory_bytes = memory});
  };
  const auto all = plan(5, 0, 0);
  ASSERT_TRUE(all.ok()) << all.message();
  EXPECT_EQ((*all)->sizing.tokens, 5 * 64);
  EXPECT_EQ((*all)->cache_plan.groups[0].pages, 5 * 64 / 16 + 4);
  EXPECT_EQ((*all)->cache_plan.groups[0].max_pages, 4);
  EXPECT_EQ(DecisionOf(**all, "kv_tokens"), nullptr);
  const auto least = plan(5, 64, 0);
  ASSERT_TRUE(least.ok()) << least.message();
  const int64_t low = (*least)->memory.Total();
  const int64_t high = (*all)->memory.Total();
  ASSERT_GT(high, low);
  for (const int64_t memory : {high, high - 1, (low + high) / 2, low + 1}) {
    const auto cut = plan(5, 0, memory);
    ASSERT_TRUE(cut.ok()) << cut.message();
    EXPECT_LE((*cut)->memory.Total(), memory);
    EXPECT_EQ((*cut)->max_seq_len, 64);
    const int64_t tokens = (*cut)->sizing.tokens;
    const Decision* decision = DecisionOf(**cut, "kv_tokens");
    ASSERT_EQ(decision != nullptr, memory < high);
    if (decision == nullptr) continue;
    EXPECT_EQ(decision->resolved, std::to_string(tokens));
    // No more tokens would fit: those of the next page.
    const auto more = plan(5, tokens + 1, memory);
    EXPECT_FALSE(more.ok()) << tokens;
  }
  const auto none = plan(5, 0, low - 1);
  ASSERT_FALSE(none.ok());
  EXPECT_GT(LongestIn(none.message()), 0);
  EXPECT_LT(LongestIn(none.message()), 64);
}

TEST(Fit, SmallerRowsMakeRoomForMore) {
  const auto sixty = PlanGolden("llama", {.max_seq_len = 64, .page_tokens = 16});
  ASSERT_TRUE(sixty.ok());
  const int64_t memory = (*sixty)->memory.Total() * 10 / 9;
  const test::Wish wish = {.page_tokens = 16, .memory_bytes = memory};
  test::Wish small = wish;
  small.kv_dtype = "bf16";
  const auto f32 = PlanGolden("llama", wish);
  const auto bf16 = PlanGolden("llama", small);
  ASSERT_TRUE(f32.ok() && bf16.ok()) << f32.message() << bf16.message();
  EXPECT_LT((*f32)->max_seq_len, 128);
  EXPECT_GT((*bf16)->max_seq_len, (*f32)->max_seq_len);
}

}  // namespace
}  // namespace tenon
