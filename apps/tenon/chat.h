// A checkpoint's chat template, ready to render with its own special tokens. One thread.
#pragma once

#include <memory>
#include <optional>

#include "tenon/checkpoint/checkpoint.h"
#include "tenon/tokenizer/chat_template.h"
#include "tenon/tokenizer/tokenizer.h"

namespace tenon::cli {

// Nothing when the checkpoint has no template.
Result<std::optional<ChatTemplate>> LoadChatTemplate(const Checkpoint& checkpoint);

// bos_token, eos_token, … as templates expect them: the tokens' text.
Json SpecialTokenVariables(const Tokenizer& tokenizer);

}  // namespace tenon::cli
