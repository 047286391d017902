#include "tenon/config/gguf_config.h"

#include <fmt/format.h>

#include "tenon/base/text.h"

namespace tenon {
namespace {

struct Filler {
  std::string_view architecture;
  const GgufLookup& lookup;
  ConfigSource& source;
  std::vector<std::string> missing = {};

  std::string KeyOf(std::string_view pattern) const {
    std::string key(pattern);
    if (const size_t at = key.find("{arch}"); at != std::string::npos)
      key.replace(at, 6, architecture);
    return key;
  }
  // Sets target[hf_key] when the metadata has the key.
  bool Fill(Json& target, const std::string& prefix, std::string_view hf_key,
            std::string_view pattern, bool required) {
    const std::string key = KeyOf(pattern);
    std::optional<Json> value = lookup(key);
    source.origins.emplace(prefix + std::string(hf_key), "GGUF: " + key);
    if (!value) {
      if (required) missing.push_back(key);
      return false;
    }
    target.Set(hf_key, std::move(*value));
    return true;
  }
};

// {arch}.rope.scaling.*: "none" is no scaling.
void FillRopeScaling(Filler& filler) {
  const std::optional<Json> type = filler.lookup(filler.KeyOf("{arch}.rope.scaling.type"));
  if (!type || !type->is_string() || type->as_string() == "none") return;
  constexpr std::pair<std::string_view, std::string_view> kRows[] = {
      {"rope_type", "{arch}.rope.scaling.type"},
      {"factor", "{arch}.rope.scaling.factor"},
      {"original_max_position_embeddings", "{arch}.rope.scaling.original_context_length"},
      {"attention_factor", "{arch}.rope.scaling.attn_factor"},
      {"beta_fast", "{arch}.rope.scaling.yarn_beta_fast"},
      {"beta_slow", "{arch}.rope.scaling.yarn_beta_slow"},
  };
  Json scaling{Json::Object{}};
  for (const auto& [hf_key, gguf_key] : kRows)
    filler.Fill(scaling, "rope_scaling.", hf_key, gguf_key, false);
  filler.source.json.Set("rope_scaling", std::move(scaling));
}

}  // namespace

Result<ConfigSource> ConfigFromGguf(std::string_view gguf_architecture,
                                    std::span<const GgufKeyRow> rows, const GgufLookup& lookup) {
  ConfigSource source;
  source.name = "GGUF metadata";
  source.json = Json(Json::Object{});
  Filler filler{gguf_architecture, lookup, source};
  for (const GgufKeyRow& row : rows)
    filler.Fill(source.json, "", row.hf_key, row.gguf_key, row.required);
  FillRopeScaling(filler);
  if (!filler.missing.empty()) {
    return Refused(
        fmt::format("GGUF metadata lacks {}; fix: a complete file", Join(filler.missing, ", ")));
  }
  return source;
}

}  // namespace tenon
