#include "tenon/tokenizer/chat_template.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>

#include "tokenizer/jinja_support.h"

namespace tenon {
namespace {

using test::ReadGolden;
using test::RenderText;
using test::TemplatePath;

ChatInput InputOf(const Json& golden, const Json& test_case) {
  ChatInput input;
  input.messages = *test_case.Find("messages");
  if (const Json* tools = test_case.Find("tools")) input.tools = *tools;
  input.add_generation_prompt = test_case.Find("add_generation_prompt")->as_bool();
  if (const Json* open = test_case.Find("continue_final_message")) {
    input.continue_final_message = open->as_bool();
  }
  input.kwargs = *test_case.Find("kwargs");
  input.now = golden.Find("now")->as_string();
  return input;
}

// Text or error as the golden says. Messages are the reference's own only where the template raised
// them.
void ExpectGolden(const Result<RenderedChat>& chat, const Json& wanted, const std::string& what) {
  if (const Json* text = wanted.Find("expected")) {
    ASSERT_TRUE(chat.ok()) << what << ": " << chat.message();
    EXPECT_EQ(chat->text, text->as_string()) << what;
    return;
  }
  const Json& error = *wanted.Find("error");
  ASSERT_FALSE(chat.ok()) << what << ": rendered " << chat->text;
  const bool raised = error.Find("raised_by_template")->as_bool();
  if (raised) {
    EXPECT_EQ(chat.code(), StatusCode::kUsage) << what;
    EXPECT_EQ(chat.message(), error.Find("message")->as_string()) << what;
  } else if (error.Find("type")->as_string() != "ValueError") {
    EXPECT_EQ(chat.code(), StatusCode::kRefused) << what << ": " << chat.message();
  }
}

class GoldenTemplate : public testing::TestWithParam<const char*> {};

TEST_P(GoldenTemplate, RendersLikeTheReference) {
  const std::string name = GetParam();
  const Json golden = ReadGolden(name + ".json");
  Result<std::string> source = ReadFile(TemplatePath(name + ".jinja"));
  ASSERT_TRUE(source.ok()) << source.message();
  const Result<ChatTemplate> parsed = ChatTemplate::Parse(*std::move(source), name);
  ASSERT_TRUE(parsed.ok()) << parsed.message();
  int number = 0;
  for (const Json& test_case : golden.Find("cases")->as_array()) {
    const std::string what = name + " case " + std::to_string(number++) + " (" +
                             test_case.Find("name")->as_string() + ")";
    const ChatInput input = InputOf(golden, test_case);
    const Result<RenderedChat> chat = parsed->Render(input);
    ExpectGolden(chat, test_case, what);
    if (const Json* spans = test_case.Find("generation_spans")) {
      Json::Array found;
      for (const auto& [begin, end] : chat->generation_spans) {
        found.push_back(Json(Json::Array{Json(begin), Json(end)}));
      }
      EXPECT_EQ(Json(std::move(found)), *spans) << what;
    }
    // The whole of apply_chat_template, which prepares the messages first.
    if (const Json* whole = test_case.Find("through_apply_chat_template")) {
      ChatInput prepared = input;
      Result<Json> messages = NormalizeMessages(input.messages);
      ASSERT_TRUE(messages.ok()) << messages.message();
      prepared.messages = *std::move(messages);
      ExpectGolden(parsed->Render(prepared), *whole, what + " with prepared messages");
    }
  }
  RecordProperty("cases", number);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTemplate,
                         testing::Values("blocks_date", "chatml_tools", "deepseek_v3", "filters",
                                         "gemma3", "generation", "harmony_like", "inst_brackets",
                                         "llama3_1", "loops", "macros", "multimodal", "qwen3",
                                         "reasoning", "smollm2", "strings", "tests_ops",
                                         "tool_results", "whitespace", "xml_nested"),
                         [](const auto& test) { return std::string(test.param); });

TEST(ChatTemplate, ExpressionsEvaluateLikeTheReference) {
  const Json golden = ReadGolden("expressions.json");
  const Json& context = *golden.Find("context");
  int number = 0;
  for (const Json& test_case : golden.Find("cases")->as_array()) {
    const std::string source = test_case.Find("template")->as_string();
    const std::string what = "expression " + std::to_string(number++) + ": " + source;
    const Result<std::string> text = RenderText(source, context);
    if (const Json* expected = test_case.Find("expected")) {
      ASSERT_TRUE(text.ok()) << what << "\n  " << text.message();
      EXPECT_EQ(*text, expected->as_string()) << what;
    } else {
      EXPECT_FALSE(text.ok()) << what << "\n  rendered " << (text.ok() ? *text : "");
    }
  }
  EXPECT_EQ(number, 508);
}

}  // namespace
}  // namespace tenon
