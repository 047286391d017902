#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>

#include "chat.h"
#include "command.h"
#include "tenon/base/text.h"
#include "tenon/engine/generate.h"
#include "tenon/engine/text.h"
#include "tenon/zoo/zoo.h"

namespace tenon::cli {
namespace {

struct RunOptions {
  ModelOptions model;
  std::string prompt;
  bool prompt_given = false;
  std::string file;
  std::string system;
  bool chat = false;
  bool raw = false;
  bool quiet = false;
  GenerateOptions generate;
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
};

Result<Session> Load(const RunOptions& options) {
  TN_ASSIGN_OR_RETURN(const PlanOptions plan_options, options.model.Resolve());
  const std::unique_ptr<Registry> registry = MakeRegistry();
  TN_ASSIGN_OR_RETURN(auto plan, PlanModel(options.model.model(), plan_options, *registry));
  if (plan->kind() == ModelKind::kEncoder) {
    return Refused(options.model.model() + ": an encoder generates no text; fix: `tenon logits`");
  }
  Session session;
  TN_ASSIGN_OR_RETURN(session.tokenizer, LoadTokenizer(*plan->checkpoint));
  if (session.tokenizer->vocab_size() > plan->config->vocab.value) {
    return Refused(
        fmt::format("the tokenizer has {} tokens, the model {} rows; fix: the tokenizer that "
                    "belongs to the model",
                    session.tokenizer->vocab_size(), plan->config->vocab.value));
  }
  TN_ASSIGN_OR_RETURN(session.chat, LoadChatTemplate(*plan->checkpoint));
  session.generate = options.generate;
  TN_ASSIGN_OR_RETURN(session.generate.end_tokens,
                      EndTokens(*plan->checkpoint, *plan->config, *session.tokenizer));
  TN_ASSIGN_OR_RETURN(session.runner, ModelRunner::Load(std::move(plan)));
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
  TN_RETURN_IF_ERROR(session.runner->Reset());
  if (session.runner->has_encoder()) {
    TN_RETURN_IF_ERROR(session.runner->Encode(ids));
    const auto& start = session.runner->plan().config->decoder_start.value;
    if (!start)
      return Refused("the config has no decoder_start_token_id, so the decoder cannot start");
    ids = {static_cast<int32_t>(*start)};
  }
  return Generate(*session.runner, session.tokenizer, ids, session.generate, PrintText);
}

Status RunOnce(Session& session, const RunOptions& options, const std::string& prompt) {
  std::vector<int32_t> ids;
  if (session.chat && !options.raw) {
    Json::Array messages;
    if (!options.system.empty()) messages.push_back(MessageOf("system", options.system));
    messages.push_back(MessageOf("user", prompt));
    TN_ASSIGN_OR_RETURN(ids, EncodeChat(session, messages));
  } else {
    if (!options.system.empty())
      return UsageError(
          "--system needs a chat template, which this checkpoint lacks or --raw forbids");
    TN_ASSIGN_OR_RETURN(Encoding encoding, session.tokenizer->Encode(prompt));
    ids = std::move(encoding.ids);
  }
  TN_ASSIGN_OR_RETURN(const Generated generated, Answer(session, std::move(ids)));
  fmt::print("\n");
  if (!options.quiet) PrintTimings(generated);
  return {};
}

Status Chat(Session& session, const RunOptions& options) {
  if (!session.chat)
    return Refused(
        "--chat needs a chat template, and the checkpoint has none; fix: `tenon run` with -p");
  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  if (terminal) fmt::print(stderr, "Ctrl-C stops an answer, Ctrl-D ends the chat.\n");
  Json::Array messages;
  if (!options.system.empty()) messages.push_back(MessageOf("system", options.system));
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
    if (!options.quiet) PrintTimings(generated);
    messages.push_back(MessageOf("assistant", generated.text));
  }
}

Status Run(const RunOptions& options) {
  TN_RETURN_IF_ERROR(CheckSampling(options.generate.sampling));
  if (options.prompt_given + !options.file.empty() + options.chat > 1) {
    return UsageError("give one of -p, -f, --chat; without any, the prompt is read from stdin");
  }
  std::string prompt = options.prompt;
  if (!options.chat && !options.prompt_given) {
    TN_ASSIGN_OR_RETURN(prompt, ReadText(options.file.empty() ? "-" : options.file));
  }
  TN_ASSIGN_OR_RETURN(Session session, Load(options));
  std::signal(SIGINT, OnInterrupt);
  return options.chat ? Chat(session, options) : RunOnce(session, options, prompt);
}

}  // namespace

Action AddRun(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Text in, text out, as it comes");
  options->model.AddTo(*command);
  CLI::Option* prompt =
      command->add_option("-p,--prompt", options->prompt, "The prompt (default: stdin)");
  command->add_option("-f,--file", options->file, "Read the prompt from a file");
  command->add_flag("--chat", options->chat, "A conversation: one line of stdin, one answer");
  command->add_flag("--raw", options->raw,
                    "The prompt as it is, without the model's chat template");
  command->add_option("--system", options->system, "A system message before the conversation");
  command
      ->add_option("-n,--max-new-tokens", options->generate.max_new_tokens,
                   "Tokens at most (default: until the model ends)")
      ->check(CLI::PositiveNumber);
  SamplingOptions& sampling = options->generate.sampling;
  command->add_option("--temp", sampling.temperature, "Temperature; 0, the default, is greedy");
  command->add_option("--top-k", sampling.top_k, "Keep the k most probable tokens; 0: all");
  command->add_option("--top-p", sampling.top_p, "Keep the most probable tokens up to this sum");
  command->add_option("--min-p", sampling.min_p, "Drop tokens below this share of the best");
  command->add_option("--seed", sampling.seed, "Of the random draw");
  command->add_option("--stop", options->generate.stop, "Stop before this text; repeatable");
  command->add_flag("-q,--quiet", options->quiet, "No timings at the end");
  return [options, prompt] {
    options->prompt_given = prompt->count() > 0;
    return Run(*options);
  };
}

}  // namespace tenon::cli
