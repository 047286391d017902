#include "tenon/config/generation_config.h"

#include <algorithm>

#include "tenon/config/config_reader.h"

namespace tenon {
namespace {

// Negative ids mean "none".
constexpr IntRange kTokenId = {.low = -1};

Sourced<std::optional<int64_t>> ReadToken(ConfigReader& reader, const char* key) {
  Sourced<std::optional<int64_t>> token = reader.IntOrNull(key, kTokenId);
  if (token.value && *token.value < 0) token.value.reset();
  return token;
}

Sourced<std::vector<int64_t>> ReadTokens(ConfigReader& reader, const char* key) {
  Sourced<std::vector<int64_t>> tokens = reader.IntsOrInt(key, {}, kTokenId);
  std::erase_if(tokens.value, [](int64_t id) { return id < 0; });
  return tokens;
}

void AddEos(GenerationConfig& result, const Sourced<int64_t>& token) {
  const bool known = std::any_of(result.eos.begin(), result.eos.end(),
                                 [&](const auto& have) { return have.value == token.value; });
  if (!known) result.eos.push_back(token);
}

void AddEosOf(ConfigReader& reader, GenerationConfig& result) {
  const Sourced<std::vector<int64_t>> tokens = ReadTokens(reader, "eos_token_id");
  for (const int64_t id : tokens.value) AddEos(result, {id, tokens.origin});
}

void ReadSampling(ConfigReader& reader, GenerationConfig& result) {
  result.do_sample = reader.BoolOrNull("do_sample");
  result.temperature = reader.DoubleOrNull("temperature", kNonNegativeReal);
  result.top_k = reader.IntOrNull("top_k", {.low = -1});  // some writers say -1 for off
  if (result.top_k.value == -1) result.top_k.value = 0;
  result.top_p = reader.DoubleOrNull("top_p", kFraction);
  result.min_p = reader.DoubleOrNull("min_p", kFraction);
  result.typical_p = reader.DoubleOrNull("typical_p", kFraction);
  result.repetition_penalty = reader.DoubleOrNull("repetition_penalty", kPositiveReal);
  result.no_repeat_ngram_size = reader.IntOrNull("no_repeat_ngram_size", kNonNegative);
}

void ReadLengths(ConfigReader& reader, GenerationConfig& result) {
  result.max_new_tokens = reader.IntOrNull("max_new_tokens", kNonNegative);
  result.max_length = reader.IntOrNull("max_length", kNonNegative);
  result.min_new_tokens = reader.IntOrNull("min_new_tokens", kNonNegative);
  const Json* stop = reader.Peek("stop_strings");
  if (stop != nullptr && stop->is_string()) {
    result.stop_strings = {{stop->as_string()}, reader.String("stop_strings", "").origin};
  } else {
    result.stop_strings = reader.Strings("stop_strings", {});
  }
}

void ReadSpecialTokens(ConfigReader& reader, GenerationConfig& result) {
  result.bos = ReadToken(reader, "bos_token_id");
  result.pad = ReadToken(reader, "pad_token_id");
  result.decoder_start = ReadToken(reader, "decoder_start_token_id");
  result.forced_bos = ReadToken(reader, "forced_bos_token_id");
  result.forced_eos = ReadTokens(reader, "forced_eos_token_id");
  result.suppress_tokens = ReadTokens(reader, "suppress_tokens");
  result.begin_suppress_tokens = ReadTokens(reader, "begin_suppress_tokens");
}

}  // namespace

Result<GenerationConfig> ReadGenerationConfig(const GenerationSources& sources) {
  GenerationConfig result;
  const bool has_file = sources.generation != nullptr;
  ConfigReader config(sources.config != nullptr ? *sources.config : Json(Json::Object{}));
  ConfigReader own(has_file ? *sources.generation : Json(Json::Object{}), "generation_config.json");
  // As Hugging Face: with a file of its own, config.json says nothing about generation, except that
  // its end tokens still end an answer.
  ConfigReader& reader = has_file ? own : config;
  ReadSampling(reader, result);
  ReadLengths(reader, result);
  ReadSpecialTokens(reader, result);
  AddEosOf(reader, result);
  if (has_file) AddEosOf(config, result);
  ConfigReader text = config.Nested("text_config");
  AddEosOf(text, result);
  for (const Sourced<int64_t>& token : sources.more_eos) AddEos(result, token);

  TN_RETURN_IF_ERROR(own.status());
  TN_RETURN_IF_ERROR(config.status());
  if (has_file) {
    own.Ignore({"transformers_version", "_from_model_config", "use_cache", "output_*", "return_*",
                "compile_config", "disable_compile", "cache_implementation"});
    result.unread = own.UnreadKeys();
  }
  return result;
}

}  // namespace tenon
