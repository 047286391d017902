// Chat templates: the Jinja program of a checkpoint that turns messages into the prompt's text, as
// Hugging Face's apply_chat_template renders it (utils/chat_template_utils.py: sandbox,
// trim_blocks, lstrip_blocks, loop controls, strftime_now, raise_exception, generation). Not a
// tokenizer. Parsed once; a ChatTemplate is immutable and may be rendered by many threads at the
// same time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tenon/base/json.h"
#include "tenon/base/status.h"
#include "tenon/tokenizer/jinja_limits.h"

namespace tenon {

namespace jinja {
struct Program;
}

struct ChatInput {
  Json messages;   // array of objects
  Json tools;      // null when absent: the variable is then none, not undefined
  Json documents;  // likewise
  bool add_generation_prompt = false;
  // Leaves the last message open, so that the model goes on with it.
  bool continue_final_message = false;
  // Further variables: bos_token, eos_token, enable_thinking, ... An object or null.
  Json kwargs;
  // The clock of strftime_now, ISO 8601; the system's local time when absent.
  std::optional<std::string> now;
};

struct RenderedChat {
  std::string text;
  // Begin and end of each {% generation %} block in the text, in code points.
  std::vector<std::pair<int64_t, int64_t>> generation_spans;
};

class ChatTemplate {
 public:
  // `name` stands in error messages only. Error (kRefused): "template 'name', line N: ...".
  static Result<ChatTemplate> Parse(std::string source, std::string name);

  // Errors: kUsage with the template's own words where it calls raise_exception; kUsage where
  // continue_final_message, kwargs or now cannot be; otherwise kRefused, "template 'name', line N:
  // ...", also when a limit is passed.
  Result<RenderedChat> Render(const ChatInput& input, const RenderLimits& limits = {}) const;

  const std::string& name() const { return name_; }
  const std::string& source() const { return source_; }

 private:
  ChatTemplate(std::string source, std::string name, std::shared_ptr<const jinja::Program> program)
      : source_(std::move(source)), name_(std::move(name)), program_(std::move(program)) {}
  Result<RenderedChat> RenderMessages(const Json& messages, const ChatInput& input,
                                      const RenderLimits& limits) const;

  std::string source_;
  std::string name_;
  std::shared_ptr<const jinja::Program> program_;
};

// What apply_chat_template does to messages before it renders them: members that are null are
// dropped, and a message's reasoning is passed under the names reasoning_content and thinking.
// Render does not do this by itself. Error (kUsage): messages that are no array of objects.
Result<Json> NormalizeMessages(const Json& messages);

}  // namespace tenon
