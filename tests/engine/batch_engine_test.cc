// Many sequences at once: what each gets is what it gets alone, whatever runs beside it, is reused,
// forked, or computed again; and what a request may not ask for.
#include "tenon/engine/batch_engine.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "engine/runners.h"
#include "support/words.h"

namespace tenon {
namespace {

using test::ExpectWords;
using test::Wish;

std::unique_ptr<StepRunner> StepsFor(const std::string& golden, const Wish& wish) {
  auto plan = test::PlanGolden(golden, wish);
  TN_CHECK(plan.ok(), plan.message().c_str());
  auto steps = StepRunner::Load(*std::move(plan));
  TN_CHECK(steps.ok(), steps.message().c_str());
  return *std::move(steps);
}

std::unique_ptr<BatchEngine> EngineOn(StepRunner& steps, const BatchOptions& options = {}) {
  auto engine = BatchEngine::Create(steps, options);
  TN_CHECK(engine.ok(), engine.message().c_str());
  return *std::move(engine);
}

std::vector<int32_t> Prompt(int64_t length, int32_t seed) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < length; ++i)
    ids.push_back(static_cast<int32_t>((i * 37 + seed * 101 + i * i % 13) % 180) + 1);
  return ids;
}

// What the request gets alone: greedy ids and the logits they were chosen from.
struct Alone {
  std::vector<int32_t> ids;
  std::vector<float> logits;
};
Alone RunAlone(ModelRunner& runner, const std::vector<int32_t>& prompt, int64_t count) {
  Alone alone;
  runner.Reset();
  EXPECT_TRUE(runner.Extend(prompt, WantLogits::kLast).ok());
  for (int64_t i = 0; i < count; ++i) {
    const auto row = runner.logits();
    alone.logits.insert(alone.logits.end(), row.begin(), row.end());
    alone.ids.push_back(
        static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
    if (i + 1 < count) {
      EXPECT_TRUE(runner.Extend({&alone.ids.back(), 1}, WantLogits::kLast).ok());
    }
  }
  return alone;
}

double WorstDifference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return worst;
}

class BatchEngineTest : public testing::TestWithParam<std::string> {};

// Prompts of many lengths, in a cache too small for all of them: chunks, mixed steps, preemption,
// recomputation, reuse.
TEST_P(BatchEngineTest, EverySequenceGetsWhatItGetsAlone) {
  const Wish wish = {.max_seq_len = 120,
                     .kv_tokens = 160,
                     .max_sequences = 4,
                     .page_tokens = 16,
                     .prefill_chunk = 24};
  const auto steps = StepsFor(GetParam(), wish);
  const auto runner = test::RunnerFor(GetParam(), {});
  const auto engine = EngineOn(*steps);
  std::map<int64_t, Alone> expected;
  for (const int64_t length : {1, 40, 7, 70, 33, 24, 90, 2}) {
    BatchRequest request;
    request.prompt = Prompt(length, static_cast<int32_t>(length));
    request.max_new_tokens = 12;
    request.keep_logits = KeepLogits::kGenerated;
    const auto id = engine->Submit(request);
    ASSERT_TRUE(id.ok()) << id.message();
    expected[*id] = RunAlone(*runner, request.prompt, 12);
  }
  ASSERT_TRUE(engine->Run().ok());
  const auto results = engine->TakeFinished();
  ASSERT_EQ(results.size(), expected.size());
  for (const BatchResult& result : results) {
    EXPECT_TRUE(result.status.ok()) << result.status.message();
    const Alone& alone = expected.at(result.id);
    EXPECT_EQ(result.answers[0].reason, FinishReason::kLength);
    EXPECT_LE(WorstDifference(result.answers[0].logits, alone.logits), 2e-4)
        << "prompt of " << result.prompt_tokens;
    EXPECT_EQ(result.answers[0].ids, alone.ids) << "prompt of " << result.prompt_tokens;
  }
  EXPECT_GT(engine->stats().mixed_steps, 0);
  EXPECT_GT(engine->stats().most_sequences, 1);
  EXPECT_TRUE(steps->cache().Check().ok());
}

INSTANTIATE_TEST_SUITE_P(Goldens, BatchEngineTest,
                         testing::Values("llama", "llama_hd64", "mixtral", "deepseek_v2",
                                         "llama_rope_dynamic", "mistral_hd80_window", "llama4_text",
                                         "gpt_oss", "lfm2", "mamba2"),
                         [](const auto& test) { return test.param; });

struct Outcome {
  std::vector<BatchResult> results;
  BatchStats stats;
};
Outcome RunAll(StepRunner& steps, const std::vector<BatchRequest>& requests,
               const BatchOptions& options = {}) {
  const auto engine = EngineOn(steps, options);
  for (const BatchRequest& request : requests) EXPECT_TRUE(engine->Submit(request).ok());
  EXPECT_TRUE(engine->Run().ok());
  Outcome outcome{engine->TakeFinished(), engine->stats()};
  std::sort(outcome.results.begin(), outcome.results.end(),
            [](const BatchResult& a, const BatchResult& b) { return a.id < b.id; });
  return outcome;
}

TEST(BatchEngine, ACacheThatIsTooSmallMakesSequencesWait) {
  const auto steps = StepsFor("llama", {.max_seq_len = 96,
                                        .kv_tokens = 96,
                                        .max_sequences = 4,
                                        .page_tokens = 16,
                                        .prefill_chunk = 32});
  std::vector<BatchRequest> requests(4);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt = Prompt(20, static_cast<int32_t>(i));
    requests[i].max_new_tokens = 50;
  }
  const Outcome together = RunAll(*steps, requests);
  EXPECT_GT(together.stats.preemptions, 0);
  for (size_t i = 0; i < requests.size(); ++i) {
    const Outcome alone = RunAll(*steps, {requests[i]});
    EXPECT_EQ(alone.stats.preemptions, 0);
    EXPECT_EQ(together.results[i].answers[0].ids, alone.results[0].answers[0].ids) << i;
  }
}

TEST(BatchEngine, PrefixesAreComputedOnce) {
  const auto steps = StepsFor("llama", {.max_seq_len = 128, .max_sequences = 2, .page_tokens = 16});
  BatchRequest first;
  first.prompt = Prompt(100, 1);
  first.keep_logits = KeepLogits::kAll;
  BatchRequest second = first;
  second.prompt = Prompt(100, 1);
  second.prompt.resize(70);
  second.prompt.push_back(5);
  second.keep_logits = KeepLogits::kGenerated;
  BatchRequest salted = second;
  salted.salt = 9;
  const Outcome cold = RunAll(*steps, {second}, {.reuse_prefixes = false});
  EXPECT_EQ(cold.stats.reused_tokens, 0);
  static_cast<void>(RunAll(*steps, {first}));
  const Outcome other = RunAll(*steps, {salted});
  EXPECT_EQ(other.results[0].reused_tokens, 0);
  const Outcome warm = RunAll(*steps, {second});
  EXPECT_GE(warm.results[0].reused_tokens, 64);
  EXPECT_LE(warm.results[0].reused_tokens, 70);
  EXPECT_EQ(warm.results[0].answers[0].ids, cold.results[0].answers[0].ids);
  EXPECT_LE(WorstDifference(warm.results[0].answers[0].logits, cold.results[0].answers[0].logits),
            2e-4);
  // A request for every row's logits gets them, cached prefix or not.
  const Outcome again = RunAll(*steps, {first});
  EXPECT_EQ(again.results[0].answers[0].logits.size(),
            static_cast<size_t>((100 + first.max_new_tokens - 1) * steps->vocab()));
}

TEST(BatchEngine, CopiesShareTheirPrompt) {
  const auto steps = StepsFor("llama", {.max_seq_len = 100, .max_sequences = 3, .page_tokens = 16});
  BatchRequest request;
  request.prompt = Prompt(37, 4);
  request.max_new_tokens = 20;
  request.sampling = {.temperature = 1.5, .seed = 11};
  request.copies = 3;
  const Outcome three = RunAll(*steps, {request}, {.reuse_prefixes = false});
  ASSERT_EQ(three.results[0].answers.size(), 3u);
  // 37 rows of the prompt, once, and 19 for each answer.
  EXPECT_EQ(three.stats.rows, 37 + 3 * 19);
  for (uint64_t i = 0; i < 3; ++i) {
    BatchRequest one = request;
    one.copies = 1;
    one.sampling.seed = 11 + i;
    EXPECT_EQ(RunAll(*steps, {one}).results[0].answers[0].ids, three.results[0].answers[i].ids);
  }
  EXPECT_NE(three.results[0].answers[0].ids, three.results[0].answers[1].ids);
  EXPECT_TRUE(steps->cache().Check().ok());
}

TEST(BatchEngine, CancelledRequestsEndAtOnce) {
  const auto steps = StepsFor("llama", {.max_seq_len = 100, .max_sequences = 2});
  const auto engine = EngineOn(*steps);
  BatchRequest request;
  request.prompt = Prompt(10, 1);
  request.max_new_tokens = 50;
  std::vector<int64_t> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(*engine->Submit(request));
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(*engine->Step());
  EXPECT_TRUE(engine->Cancel(ids[0]));
  EXPECT_TRUE(engine->Cancel(ids[2]));  // waits
  EXPECT_FALSE(engine->Cancel(ids[0]));
  EXPECT_FALSE(engine->Cancel(99));
  const auto cancelled = engine->TakeFinished();
  ASSERT_EQ(cancelled.size(), 2u);
  EXPECT_EQ(cancelled[0].answers[0].reason, FinishReason::kCancelled);
  EXPECT_EQ(cancelled[0].answers[0].ids.size(), 5u);
  EXPECT_TRUE(cancelled[1].answers[0].ids.empty());
  ASSERT_TRUE(engine->Run().ok());
  const auto rest = engine->TakeFinished();
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].answers[0].ids.size(), 50u);
  EXPECT_EQ(engine->running() + engine->waiting(), 0);
}

TEST(BatchEngine, EndsOfAnswers) {
  const auto steps = StepsFor("llama", {.max_seq_len = 40, .max_sequences = 2});
  BatchRequest request;
  request.prompt = Prompt(30, 1);
  request.max_new_tokens = 50;
  const Outcome full = RunAll(*steps, {request});
  EXPECT_EQ(full.results[0].answers[0].reason, FinishReason::kContextFull);
  EXPECT_EQ(full.results[0].answers[0].ids.size(), 11u);  // the last one needs no row
  request.end_tokens = {full.results[0].answers[0].ids[3]};
  const Outcome ended = RunAll(*steps, {request});
  EXPECT_EQ(ended.results[0].answers[0].reason, FinishReason::kEnd);
  EXPECT_LE(ended.results[0].answers[0].ids.size(), 3u);
}

TEST(BatchEngine, WhatCannotBe) {
  const auto steps = StepsFor("llama", {.max_seq_len = 40, .max_sequences = 2});
  const auto engine = EngineOn(*steps);
  const auto refused = [&](BatchRequest request, std::initializer_list<std::string_view> words) {
    const auto id = engine->Submit(std::move(request));
    ASSERT_FALSE(id.ok());
    ExpectWords(id.message(), words);
  };
  refused({}, {"no tokens"});
  refused({.prompt = {100000}}, {"token id 100000", "allowed: 0 to 255"});
  refused({.prompt = Prompt(41, 1)}, {"41 tokens", "holds 40", "--max-seq-len"});
  refused({.prompt = {1}, .copies = 3}, {"copies = 3", "2 sequences", "--max-sequences 3"});
  refused({.prompt = {1}, .copies = 0}, {"copies = 0", "1 and more"});
  refused({.prompt = {1}, .max_new_tokens = 0}, {"max_new_tokens = 0"});
  refused({.prompt = {1}, .sampling = {.top_p = 2}}, {"top-p = 2", "at most 1"});
  EXPECT_FALSE(*engine->Step());
  const auto encoder = StepsFor("bert", {});
  const auto none = BatchEngine::Create(*encoder);
  ASSERT_FALSE(none.ok());
  ExpectWords(none.message(), {"causal language model"});
}

// --- deterministic: bits, not tolerances

class DeterministicTest : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(DeterministicTest, AnyBatchGivesTheSameBits) {
  const auto& [golden, backend] = GetParam();
  const auto steps = StepsFor(golden, {.backend = backend,
                                       .max_seq_len = 120,
                                       .kv_tokens = 400,
                                       .max_sequences = 5,
                                       .page_tokens = 16,
                                       .prefill_chunk = 64,
                                       .threads = 2,
                                       .deterministic = true});
  std::vector<BatchRequest> requests;
  std::vector<std::vector<float>> alone;
  for (const int64_t length : {50, 3, 77, 20, 31}) {
    BatchRequest request;
    request.prompt = Prompt(length, static_cast<int32_t>(length));
    request.max_new_tokens = 6;
    request.keep_logits = KeepLogits::kAll;
    requests.push_back(request);
    alone.push_back(RunAll(*steps, {request}).results[0].answers[0].logits);
  }
  EXPECT_TRUE(rc::check([&] {
    std::vector<BatchRequest> some;
    std::vector<size_t> which;
    for (size_t i = 0; i < requests.size(); ++i) {
      if (*rc::gen::inRange(0, 4) == 0) continue;
      which.push_back(i);
    }
    std::rotate(which.begin(),
                which.begin() + *rc::gen::inRange<int>(0, 1 + static_cast<int>(which.size()) / 2),
                which.end());
    for (const size_t i : which) some.push_back(requests[i]);
    const Outcome outcome = RunAll(*steps, some, {.step_rows = *rc::gen::inRange<int64_t>(5, 64)});
    for (size_t i = 0; i < some.size(); ++i)
      RC_ASSERT(outcome.results[i].answers[0].logits == alone[which[i]]);
  }));
}

INSTANTIATE_TEST_SUITE_P(Goldens, DeterministicTest,
                         testing::Combine(testing::Values("llama_hd64", "mixtral", "deepseek_v2",
                                                          "mistral_hd80_window", "gpt_oss"),
                                          testing::Values("NATIVE", "FLASHINFER", "VANILLA")),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_" + std::get<1>(test.param);
                         });

TEST(Deterministic, NarrowProductsAreRefused) {
  const auto plan = test::PlanGolden("llama", {.compute = "bf16", .deterministic = true});
  ASSERT_FALSE(plan.ok());
  ExpectWords(plan.message(), {"compute = bf16", "deterministic", "fix: --compute fp32"});
}

}  // namespace
}  // namespace tenon
