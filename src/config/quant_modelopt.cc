// ModelOpt: hf_quant_config.json, or the same settings in config.json (quant_method "modelopt").
#include <fmt/format.h>

#include "tenon/base/text.h"
#include "tenon/config/quant_readers.h"

namespace tenon {
namespace {

struct AlgorithmRow {
  const char* name;
  int64_t block_rows;
  int64_t block_cols;
  InputFormat input;
};
constexpr AlgorithmRow kAlgorithms[] = {
    {"FP8", 0, 0, InputFormat::kFp8Static},
    {"FP8_PER_CHANNEL_PER_TOKEN", 1, 0, InputFormat::kFp8PerToken},
    {"FP8_PB_WO", 128, 128, InputFormat::kNone},
};
constexpr const char* kMixed = "MIXED_PRECISION";

std::string AlgorithmNames(bool with_mixed) {
  std::vector<std::string> names;
  for (const AlgorithmRow& row : kAlgorithms) names.emplace_back(row.name);
  if (with_mixed) names.emplace_back(kMixed);
  return Join(names, ", ");
}

// Of the whole model or of one layer.
QuantScheme ReadAlgorithm(QuantReading& reading, ConfigReader& at, bool may_be_mixed) {
  ExpectSetting(reading, at, "has_zero_point", {nullptr, false});
  ExpectSetting(reading, at, "pre_quant_scale", {nullptr, false});
  const std::string name = at.String("quant_algo", "").value;
  for (const AlgorithmRow& row : kAlgorithms) {
    if (name != row.name) continue;
    const bool has_blocks = row.block_cols > 0;
    ExpectSetting(reading, at, "group_size", {nullptr, has_blocks ? Json(row.block_cols) : Json()});
    return Fp8Scheme(row.block_rows, row.block_cols, row.input);
  }
  at.Ignore({"group_size"});
  const bool is_none = name.empty() && at.Peek("config_groups") == nullptr;
  if (!is_none && !(may_be_mixed && name == kMixed)) {
    RefuseSetting(reading, at, "quant_algo", AlgorithmNames(may_be_mixed));
  }
  return {};
}

void ReadLayers(QuantReading& reading, ConfigReader& at) {
  ConfigReader layers = at.Nested("quantized_layers");
  for (const std::string& name : layers.MemberNames()) {
    ConfigReader layer = layers.Nested(name);
    const QuantScheme scheme = ReadAlgorithm(reading, layer, false);
    reading.rules.layers.push_back({{name, QuantKey::Match::kName}, scheme});
  }
}

}  // namespace

void ReadModelOpt(QuantReading& reading) {
  ConfigReader s =
      reading.reader.Has("quantization") ? reading.reader.Nested("quantization") : reading.reader;
  reading.rules.global = ReadAlgorithm(reading, s, true);
  const bool is_mixed = s.String("quant_algo", "").value == kMixed;
  if (is_mixed) ReadLayers(reading, s);
  if (is_mixed && reading.rules.layers.empty() && reading.reader.ok()) {
    RefuseSetting(reading, s, "quantized_layers", "an object of layers with MIXED_PRECISION");
  }
  s.Ignore({"config_groups"});  // the same in the words of compressed-tensors
  for (const char* key : {"exclude_modules", "ignore"}) {
    for (std::string& name : s.Strings(key, {}).value) {
      const bool is_regex = name.starts_with("re:");
      reading.rules.excludes.push_back(
          {std::move(name), is_regex ? QuantKey::Match::kRegexTree : QuantKey::Match::kGlob});
    }
  }
  reading.rules.kv_algorithm = s.String("kv_cache_quant_algo", "").value;
  if (reading.rules.kv_algorithm.empty()) {
    reading.rules.kv_algorithm = ReadKvScheme(s, "kv_cache_scheme");
  }
}

}  // namespace tenon
