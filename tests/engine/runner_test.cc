// ModelRunner: a sequence is the same however it was brought in, Reset forgets everything, and what
// is refused leaves no trace.
#include "tenon/engine/model_runner.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <filesystem>

#include "checkpoint/fixtures.h"
#include "engine/runners.h"
#include "support/words.h"

namespace tenon {
namespace {

using test::ExpectWords;
using test::Golden;
using test::Logits;
using test::RunnerFor;

Golden GoldenOf(const std::string& name) { return Golden(test::DataPath("goldens/" + name)); }

// Attention, latent attention, states, both, experts, an encoder beside.
class RunnerTest : public testing::TestWithParam<const char*> {};

// [rows, vocab] of the reference.
void ExpectReference(std::span<const float> logits, std::span<const float> expected,
                     const Golden& golden) {
  ASSERT_EQ(logits.size(), expected.size());
  const test::Difference d = test::Compare(logits, expected, golden.rtol);
  EXPECT_LE(d.worst, golden.atol) << "at " << d.index;
}

TEST_P(RunnerTest, AnyCutOfThePromptGivesTheReferencesLogits) {
  const Golden golden = GoldenOf(GetParam());
  const test::GoldenPrompt& prompt = golden.prompts[2];
  const auto runner = RunnerFor(GetParam(), {.prefill_chunk = 11, .mla_context_chunk = 16});
  const std::vector<int32_t>& ids =
      runner->has_encoder() ? prompt.decoder_input_ids : prompt.input_ids;
  const auto vocab = static_cast<size_t>(runner->vocab());
  const auto last = std::span(prompt.logits).last(vocab);
  EXPECT_TRUE(rc::check("cuts do not matter", [&] {
    runner->Reset();
    if (runner->has_encoder()) RC_ASSERT(runner->Encode(prompt.input_ids).ok());
    size_t at = 0;
    while (at < ids.size()) {
      const auto left = ids.size() - at;
      const auto count = std::min(left, *rc::gen::inRange<size_t>(1, 30));
      const auto part = std::span(ids).subspan(at, count);
      RC_ASSERT(runner->Extend(part, count == left ? WantLogits::kLast : WantLogits::kNone).ok());
      at += count;
      RC_ASSERT(runner->length() == static_cast<int64_t>(at));
    }
    ExpectReference(runner->logits(), last, golden);
    RC_ASSERT(!testing::Test::HasFailure());
  }));
}

TEST_P(RunnerTest, ResetForgetsEverything) {
  const Golden golden = GoldenOf(GetParam());
  const auto runner = RunnerFor(GetParam());
  const auto run = [&](const test::GoldenPrompt& prompt) {
    runner->Reset();
    EXPECT_EQ(runner->length(), 0);
    if (runner->has_encoder()) {
      EXPECT_TRUE(runner->Encode(prompt.input_ids).ok());
    }
    EXPECT_TRUE(runner
                    ->Extend(runner->has_encoder() ? prompt.decoder_input_ids : prompt.input_ids,
                             WantLogits::kAll)
                    .ok());
    return Logits(*runner);
  };
  const std::vector<float> fresh = run(golden.prompts[1]);
  run(golden.prompts[2]);
  EXPECT_EQ(run(golden.prompts[1]), fresh);  // to the bit
}

TEST_P(RunnerTest, TheWantedLogits) {
  const Golden golden = GoldenOf(GetParam());
  const test::GoldenPrompt& prompt = golden.prompts[1];
  const auto runner = RunnerFor(GetParam(), {.prefill_chunk = 4});
  const std::vector<int32_t>& ids =
      runner->has_encoder() ? prompt.decoder_input_ids : prompt.input_ids;
  const auto vocab = static_cast<size_t>(runner->vocab());
  for (const auto& [want, rows] : {std::pair{WantLogits::kNone, size_t{0}},
                                   {WantLogits::kLast, size_t{1}},
                                   {WantLogits::kAll, ids.size()}}) {
    runner->Reset();
    if (runner->has_encoder()) {
      ASSERT_TRUE(runner->Encode(prompt.input_ids).ok());
    }
    ASSERT_TRUE(runner->Extend(ids, want).ok());
    ExpectReference(runner->logits(), std::span(prompt.logits).last(rows * vocab), golden);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RunnerTest,
                         testing::Values("llama", "deepseek_v2", "mamba2", "lfm2", "mixtral", "t5"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ModelRunner, RefusedTokensLeaveNoTrace) {
  const Golden golden = GoldenOf("llama");
  const std::vector<int32_t>& ids = golden.prompts[1].input_ids;
  const auto runner = RunnerFor("llama", {.max_seq_len = 20});
  ASSERT_EQ(runner->vocab(), 256);
  ASSERT_TRUE(runner->Extend(std::span(ids).first(5), WantLogits::kNone).ok());
  const auto refuse = [&](const std::vector<int32_t>& bad, StatusCode code,
                          std::initializer_list<std::string_view> words) {
    const Status status = runner->Extend(bad, WantLogits::kLast);
    EXPECT_EQ(status.code(), code) << status.message();
    ExpectWords(status.message(), words);
    EXPECT_EQ(runner->length(), 5);
  };
  refuse({1, 2, 256}, StatusCode::kUsage, {"token id 256 at position 2", "0 to 255"});
  refuse({-1}, StatusCode::kUsage, {"token id -1 at position 0", "0 to 255"});
  refuse({std::numeric_limits<int32_t>::max()}, StatusCode::kUsage, {"2147483647"});
  refuse({}, StatusCode::kUsage, {"no tokens"});
  refuse(std::vector<int32_t>(16, 7), StatusCode::kDoesNotFit,
         {"16 tokens", "5 before", "holds 20", "--max-seq-len"});
  ASSERT_TRUE(runner->Extend(std::span(ids).subspan(5), WantLogits::kLast).ok());
  ExpectReference(runner->logits(), std::span(golden.prompts[1].logits).last(256), golden);
}

TEST(ModelRunner, TheContextMayBeFilledToTheLastToken) {
  const auto runner = RunnerFor("llama", {.max_seq_len = 20, .prefill_chunk = 8});
  ASSERT_TRUE(runner->Extend(std::vector<int32_t>(19, 3), WantLogits::kNone).ok());
  ASSERT_TRUE(runner->Extend(std::vector<int32_t>{4}, WantLogits::kLast).ok());
  EXPECT_EQ(runner->length(), 20);
  EXPECT_EQ(runner->Extend(std::vector<int32_t>{4}, WantLogits::kLast).code(),
            StatusCode::kDoesNotFit);
}

TEST(ModelRunner, EncoderInput) {
  const auto runner = RunnerFor("t5", {.max_seq_len = 30});
  ASSERT_TRUE(runner->has_encoder());
  const auto refuse = [&](const std::vector<int32_t>& ids, StatusCode code,
                          std::initializer_list<std::string_view> words) {
    const Status status = runner->Encode(ids);
    EXPECT_EQ(status.code(), code) << status.message();
    ExpectWords(status.message(), words);
  };
  refuse({}, StatusCode::kUsage, {"at least one token"});
  refuse({5, 300}, StatusCode::kUsage, {"300 at position 1", "0 to 255"});
  refuse(std::vector<int32_t>(31, 5), StatusCode::kDoesNotFit, {"31", "30"});
  EXPECT_TRUE(runner->Encode(std::vector<int32_t>(30, 5)).ok());
}

TEST(ModelRunner, ADecoderNeedsItsEncodersOutput) {
  const auto runner = RunnerFor("t5");
  const Status status = runner->Extend(std::vector<int32_t>{0}, WantLogits::kLast);
  EXPECT_EQ(status.code(), StatusCode::kUsage) << status.message();
  ExpectWords(status.message(), {"encoder"});
  EXPECT_EQ(runner->length(), 0);
}

TEST(ModelRunner, AnEncoderOutputIsReplaced) {
  const Golden golden = GoldenOf("t5");
  const auto runner = RunnerFor("t5");
  ASSERT_TRUE(runner->Encode(golden.prompts[2].input_ids).ok());
  runner->Reset();
  ASSERT_TRUE(runner->Encode(golden.prompts[1].input_ids).ok());
  ASSERT_TRUE(runner->Extend(golden.prompts[1].decoder_input_ids, WantLogits::kAll).ok());
  ExpectReference(runner->logits(), golden.prompts[1].logits, golden);
}

TEST(ModelRunner, NeedsWeights) {
  const test::TempDir directory;
  std::filesystem::copy(test::DataPath("goldens/llama/config.json"), directory.path());
  auto plan = test::PlanPath(directory.path());
  ASSERT_TRUE(plan.ok()) << plan.message();
  const auto runner = ModelRunner::Load(*std::move(plan));
  ASSERT_FALSE(runner.ok());
  EXPECT_EQ(runner.code(), StatusCode::kRefused);
  ExpectWords(runner.message(), {"no weights", "fix:"});
}

}  // namespace
}  // namespace tenon
