// What a model says of itself: config.json and its companions, GGUF metadata; up to the typed
// config and the names of tensors.
#include <algorithm>
#include <array>

#include "support.h"
#include "targets.h"
#include "tenon/config/quant_config.h"
#include "tenon/engine/text.h"
#include "tenon/plan/options.h"
#include "tenon/plan/phases.h"
#include "tenon/zoo/zoo.h"

namespace tenon::fuzz {
namespace {

Registry& Families() {
  static const std::unique_ptr<Registry> registry = MakeRegistry();
  return *registry;
}

Status ReadConfig(PlannedModel& plan) {
  static const EngineOptions defaults = EngineOptionTable().Defaults();
  plan.options = defaults;
  plan.options.memory.value = int64_t{1} << 30;  // the same on every machine
  plan.options.threads.value = 2;
  TN_ASSIGN_OR_RETURN(const Identity identity, IdentityOf(*plan.checkpoint, Families()));
  TN_ASSIGN_OR_RETURN(plan.resolution, Resolve(identity, Families()));
  return ReadModelConfig(plan);
}

// As the zoo's families use it: a table as wide as the rotated columns, if there are any.
void WalkRope(const ModelConfig& config) {
  constexpr int64_t kWidest = 1 << 12;
  const int64_t width = RotaryDim(config.rope.value, config.head_dim.value.Max());
  if (width <= 0 || width % 2 != 0 || width > kWidest) return;
  const int64_t longest = config.max_position.value;
  for (const int64_t length : {int64_t{1}, longest, 2 * longest}) {
    const RopeFrequencies f = ComputeRope(config.rope.value, width, length, longest);
    TN_CHECK(static_cast<int64_t>(f.inv_freq.size()) == width / 2, "one frequency for two columns");
  }
}

void WalkNames(const PlannedModel& plan) {
  const NameTable names = plan.resolution.entry->names(*plan.config, plan.checkpoint->container());
  for (const char* canonical :
       {"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
        "model.layers.1.mlp.experts.1.up_proj.weight", "lm_head.weight"}) {
    const auto stored = names.StoredOf(canonical);
    const std::string name = names.Normalise(stored ? stored->name : canonical);
    for (const NameTable::Match& match : names.MatchStored(name)) {
      Read(names.CanonicalName(match, 0));
    }
  }
}

// Integers of 4096 at the most: sizes beyond say nothing new of the plan, only take longer to plan.
bool IsSmall(const Json& json) {
  constexpr int64_t kMost = 4096;
  if (json.is_array()) return std::ranges::all_of(json.as_array(), IsSmall);
  if (json.is_object()) {
    return std::ranges::all_of(json.as_object(),
                               [](const Json::Member& m) { return IsSmall(m.second); });
  }
  return !json.is_number() || json.as_double() <= static_cast<double>(kMost);
}

// The rest of the plan, as `tenon explain` makes it.
void WalkPlan(PlannedModel& plan) {
  constexpr int64_t kMostLayers = 4;
  if (plan.checkpoint->config() == nullptr || !IsSmall(*plan.checkpoint->config())) return;
  if (plan.config->layers.value > kMostLayers) return;
  for (Status (*phase)(PlannedModel&) : {PrepareContext, Construct, SizeMemory}) {
    const Status status = phase(plan);
    if (!status.ok()) return CheckError(status);
  }
}

void WalkModel(PlannedModel& plan) {
  const Status status = ReadConfig(plan);
  if (!status.ok()) return CheckError(status);
  Read(plan.reader->ToJson().Dump());
  for (const std::string& key : plan.reader->UnreadKeys()) Read(key);
  WalkRope(*plan.config);
  WalkNames(plan);
  WalkPlan(plan);
}

// What the walk above reads only for families that exist.
void ReadAlone(const Checkpoint& checkpoint) {
  if (checkpoint.config() == nullptr) return;
  ConfigReader reader(*checkpoint.config());
  const QuantConfig quant = ReadQuantConfig(reader, nullptr);
  if (reader.ok()) Read(quant.Text());
  const auto generation = ReadGenerationConfig(
      {.generation = checkpoint.generation_config(), .config = checkpoint.config()});
  if (!generation.ok()) CheckError(generation.status());
}

void WalkText(const Checkpoint& checkpoint) {
  const auto source = ChatTemplateSource(checkpoint);
  if (!source.ok()) CheckError(source.status());
  const auto tokenizer = LoadTokenizer(checkpoint);
  if (!tokenizer.ok()) return CheckError(tokenizer.status());
  const auto encoding = (*tokenizer)->Encode("a b\n  c 12", {.with_pieces = true});
  if (!encoding.ok()) return CheckError(encoding.status());
  const auto text = (*tokenizer)->Decode(encoding->ids);
  if (!text.ok()) CheckError(text.status());
}

}  // namespace

// config.json, then generation_config.json, hf_quant_config.json, tokenizer_config.json.
void FuzzHfConfig(std::string_view bytes) {
  static const ScratchFolder folder;
  constexpr std::array kNames = {"config.json", "generation_config.json", "hf_quant_config.json",
                                 "tokenizer_config.json"};
  const std::vector<std::string_view> parts = Parts(bytes);
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (i < parts.size() && !parts[i].empty()) {
      folder.Write(kNames[i], parts[i]);
    } else {
      folder.Remove(kNames[i]);
    }
  }
  PlannedModel plan;
  auto opened = Checkpoint::Open(folder.path(), OpenFor::kParts);
  if (!opened.ok()) return CheckError(opened.status());
  plan.checkpoint = *std::move(opened);
  ReadAlone(*plan.checkpoint);
  const auto source = ChatTemplateSource(*plan.checkpoint);
  if (!source.ok()) CheckError(source.status());
  WalkModel(plan);
}

void FuzzGgufModel(std::string_view bytes) {
  const auto file =
      MappedFile::Of("model.gguf", std::as_bytes(std::span(bytes.data(), bytes.size())));
  auto opened = Checkpoint::Open(file);
  if (!opened.ok()) return CheckError(opened.status());
  PlannedModel plan;
  plan.checkpoint = *std::move(opened);
  WalkModel(plan);
  WalkText(*plan.checkpoint);
}

}  // namespace tenon::fuzz
