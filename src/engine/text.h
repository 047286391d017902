// The text side of a checkpoint: its tokenizer, from tokenizer.json or the GGUF's vocabulary, its
// chat template's source, and the tokens that end an answer. Not generation (generate.h). Pure
// functions; thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "tenon/checkpoint/checkpoint.h"
#include "tenon/config/generation_config.h"
#include "tenon/tokenizer/tokenizer.h"

namespace tenon {

// kRefused when the checkpoint has no vocabulary.
Result<std::shared_ptr<const Tokenizer>> LoadTokenizer(const Checkpoint& checkpoint);

// The chat template's text: chat_template.jinja, tokenizer_config.json or GGUF metadata; nothing
// when there is none.
Result<std::optional<std::string>> ChatTemplateSource(const Checkpoint& checkpoint);

// Union of what generation_config.json and the config (`generation`) and the tokenizer call the end
// of a text.
std::set<int32_t> EndTokens(const GenerationConfig& generation, const Tokenizer& tokenizer);

}  // namespace tenon
