#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>

#include "chat.h"
#include "command.h"
#include "start_times.h"
#include "tenon/base/text.h"
#include "tenon/engine/generate.h"
#include "tenon/engine/text.h"

namespace tenon::cli {
namespace {

struct RunArguments {
  explicit RunArguments(CLI::App& command) : model(command, kRun) {}

  ModelArguments model;
  std::string prompt;
  bool prompt_given = false;
  std::string file;
  std::string system;
  bool chat = false;
  bool raw = false;
  bool quiet = false;
};

// Set by Ctrl-C: stops the answer, not the chat. A documented global: signal handlers have no other
// way.
std::atomic<bool> g_interrupted{false};
void OnInterrupt(int) { g_interrupted.store(true); }

struct Session {
  std::unique_ptr<ModelRunner> runner;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat;
  GenerateOptions generate;
  StartTimes start;
};

Result<Session> Load(const RunArguments& arguments) {
  Session session;
  TN_ASSIGN_OR_RETURN(auto plan, arguments.model.Plan());
  session.start.Add("plan");
  if (plan->kind() == ModelKind::kEncoder) {
    return Refused(arguments.model.model + ": an encoder generates no text; fix: `tenon logits`");
  }
  TN_ASSIGN_OR_RETURN(session.tokenizer, LoadTokenizer(*plan->checkpoint));
  if (session.tokenizer->vocab_size() > plan->config->vocab.value) {
    return Refused(
        fmt::format("the tokenizer has {} tokens, the model {} rows; fix: the tokenizer that "
                    "belongs to the model",
                    session.tokenizer->vocab_size(), plan->config->vocab.value));
  }
  TN_ASSIGN_OR_RETURN(session.chat, LoadChatTemplate(*plan->checkpoint));
  session.generate = GenerateOptionsFrom(plan->options);
  TN_RETURN_IF_ERROR(CheckSampling(session.generate.sampling));
  session.generate.end_tokens = EndTokens(plan->generation, *session.tokenizer);
  session.start.Add("tokenizer");
  TN_ASSIGN_OR_RETURN(session.runner, ModelRunner::Load(std::move(plan)));
  session.start.Add("weights");
  return session;
}

Json MessageOf(const char* role, const std::string& content) {
  Json message;
  message.Set("role", role);
  message.Set("content", content);
  return message;
}

Result<std::vector<int32_t>> EncodeChat(const Session& session, const Json::Array& messages) {
  ChatInput input;
  input.messages = messages;
  input.add_generation_prompt = true;
  input.kwargs = SpecialTokenVariables(*session.tokenizer);
  TN_ASSIGN_OR_RETURN(const RenderedChat rendered, session.chat->Render(input));
  // The template prints its own begin token.
  TN_ASSIGN_OR_RETURN(Encoding encoding,
                      session.tokenizer->Encode(rendered.text, {.add_special_tokens = false}));
  return std::move(encoding.ids);
}

bool PrintText(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  return !g_interrupted.load();
}

void PrintTimings(const Generated& g) {
  const auto rate = [](double count, double seconds) {
    return seconds > 0 ? count / seconds : 0.0;
  };
  const double decoded = static_cast<double>(g.ids.size()) - 1;
  fmt::print(stderr, "prompt {} tokens, {:.1f}/s; answer {} tokens, {:.1f}/s; ended by {}\n",
             g.prompt_tokens, rate(static_cast<double>(g.prompt_tokens), g.prefill_seconds),
             g.ids.size(), rate(decoded, g.decode_seconds), NameOf(g.reason));
}

// Starts a new sequence with the ids. An encoder reads them; its decoder starts with its own token.
Result<Generated> Answer(Session& session, std::vector<int32_t> ids) {
  session.runner->Reset();
  if (session.runner->has_encoder()) {
    TN_RETURN_IF_ERROR(session.runner->Encode(ids));
    session.start.Add("encoder");
    const auto& start = session.runner->plan().config->decoder_start.value;
    if (!start)
      return Refused("the config has no decoder_start_token_id, so the decoder cannot start");
    ids = {static_cast<int32_t>(*start)};
  }
  return Generate(*session.runner, session.tokenizer, ids, session.generate, PrintText);
}

Status RunOnce(Session& session, const RunArguments& arguments, const std::string& prompt) {
  std::vector<int32_t> ids;
  if (session.chat && !arguments.raw) {
    Json::Array messages;
    if (!arguments.system.empty()) messages.push_back(MessageOf("system", arguments.system));
    messages.push_back(MessageOf("user", prompt));
    TN_ASSIGN_OR_RETURN(ids, EncodeChat(session, messages));
  } else {
    if (!arguments.system.empty())
      return UsageError(
          "--system needs a chat template, which this checkpoint lacks or --raw forbids");
    TN_ASSIGN_OR_RETURN(Encoding encoding, session.tokenizer->Encode(prompt));
    ids = std::move(encoding.ids);
  }
  session.start.Add("prompt as ids");
  TN_ASSIGN_OR_RETURN(const Generated generated, Answer(session, std::move(ids)));
  fmt::print("\n");
  if (arguments.quiet) return {};
  PrintTimings(generated);
  session.start.Add("first token", generated.prefill_seconds);
  fmt::print(stderr, "start to first token {}\n", session.start.Text());
  return {};
}

Status Chat(Session& session, const RunArguments& arguments) {
  if (!session.chat)
    return Refused(
        "--chat needs a chat template, and the checkpoint has none; fix: `tenon run` with -p");
  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  if (terminal) fmt::print(stderr, "Ctrl-C stops an answer, Ctrl-D ends the chat.\n");
  Json::Array messages;
  if (!arguments.system.empty()) messages.push_back(MessageOf("system", arguments.system));
  for (std::string line;;) {
    if (terminal) fmt::print(stderr, "> ");
    if (!std::getline(std::cin, line)) return {};
    if (Trim(line).empty()) continue;
    messages.push_back(MessageOf("user", line));
    TN_ASSIGN_OR_RETURN(std::vector<int32_t> ids, EncodeChat(session, messages));
    g_interrupted.store(false);
    TN_ASSIGN_OR_RETURN(const Generated generated, Answer(session, std::move(ids)));
    fmt::print("\n");
    std::fflush(stdout);
    if (!arguments.quiet) PrintTimings(generated);
    messages.push_back(MessageOf("assistant", generated.text));
  }
}

Status Run(const RunArguments& arguments) {
  if (arguments.prompt_given + !arguments.file.empty() + arguments.chat > 1) {
    return UsageError("give one of -p, -f, --chat; without any, the prompt is read from stdin");
  }
  std::string prompt = arguments.prompt;
  if (!arguments.chat && !arguments.prompt_given) {
    TN_ASSIGN_OR_RETURN(prompt, ReadText(arguments.file.empty() ? "-" : arguments.file));
  }
  TN_ASSIGN_OR_RETURN(Session session, Load(arguments));
  std::signal(SIGINT, OnInterrupt);
  return arguments.chat ? Chat(session, arguments) : RunOnce(session, arguments, prompt);
}

}  // namespace

Action AddRun(CLI::App& app) {
  CLI::App* command = app.add_subcommand("run", "Text in, text out, as it comes");
  auto arguments = std::make_shared<RunArguments>(*command);
  CLI::Option* prompt =
      command->add_option("-p,--prompt", arguments->prompt, "The prompt (default: stdin)");
  command->add_option("-f,--file", arguments->file, "Read the prompt from a file");
  command->add_flag("--chat", arguments->chat, "A conversation: one line of stdin, one answer");
  command->add_flag("--raw", arguments->raw,
                    "The prompt as it is, without the model's chat template");
  command->add_option("--system", arguments->system, "A system message before the conversation");
  command->add_flag("-q,--quiet", arguments->quiet, "No timings at the end");
  return [arguments, prompt] {
    arguments->prompt_given = prompt->count() > 0;
    return Run(*arguments);
  };
}

}  // namespace tenon::cli
