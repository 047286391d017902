#include "tenon/tokenizer/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "tenon/tokenizer/jinja_eval.h"
#include "tenon/tokenizer/jinja_globals.h"
#include "tenon/tokenizer/jinja_parser.h"
#include "tenon/tokenizer/jinja_print.h"
#include "tenon/tokenizer/jinja_unicode.h"

namespace tenon {
namespace {

// Marks the end of the message that is continued; never part of a result.
constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";

std::string_view Stripped(std::string_view text) {
  return jinja::StripLeft(jinja::StripRight(text));
}

// The last text of the final message, inside `messages`.
Result<Json*> FinalText(Json& messages) {
  if (!messages.is_array() || messages.as_array().empty()) {
    return UsageError("continue_final_message: the conversation has no messages");
  }
  Json& last = messages.as_array().back();
  Json* content = nullptr;
  if (last.is_object()) {
    for (auto& [key, value] : last.as_object()) {
      if (key == "content") content = &value;
    }
  }
  if (content == nullptr || content->is_null()) {
    return UsageError("continue_final_message: the final message has no content to continue");
  }
  if (content->is_string()) return content;
  if (!content->is_array()) {
    return UsageError(fmt::format(
        "continue_final_message: the final message's content is {}, must be string or array",
        content->KindName()));
  }
  for (size_t i = content->as_array().size(); i-- > 0;) {
    Json& part = content->as_array()[i];
    if (!part.is_object()) continue;
    for (auto& [key, value] : part.as_object()) {
      if (key == "text" && value.is_string()) return &value;
    }
  }
  return UsageError("continue_final_message: the final message has no text to continue");
}

// Cuts the rendered text where the tag stands. `final_text` is the message's text without the tag.
Status CutAtTag(std::string_view final_text, RenderedChat& chat) {
  const std::string_view bare_tag = Stripped(kContinueTag);
  const size_t tag = chat.text.rfind(bare_tag);
  if (tag == std::string::npos || chat.text.find(Stripped(final_text)) == std::string::npos) {
    return UsageError(
        "continue_final_message: the final message does not appear in the rendered chat; the "
        "template drops or changes its end");
  }
  const bool keeps_blanks = std::string_view(chat.text).substr(tag).starts_with(kContinueTag);
  chat.text.resize(tag);
  // A template that trims the message would have trimmed the blanks before the tag as well.
  if (!keeps_blanks) chat.text.resize(jinja::StripRight(chat.text).size());
  const auto size = static_cast<int64_t>(jinja::CountCodePoints(chat.text));
  for (auto& [begin, end] : chat.generation_spans) {
    begin = std::min(begin, size);
    end = std::min(end, size);
  }
  return {};
}

constexpr std::string_view kOwnVariables[] = {"messages", "tools", "documents",
                                              "add_generation_prompt"};

Status CheckKwargs(const Json& kwargs) {
  if (kwargs.is_null()) return {};
  if (!kwargs.is_object()) {
    return UsageError(fmt::format("kwargs is {}, must be an object", kwargs.KindName()));
  }
  for (const std::string_view name : kOwnVariables) {
    if (kwargs.Find(name) != nullptr) {
      return UsageError(fmt::format("kwargs.{}: it has a field of its own, pass it there", name));
    }
  }
  return {};
}

// The value of a variable that the template reads; Missing when nothing defines it.
jinja::Value VariableOf(jinja::Runtime& runtime, const std::string& name, const Json& messages,
                        const ChatInput& input) {
  if (name == "messages") return jinja::FromJson(runtime, messages);
  if (name == "tools") return jinja::FromJson(runtime, input.tools);
  if (name == "documents") return jinja::FromJson(runtime, input.documents);
  if (name == "add_generation_prompt") return jinja::Value(input.add_generation_prompt);
  if (const Json* given = input.kwargs.Find(name)) return jinja::FromJson(runtime, *given);
  return jinja::FindGlobal(runtime, name);
}

constexpr std::string_view kReasoningNames[] = {"reasoning_content", "thinking", "reasoning"};

Json NormalizeMessage(const Json& message) {
  Json kept{Json::Object{}};
  for (const auto& [key, value] : message.as_object()) {
    if (!value.is_null()) kept.as_object().emplace_back(key, value);
  }
  const Json* reasoning = nullptr;
  for (const std::string_view name : kReasoningNames) {
    if (reasoning == nullptr) reasoning = kept.Find(name);
  }
  if (reasoning == nullptr) return kept;
  const Json text = *reasoning;
  const Json* thinking = kept.Find("thinking");
  Json named{Json::Object{}};
  named.Set("thinking", thinking == nullptr ? text : *thinking);
  for (const auto& [key, value] : kept.as_object()) named.Set(key, value);
  named.Set("reasoning_content", text);
  return named;
}

}  // namespace

Result<ChatTemplate> ChatTemplate::Parse(std::string source, std::string name) {
  TN_ASSIGN_OR_RETURN(std::unique_ptr<const jinja::Program> program,
                      jinja::ParseTemplate(source, name));
  return ChatTemplate(std::move(source), std::move(name), std::move(program));
}

Result<RenderedChat> ChatTemplate::Render(const ChatInput& input,
                                          const RenderLimits& limits) const {
  TN_RETURN_IF_ERROR(CheckKwargs(input.kwargs));
  if (!input.continue_final_message) return RenderMessages(input.messages, input, limits);
  if (input.add_generation_prompt) {
    return UsageError(
        "continue_final_message and add_generation_prompt exclude each other: the one leaves the "
        "last message open, the other opens a new one");
  }
  if (source_.find("content") == std::string::npos) {
    return UsageError("continue_final_message: the template does not read the field 'content'");
  }
  Json messages = input.messages;
  TN_ASSIGN_OR_RETURN(Json * text, FinalText(messages));
  const std::string final_text = text->as_string();
  *text = Json(final_text + std::string(kContinueTag));
  TN_ASSIGN_OR_RETURN(RenderedChat chat, RenderMessages(messages, input, limits));
  TN_RETURN_IF_ERROR(CutAtTag(final_text, chat));
  return chat;
}

Result<RenderedChat> ChatTemplate::RenderMessages(const Json& messages, const ChatInput& input,
                                                  const RenderLimits& limits) const {
  jinja::ClockTime now = jinja::SystemClock();
  if (input.now) {
    TN_ASSIGN_OR_RETURN(now, jinja::ParseClock(*input.now));
  }
  jinja::Runtime runtime(limits, now);
  jinja::Values variables;
  variables.reserve(program_->names.size());
  for (const std::string& name : program_->names) {
    variables.push_back(VariableOf(runtime, name, messages, input));
  }
  jinja::Evaluator evaluator(*program_, runtime, std::move(variables));
  Status status = runtime.ok() ? evaluator.Run() : runtime.failure();
  if (!status.ok()) {
    if (status.code() == StatusCode::kUsage) return status;  // the template's own words
    const std::string place =
        evaluator.error_line() > 0
            ? fmt::format("template '{}', line {}", name_, evaluator.error_line())
            : fmt::format("template '{}'", name_);
    return status.WithContext(place);
  }
  return RenderedChat{std::move(evaluator.output()), evaluator.generation_spans()};
}

Result<Json> NormalizeMessages(const Json& messages) {
  if (!messages.is_array()) {
    return UsageError(fmt::format("messages is {}, must be an array", messages.KindName()));
  }
  Json::Array normalized;
  for (const Json& message : messages.as_array()) {
    if (!message.is_object()) {
      return UsageError(fmt::format("messages[{}] is {}, must be an object", normalized.size(),
                                    message.KindName()));
    }
    normalized.push_back(NormalizeMessage(message));
  }
  return Json(std::move(normalized));
}

}  // namespace tenon
