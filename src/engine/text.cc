#include "tenon/engine/text.h"

#include <fmt/format.h>

#include "tenon/tokenizer/gguf_vocabulary.h"

namespace tenon {
namespace {

// Absent is fine; present and of another kind is an error.
template <typename T>
Status ReadInto(const GgufMetadata& metadata, std::string_view key,
                Result<T> (GgufMetadata::*get)(std::string_view) const, std::optional<T>& target) {
  if (!metadata.Has(key)) return {};
  TN_ASSIGN_OR_RETURN(target, (metadata.*get)(key));
  return {};
}

Result<std::shared_ptr<const Tokenizer>> FromMetadata(const GgufMetadata& metadata) {
  GgufVocabulary vocabulary;
  TN_ASSIGN_OR_RETURN(vocabulary.model, metadata.String("tokenizer.ggml.model"),
                      "the file has no tokenizer");
  if (metadata.Has("tokenizer.ggml.pre")) {
    TN_ASSIGN_OR_RETURN(vocabulary.pre, metadata.String("tokenizer.ggml.pre"));
  }
  TN_ASSIGN_OR_RETURN(vocabulary.tokens, metadata.Strings("tokenizer.ggml.tokens"));
  if (metadata.Has("tokenizer.ggml.token_type")) {
    TN_ASSIGN_OR_RETURN(const std::vector<int64_t> types,
                        metadata.Ints("tokenizer.ggml.token_type"));
    for (const int64_t type : types) {
      if (type < INT32_MIN || type > INT32_MAX) {
        return Refused(fmt::format(
            "tokenizer.ggml.token_type[{}] = {}, allowed: 0 to 6; fix: download the file again",
            vocabulary.token_types.size(), type));
      }
      vocabulary.token_types.push_back(static_cast<int32_t>(type));
    }
  }
  if (metadata.Has("tokenizer.ggml.merges")) {
    TN_ASSIGN_OR_RETURN(vocabulary.merges, metadata.Strings("tokenizer.ggml.merges"));
  }
  if (metadata.Has("tokenizer.ggml.scores")) {
    TN_ASSIGN_OR_RETURN(const std::vector<double> scores, metadata.Floats("tokenizer.ggml.scores"));
    vocabulary.scores.assign(scores.begin(), scores.end());
  }
  TN_RETURN_IF_ERROR(
      ReadInto(metadata, "tokenizer.ggml.bos_token_id", &GgufMetadata::Int, vocabulary.bos_id));
  TN_RETURN_IF_ERROR(
      ReadInto(metadata, "tokenizer.ggml.eos_token_id", &GgufMetadata::Int, vocabulary.eos_id));
  TN_RETURN_IF_ERROR(
      ReadInto(metadata, "tokenizer.ggml.unknown_token_id", &GgufMetadata::Int, vocabulary.unk_id));
  TN_RETURN_IF_ERROR(
      ReadInto(metadata, "tokenizer.ggml.padding_token_id", &GgufMetadata::Int, vocabulary.pad_id));
  TN_RETURN_IF_ERROR(
      ReadInto(metadata, "tokenizer.ggml.add_bos_token", &GgufMetadata::Bool, vocabulary.add_bos));
  TN_RETURN_IF_ERROR(
      ReadInto(metadata, "tokenizer.ggml.add_eos_token", &GgufMetadata::Bool, vocabulary.add_eos));
  return Tokenizer::FromGguf(vocabulary);
}

// A string, or a list of {"name", "template"}, of which "default" counts.
Result<std::optional<std::string>> TemplateIn(const Json& config) {
  const Json* value = config.Find("chat_template");
  if (value == nullptr || value->is_null()) return std::optional<std::string>();
  if (value->is_string()) return std::optional<std::string>(value->as_string());
  if (value->is_array()) {
    for (const Json& row : value->as_array()) {
      const Json* name = row.Find("name");
      const Json* text = row.Find("template");
      if (name != nullptr && text != nullptr && text->is_string() && *name == Json("default")) {
        return std::optional<std::string>(text->as_string());
      }
    }
    return std::optional<std::string>();
  }
  return Refused(
      fmt::format("tokenizer_config.json: chat_template is a {}, allowed: a string or a list",
                  value->KindName()));
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> LoadTokenizer(const Checkpoint& checkpoint) {
  if (checkpoint.gguf() != nullptr)
    return FromMetadata(*checkpoint.gguf()).WithContext(checkpoint.path());
  if (!checkpoint.HasFile("tokenizer.json")) {
    return Refused(checkpoint.path() +
                   ": no tokenizer.json; fix: add the model's tokenizer.json, or give token ids");
  }
  return Tokenizer::FromDirectory(checkpoint.path());
}

Result<std::optional<std::string>> ChatTemplateSource(const Checkpoint& checkpoint) {
  if (const GgufMetadata* metadata = checkpoint.gguf()) {
    if (!metadata->Has("tokenizer.chat_template")) return std::optional<std::string>();
    TN_ASSIGN_OR_RETURN(const std::string_view text, metadata->String("tokenizer.chat_template"));
    return std::optional<std::string>(std::string(text));
  }
  if (checkpoint.HasFile("chat_template.jinja")) {
    TN_ASSIGN_OR_RETURN(std::string text, checkpoint.ReadSideFile("chat_template.jinja"));
    return std::optional<std::string>(std::move(text));
  }
  if (!checkpoint.HasFile("tokenizer_config.json")) return std::optional<std::string>();
  TN_ASSIGN_OR_RETURN(const std::string text, checkpoint.ReadSideFile("tokenizer_config.json"));
  TN_ASSIGN_OR_RETURN(const Json config, ParseJson(text), "tokenizer_config.json");
  return TemplateIn(config);
}

std::set<int32_t> EndTokens(const GenerationConfig& generation, const Tokenizer& tokenizer) {
  std::set<int32_t> ids;
  for (const Sourced<int64_t>& id : generation.eos) {
    // No token of the model has a larger number.
    if (id.value <= INT32_MAX) ids.insert(static_cast<int32_t>(id.value));
  }
  if (tokenizer.special().eos) ids.insert(*tokenizer.special().eos);
  return ids;
}

}  // namespace tenon
