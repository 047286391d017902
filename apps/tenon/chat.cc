#include "chat.h"

#include "tenon/engine/text.h"

namespace tenon::cli {

Result<std::optional<ChatTemplate>> LoadChatTemplate(const Checkpoint& checkpoint) {
  TN_ASSIGN_OR_RETURN(std::optional<std::string> source, ChatTemplateSource(checkpoint));
  if (!source) return std::optional<ChatTemplate>();
  TN_ASSIGN_OR_RETURN(
      ChatTemplate parsed,
      ChatTemplate::Parse(*std::move(source), "chat template of " + checkpoint.path()));
  return std::optional<ChatTemplate>(std::move(parsed));
}

Json SpecialTokenVariables(const Tokenizer& tokenizer) {
  Json variables{Json::Object{}};
  const SpecialTokenIds& ids = tokenizer.special();
  const auto set = [&](const char* name, const std::optional<int32_t>& id) {
    if (id) variables.Set(name, tokenizer.TokenText(*id));
  };
  set("bos_token", ids.bos);
  set("eos_token", ids.eos);
  set("unk_token", ids.unk);
  set("pad_token", ids.pad);
  return variables;
}

}  // namespace tenon::cli
