#include "tenon/config/rope_parameters.h"

#include <fmt/format.h>

#include <algorithm>

namespace tenon {
namespace {

constexpr const char* kNewDictionary = "rope_parameters";
constexpr const char* kOldDictionary = "rope_scaling";

Keys Dictionaries() { return {kNewDictionary, kOldDictionary}; }

RopeType TypeOf(ConfigReader& dictionary) {
  // "mrope" is the default rope with sections; "su" is longrope's first name.
  return dictionary
      .Enum<RopeType>({"rope_type", "type"},
                      {{"default", RopeType::kDefault},
                       {"linear", RopeType::kLinear},
                       {"dynamic", RopeType::kDynamic},
                       {"yarn", RopeType::kYarn},
                       {"llama3", RopeType::kLlama3},
                       {"longrope", RopeType::kLongrope},
                       {"su", RopeType::kLongrope},
                       {"proportional", RopeType::kProportional},
                       {"mrope", RopeType::kDefault}},
                      RopeType::kDefault)
      .value;
}

void ReadYarn(ConfigReader& d, RopeParameters& p) {
  p.beta_fast = d.Double("beta_fast", 32, kPositiveReal).value;
  p.beta_slow = d.Double("beta_slow", 1, kPositiveReal).value;
  p.mscale = d.Double("mscale", 0, kNonNegativeReal).value;
  p.mscale_all_dim = d.Double("mscale_all_dim", 0, kNonNegativeReal).value;
  p.truncate = d.Bool("truncate", true).value;
}

void ReadLongrope(ConfigReader& d, const RopeSpec& spec, RopeParameters& p) {
  p.short_factor = d.Doubles("short_factor", {}, kPositiveReal).value;
  p.long_factor = d.Doubles("long_factor", {}, kPositiveReal).value;
  const int64_t wanted = RotaryDim(p, spec.head_dim) / 2;
  for (const auto& [key, list] :
       {std::pair{"short_factor", &p.short_factor}, std::pair{"long_factor", &p.long_factor}}) {
    if (static_cast<int64_t>(list->size()) == wanted) continue;
    d.Error(key,
            fmt::format("has {} numbers, the rotated dimension needs {}", list->size(), wanted));
    list->assign(static_cast<size_t>(wanted), 1.0);
  }
}

// One dictionary (possibly empty), with the keys that the old form keeps at the top level.
RopeParameters ReadDictionary(ConfigReader& top, ConfigReader& d, const RopeSpec& spec) {
  RopeParameters p;
  const double outer_theta = top.Double(spec.theta_keys, spec.theta, kPositiveReal).value;
  p.theta = d.Double("rope_theta", outer_theta, kPositiveReal).value;
  const double outer_partial =
      top.Double(spec.partial_keys, spec.partial_rotary_factor, kFraction).value;
  p.partial_rotary_factor = d.Double("partial_rotary_factor", outer_partial, kFraction).value;
  p.type = TypeOf(d);
  p.mrope_section = d.Ints("mrope_section", {}).value;
  p.mrope_interleaved = d.Bool("mrope_interleaved", false).value;
  if (p.type == RopeType::kDefault) return p;

  p.factor = d.DoubleOrNull("factor", kPositiveReal).value;
  const bool may_lack_factor = p.type == RopeType::kYarn || p.type == RopeType::kLongrope;
  if (!p.factor && !may_lack_factor) {
    d.Error("factor", fmt::format("is absent, and rope type {} needs it", NameOf(p.type)));
    p.factor = 1;
  }
  if (p.type == RopeType::kLinear || p.type == RopeType::kDynamic ||
      p.type == RopeType::kProportional)
    return p;

  const std::optional<int64_t> outer = top.IntOrNull("original_max_position_embeddings").value;
  const std::optional<int64_t> inner = d.IntOrNull("original_max_position_embeddings").value;
  p.original_max_position = outer ? outer : inner ? inner : std::optional(spec.max_position);
  p.attention_factor = d.DoubleOrNull("attention_factor", kPositiveReal).value;
  if (p.type == RopeType::kYarn) ReadYarn(d, p);
  if (p.type == RopeType::kLlama3) {
    p.low_freq_factor = d.Double("low_freq_factor", 1, kPositiveReal).value;
    p.high_freq_factor = d.Double("high_freq_factor", 4, kPositiveReal).value;
    if (p.high_freq_factor <= p.low_freq_factor) {
      d.Error("high_freq_factor", fmt::format("{} must be above low_freq_factor {}",
                                              p.high_freq_factor, p.low_freq_factor));
    }
  }
  if (p.type == RopeType::kLongrope) ReadLongrope(d, spec, p);
  return p;
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
  ConfigReader copy = reader;  // a handle: asking leaves no trace beyond the dictionary itself
  const ConfigReader dictionary = copy.Nested(Dictionaries());
  const std::vector<std::string> members = dictionary.MemberNames();
  return !members.empty() &&
         std::all_of(members.begin(), members.end(), [&](const std::string& name) {
           return std::find(spec.layer_types.begin(), spec.layer_types.end(), name) !=
                  spec.layer_types.end();
         });
}

Sourced<RopeParameters> ReadRope(ConfigReader& reader, const RopeSpec& spec) {
  ConfigReader dictionary = reader.Nested(Dictionaries());
  if (HasRopePerLayerType(reader, spec)) {
    const std::vector<std::string> members = dictionary.MemberNames();
    if (members.size() > 1) {
      reader.Error(
          Dictionaries(),
          fmt::format(
              "has an entry for each of {} layer types; this model's layers all rotate alike",
              members.size()));
    }
    ConfigReader inner = dictionary.Nested(members[0]);
    return {ReadDictionary(reader, inner, spec),
            {Origin::Kind::kCheckpoint, reader.OriginText(Dictionaries())}};
  }
  return {ReadDictionary(reader, dictionary, spec),
          {Origin::Kind::kCheckpoint, reader.OriginText(Dictionaries())}};
}

Sourced<std::optional<RopeParameters>> ReadRopeOf(ConfigReader& reader, const RopeSpec& spec,
                                                  std::string_view layer_type) {
  const Origin origin{Origin::Kind::kCheckpoint, reader.OriginText(Dictionaries())};
  if (!HasRopePerLayerType(reader, spec)) return {ReadRope(reader, spec).value, origin};
  ConfigReader dictionary = reader.Nested(Dictionaries());
  const std::string name(layer_type);
  if (!dictionary.Has(name)) return {std::nullopt, origin};
  ConfigReader inner = dictionary.Nested(name);
  return {ReadDictionary(reader, inner, spec), origin};
}

}  // namespace tenon
