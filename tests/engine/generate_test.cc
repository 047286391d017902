// Generate over a golden model: the reference's greedy tokens, and each way in which an answer
// ends.
#include "tenon/engine/generate.h"

#include <gtest/gtest.h>

#include "engine/runners.h"
#include "support/words.h"

namespace tenon {
namespace {

using test::ExpectWords;
using test::RunnerFor;

class GenerateTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    tokenizer_ =
        *Tokenizer::FromFile(test::DataPath("goldens/tokenizers_tiny/gpt2/tokenizer.json"));
    golden_ = std::make_unique<test::Golden>(test::DataPath("goldens/llama"));
  }
  static void TearDownTestSuite() {
    tokenizer_.reset();
    golden_.reset();
  }
  void SetUp() override {
    Load({});
    ASSERT_GE(Greedy().size(), 4u) << "enough safe tokens to test with";
  }
  void Load(const test::Wish& wish) { runner_ = RunnerFor("llama", wish); }

  const test::GoldenPrompt& Prompt() const { return golden_->prompts[1]; }
  // The reference's tokens up to the first that is nearly a tie.
  std::vector<int32_t> Greedy() const {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < Prompt().greedy.size() && Prompt().greedy_margin[i] > 1e-3f; ++i) {
      ids.push_back(Prompt().greedy[i]);
    }
    return ids;
  }
  std::vector<int32_t> Greedy(size_t count) const {
    std::vector<int32_t> ids = Greedy();
    ids.resize(std::min(count, ids.size()));
    return ids;
  }
  static std::string TextOf(const std::vector<int32_t>& ids) { return *tokenizer_->Decode(ids); }
  Generated Answer(const GenerateOptions& options, const OnText& on_text = {}) {
    auto generated = Generate(*runner_, tokenizer_, Prompt().input_ids, options, on_text);
    EXPECT_TRUE(generated.ok()) << generated.message();
    return generated.ok() ? *std::move(generated) : Generated();
  }

  static std::shared_ptr<const Tokenizer> tokenizer_;
  static std::unique_ptr<test::Golden> golden_;
  std::unique_ptr<ModelRunner> runner_;
};
std::shared_ptr<const Tokenizer> GenerateTest::tokenizer_;
std::unique_ptr<test::Golden> GenerateTest::golden_;

TEST_F(GenerateTest, TheWantedNumberOfTheReferencesTokens) {
  for (size_t count = 1; count <= Greedy().size(); ++count) {
    runner_->Reset();
    std::string streamed;
    const Generated answer =
        Answer({.max_new_tokens = static_cast<int64_t>(count)}, [&](std::string_view text) {
          streamed += text;
          return true;
        });
    EXPECT_EQ(answer.ids, Greedy(count));
    EXPECT_EQ(answer.reason, FinishReason::kLength);
    EXPECT_EQ(answer.text, TextOf(Greedy(count)));
    EXPECT_EQ(streamed, answer.text);
    EXPECT_EQ(answer.prompt_tokens, static_cast<int64_t>(Prompt().input_ids.size()));
    // The last token was chosen but not run.
    EXPECT_EQ(runner_->length(), answer.prompt_tokens + static_cast<int64_t>(count) - 1);
  }
}

TEST_F(GenerateTest, AnyOfTheEndTokensEndsTheAnswer) {
  const std::vector<int32_t> greedy = Greedy();
  size_t first = greedy.size() - 1;  // of the token that ends it
  while (std::find(greedy.begin(), greedy.end(), greedy[first]) !=
         greedy.begin() + static_cast<long>(first)) {
    --first;
  }
  const Generated answer = Answer({.end_tokens = {greedy[first], 255, 254}});
  EXPECT_EQ(answer.reason, FinishReason::kEnd);
  EXPECT_EQ(answer.ids, Greedy(first)) << "the end token is not among them";
  EXPECT_EQ(answer.text, TextOf(Greedy(first)));
}

TEST_F(GenerateTest, AnEndTokenAtOnceIsAnEmptyAnswer) {
  int calls = 0;
  const Generated answer =
      Answer({.end_tokens = {255, Greedy()[0]}}, [&](std::string_view /*text*/) {
        ++calls;
        return true;
      });
  EXPECT_EQ(answer.reason, FinishReason::kEnd);
  EXPECT_TRUE(answer.ids.empty());
  EXPECT_EQ(answer.text, "");
  EXPECT_EQ(calls, 0);
}

TEST_F(GenerateTest, AStopStringAcrossTokens) {
  const std::string whole = TextOf(Greedy());
  const std::string before = TextOf(Greedy(1));
  // From the last byte of the first token's text to the first of the third's.
  ASSERT_FALSE(before.empty());
  const std::string stop =
      whole.substr(before.size() - 1, TextOf(Greedy(2)).size() - before.size() + 2);
  ASSERT_EQ(whole.find(stop), before.size() - 1) << "no earlier occurrence";
  std::string streamed;
  const Generated answer = Answer({.stop = {"no such text", stop}}, [&](std::string_view text) {
    streamed += text;
    return true;
  });
  EXPECT_EQ(answer.reason, FinishReason::kStopString);
  EXPECT_EQ(answer.text, whole.substr(0, before.size() - 1));
  EXPECT_EQ(streamed, answer.text) << "nothing of the stop string went out";
  EXPECT_EQ(answer.ids, Greedy(3));
}

TEST_F(GenerateTest, TextHeldBackComesOutAtTheEnd) {
  // Every text of the answer could begin this stop string, which never comes.
  const std::string never = TextOf(Greedy(3)) + "\x01 never";
  std::string streamed;
  const Generated answer =
      Answer({.max_new_tokens = 3, .stop = {never}}, [&](std::string_view text) {
        streamed += text;
        return true;
      });
  EXPECT_EQ(answer.reason, FinishReason::kLength);
  EXPECT_EQ(answer.text, TextOf(Greedy(3)));
  EXPECT_EQ(streamed, answer.text);
}

TEST_F(GenerateTest, AFullContextEndsWithReasonLength) {
  const auto prompt = static_cast<int64_t>(Prompt().input_ids.size());
  Load({.max_seq_len = prompt + 2});
  const Generated answer = Answer({});
  EXPECT_EQ(answer.reason, FinishReason::kContextFull);
  EXPECT_EQ(NameOf(answer.reason), "length");
  EXPECT_EQ(answer.ids, Greedy(3)) << "two that were run and one chosen from them";
  EXPECT_EQ(runner_->length(), prompt + 2);
}

TEST_F(GenerateTest, TheCallerMayCancel) {
  int calls = 0;
  const Generated answer = Answer({}, [&](std::string_view /*text*/) { return ++calls < 2; });
  EXPECT_EQ(answer.reason, FinishReason::kCancelled);
  EXPECT_EQ(calls, 2) << "not called again after it said no";
  EXPECT_EQ(answer.text, TextOf(answer.ids));
  EXPECT_EQ(answer.ids, Greedy(answer.ids.size()));
}

TEST_F(GenerateTest, CancellingKeepsWhatIsHeldBackToItself) {
  // The seventh token finishes a broken character and adds a quote, which may begin the stop
  // string: the character goes out, and then the caller says no.
  const std::string seven = TextOf(Greedy(7));
  ASSERT_TRUE(seven.ends_with("\xEF\xBF\xBD\"")) << seven;
  const std::string wanted = seven.substr(0, seven.size() - 1);
  std::string streamed;
  const Generated answer = Answer({.stop = {"\"\x01"}}, [&](std::string_view text) {
    streamed += text;
    return streamed != wanted;
  });
  EXPECT_EQ(answer.reason, FinishReason::kCancelled);
  EXPECT_EQ(answer.ids, Greedy(7));
  EXPECT_EQ(answer.text, wanted);
  EXPECT_EQ(streamed, wanted);
}

TEST_F(GenerateTest, SamplingIsReproducible) {
  const GenerateOptions options = {.max_new_tokens = 12, .sampling = {.temperature = 2, .seed = 5}};
  const Generated first = Answer(options);
  runner_->Reset();
  EXPECT_EQ(Answer(options).ids, first.ids);
  runner_->Reset();
  EXPECT_NE(Answer({.max_new_tokens = 12, .sampling = {.temperature = 2, .seed = 6}}).ids,
            first.ids);
}

TEST_F(GenerateTest, ContinuesTheSequenceThatIsThere) {
  const std::vector<int32_t>& ids = Prompt().input_ids;
  ASSERT_TRUE(runner_->Extend(std::span(ids).first(4), WantLogits::kNone).ok());
  const auto rest =
      Generate(*runner_, tokenizer_, std::span(ids).subspan(4), {.max_new_tokens = 3}, {});
  ASSERT_TRUE(rest.ok()) << rest.message();
  EXPECT_EQ(rest->ids, Greedy(3));
  EXPECT_EQ(rest->prompt_tokens, static_cast<int64_t>(ids.size()) - 4);
}

TEST_F(GenerateTest, ErrorsLeaveTheSequenceAlone) {
  const auto generate = [&](std::span<const int32_t> prompt, const GenerateOptions& options) {
    return Generate(*runner_, tokenizer_, prompt, options, {}).status();
  };
  const Status sampling = generate(Prompt().input_ids, {.sampling = {.top_p = 2}});
  EXPECT_EQ(sampling.code(), StatusCode::kUsage);
  ExpectWords(sampling.message(), {"top-p"});
  EXPECT_EQ(generate({}, {}).code(), StatusCode::kUsage);
  EXPECT_EQ(generate(std::vector<int32_t>{1, 256}, {}).code(), StatusCode::kUsage);
  EXPECT_EQ(generate(std::vector<int32_t>(129, 1), {}).code(), StatusCode::kDoesNotFit);
  EXPECT_EQ(runner_->length(), 0);
  EXPECT_EQ(Answer({.max_new_tokens = 3}).ids, Greedy(3));
}

TEST(FinishReason, Names) {
  EXPECT_EQ(NameOf(FinishReason::kEnd), "end");
  EXPECT_EQ(NameOf(FinishReason::kStopString), "stop");
  EXPECT_EQ(NameOf(FinishReason::kLength), "length");
  EXPECT_EQ(NameOf(FinishReason::kCancelled), "cancelled");
}

}  // namespace
}  // namespace tenon
