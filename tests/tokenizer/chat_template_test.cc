#include "tenon/tokenizer/chat_template.h"

#include <gtest/gtest.h>

#include <chrono>
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

// Templates of one file, each rendered over the file's context.
void ExpectExpressions(const std::string& file, int wanted_count) {
  const Json golden = ReadGolden(file);
  const Json& context = *golden.Find("context");
  int number = 0;
  for (const Json& test_case : golden.Find("cases")->as_array()) {
    const std::string source = test_case.Find("template")->as_string();
    const std::string what = file + " " + std::to_string(number++) + ": " + source;
    const Result<std::string> text = RenderText(source, context);
    if (const Json* expected = test_case.Find("expected")) {
      ASSERT_TRUE(text.ok()) << what << "\n  " << text.message();
      EXPECT_EQ(*text, expected->as_string()) << what;
    } else {
      EXPECT_FALSE(text.ok()) << what << "\n  rendered " << (text.ok() ? *text : "");
    }
  }
  EXPECT_EQ(number, wanted_count);
}

TEST(ChatTemplate, ExpressionsEvaluateLikeTheReference) {
  ExpectExpressions("expressions.json", 508);
}

TEST(ChatTemplate, FurtherCasesEvaluateLikeTheReference) {
  ExpectExpressions("differential.json", 1614);
}

ChatTemplate MustParse(const std::string& source) {
  Result<ChatTemplate> parsed = ChatTemplate::Parse(source, "model");
  EXPECT_TRUE(parsed.ok()) << parsed.message();
  return *std::move(parsed);
}

Json Message(const std::string& role, Json content) {
  Json message{Json::Object{}};
  message.Set("role", role);
  message.Set("content", std::move(content));
  return message;
}

constexpr const char* kPlain =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";
constexpr const char* kTrimming =
    "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}<end>{% endfor %}";
constexpr const char* kParts =
    "{% for m in messages %}[{{ m.role }}]"
    "{% for p in m.content %}{{ p.text or p.type }}{% endfor %}<end>{% endfor %}";

ChatInput Open(Json content) {
  ChatInput input;
  input.messages =
      Json(Json::Array{Message("user", "hi"), Message("assistant", std::move(content))});
  input.continue_final_message = true;
  return input;
}

TEST(ChatTemplate, ContinueFinalMessageLeavesTheTextOpen) {
  const Result<RenderedChat> chat = MustParse(kPlain).Render(Open("Roses are "));
  ASSERT_TRUE(chat.ok()) << chat.message();
  EXPECT_EQ(chat->text, "[user]hi\n[assistant]Roses are ");
  // A template that trims has lost the blank, so it is not invented again.
  const Result<RenderedChat> trimmed = MustParse(kTrimming).Render(Open("Roses are "));
  ASSERT_TRUE(trimmed.ok()) << trimmed.message();
  EXPECT_EQ(trimmed->text, "[user]hi<end>[assistant]Roses are");
}

TEST(ChatTemplate, ContinueFinalMessageTakesTheLastTextPart) {
  Json text{Json::Object{}};
  text.Set("type", "text");
  text.Set("text", "A cat");
  Json image{Json::Object{}};
  image.Set("type", "image");
  ChatInput input = Open(Json(Json::Array{text, image}));
  input.messages.as_array()[0].Set("content", Json(Json::Array{text}));
  const Result<RenderedChat> chat = MustParse(kParts).Render(input);
  ASSERT_TRUE(chat.ok()) << chat.message();
  EXPECT_EQ(chat->text, "[user]A cat<end>[assistant]A cat");
}

TEST(ChatTemplate, ContinueFinalMessageRefusesWhatCannotBe) {
  const auto refused = [](const char* source, const ChatInput& input, const char* why) {
    const Result<RenderedChat> chat = MustParse(source).Render(input);
    ASSERT_FALSE(chat.ok()) << chat->text;
    EXPECT_EQ(chat.code(), StatusCode::kUsage);
    EXPECT_NE(chat.message().find(why), std::string::npos) << chat.message();
  };
  refused(kPlain, Open(Json()), "no content");
  refused(kPlain, Open(Json(5)), "integer");
  refused(kPlain, Open(Json(Json::Array{})), "no text");
  refused("{{ messages[0].role }}content", Open("x"), "does not appear");
  refused("{{ messages[0].role }}", Open("x"), "does not read");
  ChatInput both = Open("x");
  both.add_generation_prompt = true;
  refused(kPlain, both, "exclude each other");
  ChatInput empty;
  empty.messages = Json(Json::Array{});
  empty.continue_final_message = true;
  refused(kPlain, empty, "no messages");
}

TEST(ChatTemplate, ErrorsNameTemplateLineAndCause) {
  const auto parsed = ChatTemplate::Parse("line one\n{% for x l %}\n", "my/model");
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.code(), StatusCode::kRefused);
  EXPECT_EQ(parsed.message(), "template 'my/model', line 2: expected 'in', got 'l'");
  const Result<RenderedChat> chat =
      MustParse("a\n{% if true %}\n  {{ messages.nope.deeper }}\n{% endif %}").Render({});
  ASSERT_FALSE(chat.ok());
  EXPECT_EQ(chat.code(), StatusCode::kRefused);
  EXPECT_EQ(chat.message(), "template 'model', line 3: 'None' has no attribute 'nope'");
  EXPECT_NE(ChatTemplate::Parse("{% fro x in y %}", "m").message().find("did you mean 'for'"),
            std::string::npos);
  EXPECT_NE(ChatTemplate::Parse("{% if a %}x", "m").message().find("'endif'"), std::string::npos);
  EXPECT_NE(ChatTemplate::Parse("\xFF", "m").message().find("UTF-8"), std::string::npos);
}

TEST(ChatTemplate, RaisedMessagesAreTheTemplatesOwnWords) {
  const Result<RenderedChat> chat =
      MustParse("{{ raise_exception('Roles must alternate: ' ~ [1]) }}").Render({});
  ASSERT_FALSE(chat.ok());
  EXPECT_EQ(chat.code(), StatusCode::kUsage);
  EXPECT_EQ(chat.message(), "Roles must alternate: [1]");
}

TEST(ChatTemplate, OwnVariablesAreDefinedAndCannotBeGivenTwice) {
  const ChatTemplate parsed = MustParse(
      "{{ tools is none }} {{ documents is none }} {{ messages | length }} {{ x is defined }} "
      "{{ bos_token }} {{ add_generation_prompt }}");
  ChatInput input;
  input.messages = Json(Json::Array{});
  input.kwargs.Set("bos_token", "<s>");
  EXPECT_EQ(parsed.Render(input)->text, "True True 0 False <s> False");
  input.kwargs.Set("tools", 1);
  EXPECT_EQ(parsed.Render(input).code(), StatusCode::kUsage);
  input.kwargs = Json("text");
  EXPECT_EQ(parsed.Render(input).code(), StatusCode::kUsage);
}

TEST(ChatTemplate, GenerationSpansCountCodePointsOfTheOutput) {
  const ChatTemplate parsed = MustParse(
      "\u00e4\u20ac{% generation %}x\U0001F600{% endgeneration %}-"
      "{% for i in [1, 2] %}{% generation %}{{ i }}{% endgeneration %}{% endfor %}");
  const Result<RenderedChat> chat = parsed.Render({});
  ASSERT_TRUE(chat.ok()) << chat.message();
  EXPECT_EQ(chat->text, "\u00e4\u20acx\U0001F600-12");
  const std::vector<std::pair<int64_t, int64_t>> wanted = {{2, 4}, {5, 6}, {6, 7}};
  EXPECT_EQ(chat->generation_spans, wanted);
}

TEST(ChatTemplate, NormalizeMessagesDropsNullsAndNamesTheReasoning) {
  const Json messages = *ParseJson(
      R"([{"role":"user","content":null,"name":"x"},{"role":"assistant","reasoning":"r"}])");
  EXPECT_EQ(NormalizeMessages(messages)->Dump(),
            R"([{"role":"user","name":"x"},)"
            R"({"thinking":"r","role":"assistant","reasoning":"r","reasoning_content":"r"}])");
  EXPECT_EQ(NormalizeMessages(Json("x")).code(), StatusCode::kUsage);
  EXPECT_EQ(NormalizeMessages(*ParseJson("[1]")).code(), StatusCode::kUsage);
}

TEST(ChatTemplate, ManyThreadsRenderOneTemplate) {
  const Json golden = ReadGolden("harmony_like.json");
  const ChatTemplate parsed = MustParse(*ReadFile(TemplatePath("harmony_like.jinja")));
  const Json& test_case = golden.Find("cases")->as_array()[0];
  const ChatInput input = InputOf(golden, test_case);
  std::vector<std::thread> threads;
  std::vector<int> equal(4);
  for (size_t t = 0; t < equal.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        equal[t] += parsed.Render(input)->text == test_case.Find("expected")->as_string() ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, std::vector<int>(4, 50));
}

TEST(ChatTemplate, FortyMessagesRenderFast) {
  const ChatTemplate parsed = MustParse(*ReadFile(TemplatePath("qwen3.jinja")));
  ChatInput input;
  Json::Array messages;
  for (int i = 0; i < 40; ++i) {
    messages.push_back(Message(i % 2 == 0 ? "user" : "assistant",
                               "Some text of a usual length, repeated. " + std::string(400, 'x')));
  }
  input.messages = Json(std::move(messages));
  input.add_generation_prompt = true;
  auto best = std::chrono::nanoseconds::max();
  for (int i = 0; i < 20; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(parsed.Render(input).ok());
    best = std::min(best, std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin));
  }
  RecordProperty("microseconds", static_cast<int>(best.count() / 1000));
#ifdef NDEBUG
  EXPECT_LT(best, std::chrono::milliseconds(5));
#else
  EXPECT_LT(best, std::chrono::milliseconds(100));
#endif
}

}  // namespace
}  // namespace tenon
