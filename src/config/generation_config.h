// GenerationConfig: how the checkpoint's authors want text to be generated: sampling settings and
// the tokens that end an answer. Read from generation_config.json, or from config.json where old
// checkpoints keep it. Only what the files say: absent is null, defaults are the engine's. A value;
// thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tenon/base/json.h"
#include "tenon/base/ledger.h"
#include "tenon/base/status.h"

namespace tenon {

struct GenerationConfig {
  // Hugging Face samples only when this is true.
  Sourced<std::optional<bool>> do_sample;
  Sourced<std::optional<double>> temperature;
  Sourced<std::optional<int64_t>> top_k;  // 0: off
  Sourced<std::optional<double>> top_p;
  Sourced<std::optional<double>> min_p;
  Sourced<std::optional<double>> typical_p;
  Sourced<std::optional<double>> repetition_penalty;
  Sourced<std::optional<int64_t>> no_repeat_ngram_size;

  Sourced<std::optional<int64_t>> max_new_tokens;
  Sourced<std::optional<int64_t>> max_length;  // prompt included
  Sourced<std::optional<int64_t>> min_new_tokens;
  Sourced<std::vector<std::string>> stop_strings;

  // Each token that ends an answer once, with who named it first.
  std::vector<Sourced<int64_t>> eos;
  Sourced<std::optional<int64_t>> bos;
  Sourced<std::optional<int64_t>> pad;
  // Encoder-decoder models.
  Sourced<std::optional<int64_t>> decoder_start;
  Sourced<std::optional<int64_t>> forced_bos;
  Sourced<std::vector<int64_t>> forced_eos;
  Sourced<std::vector<int64_t>> suppress_tokens;
  Sourced<std::vector<int64_t>> begin_suppress_tokens;

  std::vector<std::string> unread;  // keys of generation_config.json that nothing here reads
};

struct GenerationSources {
  const Json* generation = nullptr;  // generation_config.json; null: the file does not exist
  const Json* config = nullptr;      // config.json; null for GGUF
  // Tokens that the tokenizer ends an answer with (eos_token, GGUF's eot and eom ids), and those of
  // the model's config, which may be nested.
  std::span<const Sourced<int64_t>> more_eos = {};
};
// kRefused with all problems at once.
Result<GenerationConfig> ReadGenerationConfig(const GenerationSources& sources);

}  // namespace tenon
