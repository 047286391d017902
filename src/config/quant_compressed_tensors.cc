// quant_method "compressed-tensors": groups of targets, each with the format of its weights and
// inputs.
#include <fmt/format.h>

#include "tenon/config/quant_readers.h"

namespace tenon {
namespace {

QuantKey KeyOf(std::string text) {
  const bool is_regex = text.starts_with("re:");
  return {std::move(text), is_regex ? QuantKey::Match::kRegex : QuantKey::Match::kName};
}

InputFormat ReadIntegerInput(QuantReading& reading, ConfigReader& input) {
  ExpectSetting(reading, input, "dynamic", {true});
  ExpectSetting(reading, input, "strategy", {"token"});
  ExpectSetting(reading, input, "group_size", {nullptr});
  return InputFormat::kInt8PerToken;
}

InputFormat ReadFloatInput(QuantReading& reading, ConfigReader& input) {
  ExpectSetting(reading, input, "dynamic", {true, false, nullptr});
  const std::string strategy = input.String("strategy", "tensor").value;
  const Json* dynamic = input.Peek("dynamic");
  if (dynamic == nullptr || *dynamic != Json(true)) {
    ExpectSetting(reading, input, "strategy", {"tensor", nullptr});
    ExpectSetting(reading, input, "group_size", {nullptr});
    return InputFormat::kFp8Static;
  }
  ExpectSetting(reading, input, "strategy", {"token", "tensor", "group", nullptr});
  if (strategy == "group") {
    ExpectSetting(reading, input, "group_size", {128});
    return InputFormat::kFp8PerBlock;
  }
  ExpectSetting(reading, input, "group_size", {nullptr});
  return strategy == "token" ? InputFormat::kFp8PerToken : InputFormat::kFp8PerTensor;
}

InputFormat ReadInput(QuantReading& reading, ConfigReader& group, const std::string& type) {
  if (!group.Has("input_activations")) return InputFormat::kNone;
  ConfigReader input = group.Nested("input_activations");
  ExpectSetting(reading, input, "type", {Json(type)});
  ExpectSetting(reading, input, "num_bits", {8});
  ExpectSetting(reading, input, "symmetric", {true, nullptr});
  ExpectSetting(reading, input, "actorder", {nullptr});
  ExpectSetting(reading, input, "block_structure", {nullptr});
  input.Ignore({"observer", "observer_kwargs", "scale_dtype", "zp_dtype"});
  return type == "int" ? ReadIntegerInput(reading, input) : ReadFloatInput(reading, input);
}

void ExpectFormat(QuantReading& reading, ConfigReader& group, const std::string& type) {
  ConfigReader& at = group.Has("format") ? group : reading.reader;
  const char* own = type == "int" ? "int-quantized" : "float-quantized";
  ExpectSetting(reading, at, "format", {own, "naive-quantized"});
}

QuantScheme ReadScheme(QuantReading& reading, ConfigReader& group) {
  ConfigReader weights = group.Nested("weights");
  ExpectSetting(reading, weights, "type", {"int", "float"});
  const std::string type = weights.String("type", "int").value;
  ExpectFormat(reading, group, type);
  ExpectSetting(reading, weights, "num_bits", {8});
  ExpectSetting(reading, weights, "symmetric", {true, nullptr});
  ExpectSetting(reading, weights, "dynamic", {false, nullptr});
  ExpectSetting(reading, weights, "actorder", {nullptr, false});
  ExpectSetting(reading, weights, "group_size", {nullptr});
  weights.Ignore({"observer", "observer_kwargs", "scale_dtype", "zp_dtype"});
  ExpectSetting(reading, group, "output_activations", {nullptr});
  if (type == "int") {
    ExpectSetting(reading, weights, "strategy", {"channel", "tensor"});
  } else {
    ExpectSetting(reading, weights, "strategy", {"channel", "tensor", "block"});
  }
  const std::string strategy = weights.String("strategy", "tensor").value;
  if (strategy == "block") {
    ExpectSetting(reading, weights, "block_structure", {Json::Array{128, 128}, "128x128"});
  } else {
    ExpectSetting(reading, weights, "block_structure", {nullptr});
  }
  const InputFormat input = ReadInput(reading, group, type);
  const int64_t block_rows = strategy == "block" ? 128 : strategy == "channel" ? 1 : 0;
  if (type == "int") return Int8Scheme(block_rows, input);
  return Fp8Scheme(block_rows, strategy == "block" ? 128 : 0, input);
}

}  // namespace

void ReadCompressedTensors(QuantReading& reading) {
  ConfigReader& s = reading.reader;
  ExpectSetting(reading, s, "quantization_status", {nullptr, "compressed", "frozen"});
  s.Ignore({"global_compression_ratio", "format"});  // each group has asked for its format
  for (const char* key : {"sparsity_config", "transform_config"}) {
    ExpectSetting(reading, s, key, {nullptr, Json::Object{}});
  }
  ConfigReader groups = s.Nested("config_groups");
  if (groups.MemberNames().empty()) {
    RefuseSetting(reading, s, "config_groups", "an object of groups");
  }
  for (const std::string& name : groups.MemberNames()) {
    ConfigReader group = groups.Nested(name);
    const QuantScheme scheme = ReadScheme(reading, group);
    for (std::string& target : group.Strings("targets", {}).value) {
      if (target != "Linear") {
        reading.rules.layers.push_back({KeyOf(std::move(target)), scheme});
      } else if (reading.rules.global.is_plain()) {
        reading.rules.global = scheme;
      } else {
        RefuseSetting(reading, group, "targets", "\"Linear\" in one group");
      }
    }
  }
  for (std::string& name : s.Strings("ignore", {}).value) {
    reading.rules.excludes.push_back(KeyOf(std::move(name)));
  }
  reading.rules.kv_algorithm = ReadKvScheme(s, "kv_cache_scheme");
}

}  // namespace tenon
