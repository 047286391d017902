#include "tenon/config/rope_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tenon/base/text.h"

namespace tenon {
namespace {

// As Hugging Face decides: rope_scaling counts unless it is empty.
std::string DictionaryName(const ConfigReader& reader) {
  const Json* old_form = reader.Peek("rope_scaling");
  const bool empty =
      old_form == nullptr || (old_form->is_object() && old_form->as_object().empty());
  return empty && reader.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
}

// Names of the entries per layer type; empty for a flat dictionary.
std::vector<std::string> LayerTypesOf(const Json* dictionary, const RopeSpec& spec) {
  std::vector<std::string> expected;
  std::vector<std::string> all;
  if (dictionary == nullptr || !dictionary->is_object()) return all;
  bool has_object = false;
  for (const auto& [name, value] : dictionary->as_object()) {
    if (!value.is_object() && !value.is_null()) continue;
    has_object |= value.is_object();
    all.push_back(name);
    if (std::find(spec.layer_types.begin(), spec.layer_types.end(), name) !=
        spec.layer_types.end()) {
      expected.push_back(name);
    }
  }
  // A dictionary of dictionaries is one per layer type even where the family did not expect it.
  const bool only_objects = has_object && all.size() == dictionary->as_object().size();
  return only_objects ? all : expected;
}

// One dictionary and where it stands.
struct Source {
  ConfigReader& config;  // the level of rope_theta
  ConfigReader& outer;   // rope_scaling or rope_parameters
  ConfigReader& dict;    // the same, or its entry for one layer type
  bool nested;
  const RopeSpec& spec;
};

// A key of the dictionary, or of the level above it, or the family's default. No default: required.
double FromEither(const Source& source, const char* key, const Keys& config_keys,
                  std::optional<double> fallback, RealRange range) {
  if (!source.dict.Has(key)) {
    return (fallback ? source.config.Double(config_keys, *fallback, range)
                     : source.config.RequireDouble(config_keys, range))
        .value;
  }
  source.config.NotUsed(config_keys, source.dict.OriginText(key) + " counts");
  return source.dict.RequireDouble(key, range).value;
}

// Where the reference looks: Phi-3 states it outside the dictionary, which then wins.
void ReadOriginalLength(const Source& source, RopeParameters& rope) {
  const char* const key = "original_max_position_embeddings";
  if (!source.nested && source.config.Has(key)) {
    source.dict.NotUsed(key, source.config.OriginText(key) + " counts");
    rope.original_max_position = source.config.RequireInt(key).value;
  } else if (source.spec.max_position > 0) {
    rope.original_max_position = source.dict.Int(key, source.spec.max_position).value;
  } else {
    rope.original_max_position = source.dict.RequireInt(key).value;
  }
}

void ReadYarn(const Source& source, RopeParameters& rope) {
  ConfigReader& dict = source.dict;
  ReadOriginalLength(source, rope);
  rope.factor = dict.DoubleOrNull("factor", kPositiveReal).value;
  rope.attention_factor = dict.DoubleOrNull("attention_factor", kNonNegativeReal).value;
  rope.mscale = dict.Double("mscale", 0, kNonNegativeReal).value;
  rope.mscale_all_dim = dict.Double("mscale_all_dim", 0, kNonNegativeReal).value;
  // 0 means the default, as in the reference.
  const double fast = dict.Double("beta_fast", 32, kNonNegativeReal).value;
  const double slow = dict.Double("beta_slow", 1, kNonNegativeReal).value;
  rope.beta_fast = fast == 0 ? 32 : fast;
  rope.beta_slow = slow == 0 ? 1 : slow;
  if (dict.ok() && rope.beta_fast < rope.beta_slow) {
    dict.Error("beta_fast", fmt::format("must not be below beta_slow ({})", rope.beta_slow));
  }
  if (source.nested) {
    dict.NotUsed("truncate", "Hugging Face reads it beside the layer types");
  }
  rope.truncate = source.outer.Bool("truncate", true).value;
  if (dict.ok() && rope.theta == 1) {
    dict.Error({"rope_type", "type"}, "yarn needs a rope_theta other than 1");
  }
}

void ReadLlama3(const Source& source, RopeParameters& rope) {
  ConfigReader& dict = source.dict;
  ReadOriginalLength(source, rope);
  rope.factor = dict.RequireDouble("factor", kPositiveReal).value;
  const Sourced<double> low = dict.RequireDouble("low_freq_factor", kPositiveReal);
  const Sourced<double> high = dict.RequireDouble("high_freq_factor", kPositiveReal);
  rope.low_freq_factor = low.value;
  rope.high_freq_factor = high.value;
  if (IsPlaceholder(low.origin) || IsPlaceholder(high.origin)) return;
  if (high.value <= low.value) {
    dict.Error("high_freq_factor", fmt::format("must be above low_freq_factor ({})", low.value));
  }
}

void ReadLongrope(const Source& source, RopeParameters& rope) {
  ConfigReader& dict = source.dict;
  ReadOriginalLength(source, rope);
  rope.factor = dict.DoubleOrNull("factor", kPositiveReal).value;
  rope.attention_factor = dict.DoubleOrNull("attention_factor", kNonNegativeReal).value;
  for (const char* key : {"short_factor", "long_factor"}) {
    if (!dict.Has(key)) {
      dict.AddError(fmt::format("{} is missing; fix: add the list of divisors that longrope needs",
                                dict.OriginText(key)));
    }
  }
  rope.short_factor = dict.Doubles("short_factor", {}, kPositiveReal).value;
  rope.long_factor = dict.Doubles("long_factor", {}, kPositiveReal).value;
  if (rope.original_max_position == 1 && !rope.attention_factor) {
    dict.Error("original_max_position_embeddings", "longrope needs a length above 1");
  }
}

void CheckList(const Source& source, const char* key, size_t count, int64_t rotary_dim) {
  if (static_cast<int64_t>(count) == rotary_dim / 2) return;
  source.dict.Error(key, fmt::format("it has {} entries, needs {} (half of the {} rotated columns "
                                     "of a head of {})",
                                     count, rotary_dim / 2, rotary_dim, source.spec.head_dim));
}

// What must fit the head; only once all that was read is sound.
void CheckAgainstHead(const Source& source, const RopeParameters& rope) {
  if (!source.config.ok()) return;
  const int64_t rotary_dim = RotaryDim(rope, source.spec.head_dim);
  if (rotary_dim <= 0 || rotary_dim % 2 != 0) {
    source.config.AddError(fmt::format(
        "{}: rope would rotate {} columns of a head of {} (partial_rotary_factor {}), must be even "
        "and positive; fix: correct head_dim or partial_rotary_factor in {}",
        source.config.source_name(), rotary_dim, source.spec.head_dim, rope.partial_rotary_factor,
        source.config.source_name()));
    return;
  }
  if (rope.type == RopeType::kLongrope) {
    CheckList(source, "short_factor", rope.short_factor.size(), rotary_dim);
    CheckList(source, "long_factor", rope.long_factor.size(), rotary_dim);
  }
  if (!rope.divisors.empty()) {
    CheckList(source, "frequency_divisors", rope.divisors.size(), rotary_dim);
  }
  const int64_t sections =
      std::accumulate(rope.mrope_section.begin(), rope.mrope_section.end(), int64_t{0});
  if (!rope.mrope_section.empty() && sections != rotary_dim / 2) {
    source.dict.Error("mrope_section",
                      fmt::format("sums to {}, must sum to {} (half of the rotated "
                                  "columns)",
                                  sections, rotary_dim / 2));
  }
}

Sourced<RopeType> ReadTypeKey(ConfigReader& dict, const Keys& keys) {
  return dict.Enum<RopeType>(keys,
                             {{"default", RopeType::kDefault},
                              {"linear", RopeType::kLinear},
                              {"dynamic", RopeType::kDynamic},
                              {"yarn", RopeType::kYarn},
                              {"llama3", RopeType::kLlama3},
                              {"longrope", RopeType::kLongrope},
                              {"proportional", RopeType::kProportional},
                              {"su", RopeType::kLongrope},     // Phi-3's first name for it
                              {"mrope", RopeType::kDefault}},  // Qwen2-VL: mrope_section says it
                             RopeType::kDefault);
}

// Files of several years carry both spellings. They may differ in words, not in meaning.
RopeType ReadType(ConfigReader& dict) {
  const Sourced<RopeType> type = ReadTypeKey(dict, {"rope_type", "type"});
  if (!dict.Has("rope_type") || !dict.Has("type")) return type.value;
  const Sourced<RopeType> other = ReadTypeKey(dict, "type");
  if (IsPlaceholder(type.origin) || IsPlaceholder(other.origin) || type.value == other.value) {
    return type.value;
  }
  dict.Error("rope_type", fmt::format("but type = {} (set by {}), must be the same",
                                      dict.Peek("type")->Dump(), dict.OriginText("type")));
  return RopeType::kDefault;  // so that the keys of one of them are not asked for
}

RopeParameters ReadDictionary(const Source& source) {
  ConfigReader& dict = source.dict;
  RopeParameters rope;
  dict.Ignore({"finetuned", "max_position_embeddings"});
  rope.type = ReadType(dict);
  rope.theta =
      FromEither(source, "rope_theta", source.spec.theta_keys, source.spec.theta, kPositiveReal);
  rope.partial_rotary_factor =
      FromEither(source, "partial_rotary_factor", source.spec.partial_keys,
                 source.spec.partial_rotary_factor, {.low = 0, .high = 1, .above_low = true});
  switch (rope.type) {
    case RopeType::kDefault:
      break;
    case RopeType::kLinear:
      rope.factor = dict.RequireDouble("factor", kPositiveReal).value;
      break;
    case RopeType::kDynamic:
      rope.factor = dict.RequireDouble("factor", kPositiveReal).value;
      if (source.spec.max_position <= 0) {
        dict.Error({"rope_type", "type"}, "dynamic needs max_position_embeddings");
      }
      break;
    case RopeType::kYarn:
      ReadYarn(source, rope);
      break;
    case RopeType::kLlama3:
      ReadLlama3(source, rope);
      break;
    case RopeType::kLongrope:
      ReadLongrope(source, rope);
      break;
    case RopeType::kProportional:
      rope.factor = dict.Double("factor", 1, kPositiveReal).value;
      break;
  }
  rope.mrope_section = dict.Ints("mrope_section", {}, kNonNegative).value;
  rope.mrope_interleaved = dict.Bool("mrope_interleaved", false).value;
  rope.divisors = dict.Doubles("frequency_divisors", {}, kPositiveReal).value;
  CheckAgainstHead(source, rope);
  return rope;
}

Origin OriginOf(const ConfigReader& reader, const std::string& dictionary, const RopeSpec& spec) {
  if (reader.Has(dictionary)) {
    return {Origin::Kind::kCheckpoint, reader.OriginText(dictionary)};
  }
  if (reader.Has(spec.theta_keys)) {
    return {Origin::Kind::kCheckpoint, reader.OriginText(spec.theta_keys)};
  }
  return {Origin::Kind::kModelDefault,
          fmt::format("default, {} is absent", reader.OriginText(dictionary))};
}

}  // namespace

std::string_view NameOf(RopeType type) {
  switch (type) {
    case RopeType::kDefault:
      return "default";
    case RopeType::kLinear:
      return "linear";
    case RopeType::kDynamic:
      return "dynamic";
    case RopeType::kYarn:
      return "yarn";
    case RopeType::kLlama3:
      return "llama3";
    case RopeType::kLongrope:
      return "longrope";
    case RopeType::kProportional:
      return "proportional";
  }
  return "unknown";
}

bool HasRopePerLayerType(const ConfigReader& reader, const RopeSpec& spec) {
  return !LayerTypesOf(reader.Peek(DictionaryName(reader)), spec).empty();
}

Sourced<std::optional<RopeParameters>> ReadRopeOf(ConfigReader& reader, const RopeSpec& spec,
                                                  std::string_view layer_type) {
  const std::string name = DictionaryName(reader);
  const std::vector<std::string> types = LayerTypesOf(reader.Peek(name), spec);
  ConfigReader outer = reader.Nested(name);
  Origin origin = OriginOf(reader, name, spec);
  if (types.empty()) return {ReadDictionary({reader, outer, outer, false, spec}), origin};

  const std::string type(layer_type);
  if (std::find(types.begin(), types.end(), type) == types.end()) {
    outer.AddError(fmt::format("{} has no entry for {} layers, there is {}; fix: add one",
                               origin.detail, type, Join(types, ", ")));
    return {RopeParameters{}, origin};
  }
  origin.detail = outer.OriginText(type);
  ConfigReader dict = outer.Nested(type);
  if (!outer.Has(type)) return {std::nullopt, origin};
  return {ReadDictionary({reader, outer, dict, true, spec}), origin};
}

Sourced<RopeParameters> ReadRope(ConfigReader& reader, const RopeSpec& spec) {
  const std::string name = DictionaryName(reader);
  const std::vector<std::string> types = LayerTypesOf(reader.Peek(name), spec);
  if (types.size() > 1) {
    reader.Error(name, fmt::format("it is given per layer type ({}), but all layers of this model "
                                   "rotate alike",
                                   Join(types, ", ")));
    return {};
  }
  Sourced<std::optional<RopeParameters>> rope =
      ReadRopeOf(reader, spec, types.empty() ? "" : types.front());
  if (!rope.value) reader.Error(name, "its only entry is null, but this model's layers rotate");
  return {rope.value.value_or(RopeParameters{}), std::move(rope.origin)};
}

}  // namespace tenon
