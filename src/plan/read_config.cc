#include <fmt/format.h>

#include "tenon/config/quant_rules.h"
#include "tenon/plan/options.h"
#include "tenon/plan/phases.h"

namespace tenon {
namespace {

// Scalars and lists of numbers; of other lists their length alone.
Json MetadataAsJson(const GgufMetadata& metadata) {
  Json object{Json::Object{}};
  Json::Object& members = object.as_object();  // keys are unique: no look-up per key
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    const std::string key(entry.key);
    const GgufValue& value = entry.value;
    if (const auto flag = value.AsBool()) {
      members.emplace_back(key, *flag);
    } else if (const auto number = value.AsInt()) {
      members.emplace_back(key, *number);
    } else if (const auto real = value.AsFloat()) {
      members.emplace_back(key, *real);
    } else if (const auto text = value.AsString()) {
      members.emplace_back(key, std::string(*text));
    } else {
      members.emplace_back(key + ".length", value.count());
      // Vocabularies' scores and types are long and no config.
      constexpr int64_t kLongest = 4096;
      if (value.count() > kLongest || value.element_type() == GgufType::kString) continue;
      Json::Array list;
      if (const auto numbers = value.AsInts()) {
        for (const int64_t n : *numbers) list.emplace_back(n);
      } else if (const auto reals = value.AsFloats()) {
        for (const double n : *reals) list.emplace_back(n);
      }
      members.emplace_back(key, std::move(list));
    }
  }
  return object;
}

// The tensors that are part of the config, as lists of numbers.
Status AddRopeTensors(const Checkpoint& checkpoint, Json& metadata) {
  for (const char* name : kGgufRopeTensors) {
    const StoredTensor* tensor = checkpoint.FindTensor(name);
    if (tensor == nullptr) continue;
    TN_ASSIGN_OR_RETURN(const TensorView view, checkpoint.MapTensor(*tensor), name);
    if (view.dtype() != DType::kF32 || view.shape().elements() > kMostRopeDivisors) {
      return Refused(
          fmt::format("{}: {} of {}, allowed: f32, at most {} numbers; fix: use another "
                      "file",
                      name, NameOf(view.dtype()), view.shape().Text(), kMostRopeDivisors));
    }
    Json::Array list;
    for (int64_t i = 0; i < view.shape().elements(); ++i) {
      list.emplace_back(static_cast<double>(view.as<float>()[i]));
    }
    metadata.Set(name, std::move(list));
  }
  return {};
}

// The config as Hugging Face would have it, whatever the container.
Result<ConfigSource> SourceOf(const Checkpoint& checkpoint, const Resolution& resolution) {
  const ModelEntry& entry = *resolution.entry;
  const GgufMetadata* metadata = checkpoint.gguf();
  if (metadata == nullptr) {
    const ConfigReaderEntry* reader = resolution.config_reader.get();
    if (reader == nullptr || !reader->translate) return ConfigSource{.json = *checkpoint.config()};
    return reader->translate(*checkpoint.config());
  }
  if (entry.traits.gguf_keys.empty()) {
    return Refused(fmt::format("{} is not served from GGUF; fix: its Hugging Face directory",
                               entry.architecture));
  }
  TN_ASSIGN_OR_RETURN(const std::string_view architecture,
                      metadata->String("general.architecture"));
  Json values = MetadataAsJson(*metadata);
  TN_RETURN_IF_ERROR(AddRopeTensors(checkpoint, values));
  return ConfigFromGguf(values,
                        {std::string(architecture), entry.architecture, entry.traits.model_type},
                        entry.traits.gguf_keys);
}

// Where wrappers of several modalities keep the keys of their language model. A key of the top
// counts more; a family with a wrapper of its own reads it as it likes.
void LookInTextConfig(ConfigReader& reader) {
  for (const char* key : {"text_config", "language_config", "llm_config"}) {
    const Json* nested = reader.Peek(key);
    if (nested == nullptr || !nested->is_object()) continue;
    reader.AlsoLookIn(key);
    return;
  }
}

// Weights whose method cannot be computed are refused before anything is built on them.
Result<QuantRules> ReadQuantisation(PlannedModel& plan, ConfigReader& reader) {
  const Checkpoint& checkpoint = *plan.checkpoint;
  constexpr std::string_view kSideFile = "hf_quant_config.json";
  Json side_file;
  if (checkpoint.HasFile(kSideFile)) {
    TN_ASSIGN_OR_RETURN(const std::string text, checkpoint.ReadSideFile(kSideFile));
    TN_ASSIGN_OR_RETURN(side_file, ParseJson(text), kSideFile);
  }
  std::vector<std::string> externals;
  for (const auto& found : plan.plugin_quant_methods) externals.push_back(found.entry->name);
  const QuantConfig config =
      ReadQuantConfig(reader, side_file.is_null() ? nullptr : &side_file, externals);
  TN_RETURN_IF_ERROR(reader.status());
  if (config.method.value != QuantMethod::kExternal) return ReadQuantRules(config);
  for (const auto& [entry, provider] : plan.plugin_quant_methods) {
    if (entry->name != config.external) continue;
    for (const auto& [name, method] : entry->linear_methods) plan.linear_methods.Add(name, method);
    TN_ASSIGN_OR_RETURN(QuantRules rules, entry->read(config),
                        fmt::format("{}: quantisation '{}' of {}", config.method.origin.Text(),
                                    entry->name, provider));
    rules.method = QuantMethod::kExternal;
    rules.text = config.Text();
    rules.origin = {config.method.origin.kind,
                    fmt::format("{}, by {}", config.method.origin.Text(), provider)};
    return rules;
  }
  return InternalError("a method that nobody registered");
}

// What the authors offer counts less than anything that was set.
Status OfferGeneration(PlannedModel& plan) {
  std::vector<Sourced<int64_t>> more_eos;
  for (const int64_t id : plan.config->eos.value) more_eos.push_back({id, plan.config->eos.origin});
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    const GgufMetadata* metadata = plan.checkpoint->gguf();
    if (metadata == nullptr || !metadata->Has(key)) continue;
    TN_ASSIGN_OR_RETURN(const int64_t id, metadata->Int(key));
    more_eos.push_back({id, {Origin::Kind::kCheckpoint, key}});
  }
  TN_ASSIGN_OR_RETURN(plan.generation,
                      ReadGenerationConfig({.generation = plan.checkpoint->generation_config(),
                                            .config = plan.checkpoint->config(),
                                            .more_eos = more_eos}));
  EngineOptionTable().OfferGeneration(plan.generation, plan.options);
  return {};
}

}  // namespace

Status ReadModelConfig(PlannedModel& plan) {
  const ModelEntry& entry = *plan.resolution.entry;
  TN_ASSIGN_OR_RETURN(ConfigSource source, SourceOf(*plan.checkpoint, plan.resolution),
                      "config reader of the model_type");
  plan.reader = std::make_unique<ConfigReader>(std::move(source));
  LookInTextConfig(*plan.reader);
  TN_ASSIGN_OR_RETURN(plan.quant, ReadQuantisation(plan, *plan.reader));
  plan.config = entry.read_config(*plan.reader, plan.checkpoint->container());
  TN_RETURN_IF_ERROR(plan.reader->status());
  return OfferGeneration(plan);
}

}  // namespace tenon
