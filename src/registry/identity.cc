// What a checkpoint says it is: the keys of config.json, also where wrappers nest them, or GGUF's
// general.architecture.
#include <fmt/format.h>

#include "tenon/registry/resolution.h"

namespace tenon {
namespace {

// Where wrappers of several modalities keep the language model's config.
constexpr const char* kNested[] = {"text_config", "language_config", "llm_config"};

// architectures and model_type of one object; keys that are there already stay.
Status ReadIdentityKeys(const Json& config, const std::string& source, Identity& identity) {
  const Json* names = config.Find("architectures");
  if (identity.architectures.empty() && names != nullptr && names->is_array()) {
    for (const Json& name : names->as_array()) {
      if (!name.is_string()) {
        return Refused(
            fmt::format("{}: architectures holds {}, allowed: strings", source, name.Dump()));
      }
      identity.architectures.push_back(name.as_string());
    }
    if (!names->as_array().empty()) identity.source = source;
  } else if (names != nullptr && !names->is_array() && !names->is_null()) {
    return Refused(
        fmt::format("{}: architectures = {}, allowed: a list of strings", source, names->Dump()));
  }
  const Json* type = config.Find("model_type");
  if (identity.model_type.empty() && type != nullptr && type->is_string()) {
    identity.model_type = type->as_string();
  }
  return {};
}

}  // namespace

Result<Identity> IdentityOf(const Checkpoint& checkpoint, Registry& registry) {
  Identity identity;
  if (const GgufMetadata* metadata = checkpoint.gguf()) {
    identity.source = "GGUF metadata";
    TN_ASSIGN_OR_RETURN(const std::string_view gguf, metadata->String("general.architecture"));
    TN_ASSIGN_OR_RETURN(std::string architecture, registry.ArchitectureOfGguf(gguf, *metadata));
    identity.architectures = {std::move(architecture)};
    return identity;
  }
  identity.source = "config.json";
  const Json* config = checkpoint.config();
  if (config == nullptr || !config->is_object()) {
    return Refused(checkpoint.path() +
                   ": no config.json; fix: a Hugging Face directory with config.json, or a .gguf");
  }
  TN_RETURN_IF_ERROR(ReadIdentityKeys(*config, "config.json", identity));
  identity.has_draft_vocab_size = config->Find("draft_vocab_size") != nullptr;
  for (const char* key : kNested) {
    if (!identity.architectures.empty()) break;
    const Json* nested = config->Find(key);
    if (nested == nullptr || !nested->is_object()) continue;
    TN_RETURN_IF_ERROR(ReadIdentityKeys(*nested, fmt::format("config.json: {}", key), identity));
  }
  return identity;
}

}  // namespace tenon
