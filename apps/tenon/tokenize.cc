#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "command.h"
#include "tenon/engine/text.h"

namespace tenon::cli {
namespace {

struct TokenizeArguments {
  explicit TokenizeArguments(CLI::App& command) : options(command, kTokenize) {}

  TableOptions options;
  std::string model;
  std::string text;
  bool text_given = false;
  std::string ids;
  bool no_special = false;
  bool jsonl = false;
};

Status AddDecoded(const Tokenizer& tokenizer, std::span<const int64_t> ids, Json& reply) {
  TN_ASSIGN_OR_RETURN(std::string all, tokenizer.Decode(ids, {.skip_special = false}));
  TN_ASSIGN_OR_RETURN(std::string plain, tokenizer.Decode(ids, {.skip_special = true}));
  reply.Set("decoded", std::move(all));
  reply.Set("decoded_skip_special", std::move(plain));
  return {};
}

Result<Json> EncodeReply(const Tokenizer& tokenizer, const std::string& text,
                         EncodeOptions options) {
  options.with_pieces = true;
  TN_ASSIGN_OR_RETURN(const Encoding encoding, tokenizer.Encode(text, options));
  Json reply;
  reply.Set("ids", JsonIds(encoding.ids));
  Json::Array pieces;
  for (const std::string& piece : encoding.pieces) pieces.emplace_back(piece);
  reply.Set("pieces", std::move(pieces));
  TN_RETURN_IF_ERROR(
      AddDecoded(tokenizer, std::vector<int64_t>(encoding.ids.begin(), encoding.ids.end()), reply));
  return reply;
}

// Ids stay 64-bit: the tokenizer checks them before it narrows them.
Result<Json> DecodeReply(const Tokenizer& tokenizer, const Json& ids) {
  if (!ids.is_array())
    return UsageError(fmt::format("ids is a {}, allowed: a list of token ids", ids.KindName()));
  std::vector<int64_t> list;
  for (const Json& id : ids.as_array()) {
    if (!id.is_int()) return UsageError(fmt::format("ids holds {}, allowed: token ids", id.Dump()));
    list.push_back(id.as_int());
  }
  Json reply;
  TN_RETURN_IF_ERROR(AddDecoded(tokenizer, list, reply));
  return reply;
}

Result<Json> ReplyTo(const Tokenizer& tokenizer, const Json& request) {
  if (const Json* ids = request.Find("ids")) return DecodeReply(tokenizer, *ids);
  const Json* text = request.Find("text");
  if (text == nullptr || !text->is_string())
    return UsageError("\"text\" (a string) or \"ids\" (a list) is needed");
  EncodeOptions options;
  TN_ASSIGN_OR_RETURN(options.add_special_tokens, FlagOf(request, "add_special_tokens", true));
  TN_ASSIGN_OR_RETURN(options.parse_special, FlagOf(request, "parse_special", true));
  return EncodeReply(tokenizer, text->as_string(), options);
}

Status Tokenize(const TokenizeArguments& arguments) {
  TN_ASSIGN_OR_RETURN(const EngineOptions resolved, arguments.options.Resolve());
  if (!arguments.text_given && arguments.ids.empty() && !arguments.jsonl) {
    return UsageError("give a TEXT, --ids or --jsonl");
  }
  TN_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(arguments.model, OpenFor::kParts));
  TN_ASSIGN_OR_RETURN(const auto tokenizer, LoadTokenizer(*checkpoint));
  if (arguments.jsonl) {
    return AnswerJsonLines(
        [&](const Json& request, int64_t) { return ReplyTo(*tokenizer, request); });
  }
  if (!arguments.ids.empty()) {
    TN_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ParseIds(arguments.ids));
    TN_ASSIGN_OR_RETURN(const std::string text, tokenizer->Decode(ids, {.skip_special = false}));
    fmt::print("{}\n", text);
    return {};
  }
  TN_ASSIGN_OR_RETURN(const Json reply, EncodeReply(*tokenizer, arguments.text,
                                                    {.add_special_tokens = !arguments.no_special}));
  if (resolved.json.value) {
    fmt::print("{}\n", reply.Dump());
    return {};
  }
  const Json::Array& ids = reply.Find("ids")->as_array();
  for (size_t i = 0; i < ids.size(); ++i) {
    fmt::print("{:8}  {}\n", ids[i].as_int(), reply.Find("pieces")->as_array()[i].as_string());
  }
  return {};
}

}  // namespace

Action AddTokenize(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tokenize", "Text to token ids and pieces, and back");
  auto arguments = std::make_shared<TokenizeArguments>(*command);
  command->add_option("MODEL", arguments->model, "A directory with tokenizer.json, or a .gguf file")
      ->required();
  CLI::Option* text = command->add_option("TEXT", arguments->text, "The text to encode");
  command->add_option("--ids", arguments->ids, "Decode these ids instead: 1,2,3");
  command->add_flag("--no-special", arguments->no_special, "Without the begin and end tokens");
  command->add_flag(
      "--jsonl", arguments->jsonl,
      "Lines {\"text\", \"add_special_tokens\"?, \"parse_special\"?} or {\"ids\"} on stdin");
  return [arguments, text] {
    arguments->text_given = text->count() > 0;
    return Tokenize(*arguments);
  };
}

}  // namespace tenon::cli
