#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "chat.h"
#include "command.h"
#include "tenon/base/file.h"
#include "tenon/engine/text.h"

namespace tenon::cli {
namespace {

struct RenderArguments {
  explicit RenderArguments(CLI::App& command) : options(command, kRender) {}

  TableOptions options;
  std::string model;
  std::string messages;
  std::string tools;
  bool no_generation_prompt = false;
  bool jsonl = false;
};

struct Renderer {
  ChatTemplate chat;
  Json special;  // variables that a request's kwargs may override
};

// A checkpoint's template with its special tokens, or a template file alone.
Result<Renderer> LoadRenderer(const std::string& path) {
  if (path.ends_with(".jinja")) {
    TN_ASSIGN_OR_RETURN(std::string source, ReadFile(path));
    TN_ASSIGN_OR_RETURN(ChatTemplate chat, ChatTemplate::Parse(std::move(source), path));
    return Renderer{std::move(chat), Json(Json::Object{})};
  }
  TN_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(path, OpenFor::kParts));
  TN_ASSIGN_OR_RETURN(std::optional<ChatTemplate> chat, LoadChatTemplate(*checkpoint));
  if (!chat) {
    return Refused(path +
                   ": no chat template (chat_template.jinja, tokenizer_config.json or GGUF "
                   "metadata); fix: give a "
                   "FILE.jinja");
  }
  Json special{Json::Object{}};
  if (checkpoint->gguf() != nullptr || checkpoint->HasFile("tokenizer.json")) {
    TN_ASSIGN_OR_RETURN(const auto tokenizer, LoadTokenizer(*checkpoint));
    special = SpecialTokenVariables(*tokenizer);
  }
  return Renderer{*std::move(chat), std::move(special)};
}

Json MemberOf(const Json& request, std::string_view name) {
  const Json* value = request.Find(name);
  return value == nullptr ? Json() : *value;
}

Result<Json> ReplyTo(const Renderer& renderer, const Json& request) {
  ChatInput input;
  input.messages = MemberOf(request, "messages");
  input.tools = MemberOf(request, "tools");
  input.documents = MemberOf(request, "documents");
  TN_ASSIGN_OR_RETURN(input.add_generation_prompt, FlagOf(request, "add_generation_prompt", false));
  TN_ASSIGN_OR_RETURN(input.continue_final_message,
                      FlagOf(request, "continue_final_message", false));
  input.kwargs = renderer.special;
  const Json kwargs = MemberOf(request, "kwargs");
  if (!kwargs.is_null() && !kwargs.is_object()) {
    return UsageError(fmt::format("kwargs is a {}, allowed: an object", kwargs.KindName()));
  }
  if (kwargs.is_object()) {
    for (const auto& [name, value] : kwargs.as_object()) input.kwargs.Set(name, value);
  }
  if (const Json now = MemberOf(request, "now"); now.is_string()) {
    input.now = now.as_string();
  } else if (!now.is_null()) {
    return UsageError(fmt::format("now = {}, allowed: an ISO 8601 text", now.Dump()));
  }
  TN_ASSIGN_OR_RETURN(const RenderedChat rendered, renderer.chat.Render(input));
  Json reply;
  reply.Set("text", rendered.text);
  return reply;
}

Status Render(const RenderArguments& arguments) {
  TN_RETURN_IF_ERROR(arguments.options.Resolve().status());
  if (arguments.messages.empty() && !arguments.jsonl)
    return UsageError("give --messages FILE or --jsonl");
  TN_ASSIGN_OR_RETURN(const Renderer renderer, LoadRenderer(arguments.model));
  if (arguments.jsonl) {
    return AnswerJsonLines(
        [&](const Json& request, int64_t) { return ReplyTo(renderer, request); });
  }
  TN_ASSIGN_OR_RETURN(const std::string text, ReadText(arguments.messages));
  TN_ASSIGN_OR_RETURN(Json file, ParseJson(text), arguments.messages);
  Json request;
  if (file.is_array()) {
    request.Set("messages", std::move(file));
  } else if (file.is_object()) {
    request = std::move(file);
  } else {
    return UsageError(fmt::format("{} holds a {}, allowed: a list of messages, or an object",
                                  arguments.messages, file.KindName()));
  }
  if (!arguments.tools.empty()) {
    TN_ASSIGN_OR_RETURN(const std::string tools, ReadText(arguments.tools));
    TN_ASSIGN_OR_RETURN(Json parsed, ParseJson(tools), arguments.tools);
    request.Set("tools", std::move(parsed));
  }
  if (request.Find("add_generation_prompt") == nullptr) {
    request.Set("add_generation_prompt", !arguments.no_generation_prompt);
  }
  TN_ASSIGN_OR_RETURN(const Json reply, ReplyTo(renderer, request));
  fmt::print("{}", reply.Find("text")->as_string());
  return {};
}

}  // namespace

Action AddRender(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("render", "The text that a chat template makes of messages");
  auto arguments = std::make_shared<RenderArguments>(*command);
  command
      ->add_option("MODEL", arguments->model, "A directory, a .gguf file or a template FILE.jinja")
      ->required();
  command->add_option("--messages", arguments->messages,
                      "A JSON file (- for stdin): a list of messages, or an object with messages, "
                      "tools, kwargs, …");
  command->add_option("--tools", arguments->tools, "A JSON file with a list of tools");
  command->add_flag("--no-generation-prompt", arguments->no_generation_prompt,
                    "Without the opening of an answer");
  command->add_flag("--jsonl", arguments->jsonl,
                    "Lines {\"messages\", \"tools\"?, \"documents\"?, \"add_generation_prompt\", "
                    "\"continue_final_message\"?, "
                    "\"kwargs\"?, \"now\"?} on stdin");
  return [arguments] { return Render(*arguments); };
}

}  // namespace tenon::cli
