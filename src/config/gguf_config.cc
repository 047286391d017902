#include "tenon/config/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tenon/base/text.h"
#include "tenon/config/rope_parameters.h"

namespace tenon {
namespace {

constexpr std::string_view kArch = "{arch}";

// Builds the tree and its origins together.
class Builder {
 public:
  Builder(const GgufMetadataView& view) : view_(view) {  // NOLINT(google-explicit-constructor)
    source_.name = "GGUF metadata";
    source_.json = Json::Object{};
  }

  // Sets hf_key (a path) unless an earlier row did; `gguf_key` names it in messages.
  void Set(std::string_view hf_key, std::string_view gguf_key, Json value) {
    if (!set_.emplace(hf_key).second) return;
    source_.origins.insert_or_assign(std::string(hf_key), "GGUF: " + view_.NameOf(gguf_key));
    Json* node = &source_.json;
    std::vector<std::string_view> parts = Split(hf_key, '.');
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      if (node->Find(parts[i]) == nullptr) node->Set(parts[i], Json::Object{});
      for (auto& [name, member] : node->as_object()) {
        if (name == parts[i]) node = &member;
      }
      TN_CHECK(node->is_object(), "a row's path goes through a key that another row sets");
    }
    node->Set(parts.back(), std::move(value));
  }
  // What an absent key would be called.
  void Name(std::string_view hf_key, std::string_view gguf_key) {
    source_.origins.try_emplace(std::string(hf_key), "GGUF: " + view_.NameOf(gguf_key));
  }
  // The value of a metadata key, which then counts as mapped.
  const Json* Take(std::string_view gguf_key) {
    mapped_.insert(view_.NameOf(gguf_key));
    return view_.Find(gguf_key);
  }
  // Copies one key; false when it is absent.
  bool Copy(std::string_view hf_key, std::string_view gguf_key) {
    Name(hf_key, gguf_key);
    const Json* value = Take(gguf_key);
    if (value != nullptr) Set(hf_key, gguf_key, *value);
    return value != nullptr;
  }

  ConfigSource Finish() {
    const std::string prefix = std::string(view_.architecture) + ".";
    for (const auto& [name, value] : view_.metadata.as_object()) {
      const bool is_length =
          name.ends_with(".length") && mapped_.contains(name.substr(0, name.size() - 7));
      if (name.starts_with(prefix) && !mapped_.contains(name) && !is_length) {
        source_.unmapped.push_back("GGUF: " + name);
      }
    }
    return std::move(source_);
  }

 private:
  const GgufMetadataView& view_;
  ConfigSource source_;
  std::set<std::string, std::less<>> set_;
  std::set<std::string, std::less<>> mapped_;
};

// A number of the rope keys, or an error naming it.
Result<std::optional<double>> TakeNumber(Builder& builder, const GgufMetadataView& view,
                                         std::string_view key) {
  const Json* value = builder.Take(key);
  if (value == nullptr) return std::optional<double>();
  if (!value->is_number()) {
    return Refused(fmt::format("{} is of kind {}, must be a number; fix: correct the GGUF metadata",
                               view.NameOf(key), value->KindName()));
  }
  return std::optional<double>(value->as_double());
}

// The type that counts: "none" is absent; a factor without a type means linear (llama.cpp's rule).
Result<std::string> ScalingType(Builder& builder, const GgufMetadataView& view) {
  const Json* type = builder.Take("{arch}.rope.scaling.type");
  if (type == nullptr) {
    const bool scaled = view.Find("{arch}.rope.scaling.factor") != nullptr ||
                        view.Find("{arch}.rope.scale_linear") != nullptr;
    return std::string(scaled ? "linear" : "none");
  }
  if (type->is_string()) {
    for (const char* known : {"none", "linear", "yarn", "longrope"}) {
      if (type->as_string() == known) return std::string(known);
    }
  }
  return Refused(
      fmt::format("{} = {}, must be one of none, linear, yarn, longrope; fix: correct the "
                  "GGUF metadata",
                  view.NameOf("{arch}.rope.scaling.type"), type->Dump()));
}

Status FoldYarn(Builder& builder, const GgufMetadataView& view) {
  builder.Copy("rope_scaling.beta_fast", "{arch}.rope.scaling.yarn_beta_fast");
  builder.Copy("rope_scaling.beta_slow", "{arch}.rope.scaling.yarn_beta_slow");
  // The writers store 0.1 * mscale_all_dim, of models whose two mscales are equal. A family whose
  // writer differs states its own rows, which come first.
  constexpr std::string_view kLogMultiplier = "{arch}.rope.scaling.yarn_log_multiplier";
  TN_ASSIGN_OR_RETURN(const std::optional<double> log_multiplier,
                      TakeNumber(builder, view, kLogMultiplier));
  if (log_multiplier) {
    builder.Set("rope_scaling.mscale", kLogMultiplier, *log_multiplier * 10);
    builder.Set("rope_scaling.mscale_all_dim", kLogMultiplier, *log_multiplier * 10);
  }
  // There it multiplies the factor that follows from `factor`; here it replaces it.
  for (const std::string_view key :
       {"{arch}.rope.scaling.attn_factor", "{arch}.rope.scaling.yarn_attn_factor"}) {
    TN_ASSIGN_OR_RETURN(const std::optional<double> attention, TakeNumber(builder, view, key));
    TN_ASSIGN_OR_RETURN(const std::optional<double> factor,
                        TakeNumber(builder, view, "{arch}.rope.scaling.factor"));
    if (attention && *attention != 1) {
      builder.Set("rope_scaling.attention_factor", key,
                  *attention * YarnMscale(factor.value_or(1), 1));
    }
  }
  constexpr std::string_view kExtFactor = "{arch}.rope.scaling.yarn_ext_factor";
  TN_ASSIGN_OR_RETURN(const std::optional<double> ext_factor,
                      TakeNumber(builder, view, kExtFactor));
  if (ext_factor && *ext_factor != 1 && *ext_factor != -1) {
    return Refused(fmt::format("{} = {}, supports 1 (and -1, which means 1); fix: use another file",
                               view.NameOf(kExtFactor), *ext_factor));
  }
  return {};
}

Status FoldRopeScaling(Builder& builder, const GgufMetadataView& view) {
  TN_ASSIGN_OR_RETURN(const std::string type, ScalingType(builder, view));
  builder.Take("{arch}.rope.scaling.finetuned");  // says how the model was trained
  if (builder.Take("rope_freqs.weight") != nullptr) {
    builder.Copy("rope_scaling.frequency_divisors", "rope_freqs.weight");
  }
  builder.Copy("rope_scaling.alpha", "{arch}.rope.scaling.alpha");
  if (type == "none") return {};

  builder.Set("rope_scaling.rope_type", "{arch}.rope.scaling.type", type);
  if (!builder.Copy("rope_scaling.factor", "{arch}.rope.scaling.factor")) {
    builder.Copy("rope_scaling.factor", "{arch}.rope.scale_linear");
  }
  builder.Copy("rope_scaling.original_max_position_embeddings",
               "{arch}.rope.scaling.original_context_length");
  if (type == "yarn") return FoldYarn(builder, view);
  if (type == "longrope") {
    builder.Copy("rope_scaling.attention_factor", "{arch}.rope.scaling.attn_factor");
    builder.Copy("rope_scaling.short_factor", "rope_factors_short.weight");
    builder.Copy("rope_scaling.long_factor", "rope_factors_long.weight");
  }
  return {};
}

}  // namespace

std::string GgufMetadataView::NameOf(std::string_view key) const {
  if (!key.starts_with(kArch)) return std::string(key);
  return std::string(architecture) + std::string(key.substr(kArch.size()));
}
const Json* GgufMetadataView::Find(std::string_view key) const {
  const Json* value = metadata.Find(NameOf(key));
  return value == nullptr || value->is_null() ? nullptr : value;
}

Result<Json> GgufPartialRotary(const Json& value, const GgufMetadataView& view) {
  const auto number = [&](std::string_view key) -> double {
    const Json* found = view.Find(key);
    if (found == nullptr) return 0;
    if (found->is_array() && !found->as_array().empty()) found = &found->as_array()[0];
    return found->is_number() ? found->as_double() : 0;
  };
  double head_dim = number("{arch}.attention.key_length");
  if (head_dim == 0) {
    const double heads = number("{arch}.attention.head_count");
    head_dim = heads > 0 ? std::floor(number("{arch}.embedding_length") / heads) : 0;
  }
  if (!value.is_int() || value.as_int() <= 0 || value.as_double() > head_dim) {
    return Refused(fmt::format("must be from 1 to the head's {} columns", head_dim));
  }
  // int(head_dim * factor) must give the count back.
  double factor = value.as_double() / head_dim;
  while (std::floor(head_dim * factor) < value.as_double()) factor = std::nextafter(factor, 2.0);
  return Json(factor);
}

Result<ConfigSource> ConfigFromGguf(const Json& metadata, const GgufIdentity& identity,
                                    std::span<const GgufKeyRow> rows) {
  if (!metadata.is_object()) return Refused("GGUF metadata is no table of keys");
  const GgufMetadataView view = {metadata, identity.architecture};
  Builder builder(view);
  builder.Set("architectures", "general.architecture",
              identity.hf_architecture.empty() ? Json::Array{}
                                               : Json::Array{Json(identity.hf_architecture)});
  builder.Set("model_type", "general.architecture", identity.model_type);
  for (const GgufKeyRow& row : rows) {
    builder.Name(row.hf_key, row.gguf_key);
    const Json* value = builder.Take(row.gguf_key);
    if (value == nullptr) continue;
    if (row.convert == nullptr) {
      builder.Set(row.hf_key, row.gguf_key, *value);
      continue;
    }
    TN_ASSIGN_OR_RETURN(Json converted, row.convert(*value, view),
                        fmt::format("{} = {}", view.NameOf(row.gguf_key), value->Dump()));
    builder.Set(row.hf_key, row.gguf_key, std::move(converted));
  }
  TN_RETURN_IF_ERROR(FoldRopeScaling(builder, view));
  return builder.Finish();
}

}  // namespace tenon
