#include "tenon/config/quant_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/text.h"
#include "tenon/config/quant_readers.h"

namespace tenon {

void RefuseSetting(QuantReading& reading, ConfigReader& at, const std::string& key,
                   std::string_view allowed) {
  const Json* value = at.Raw(key);
  reading.reader.AddError(fmt::format(
      "quantisation {}: {} = {}, supports {}; set by {}; fix: use the checkpoint as it was before "
      "quantisation, or a GGUF file of it",
      NameOf(reading.rules.method), key, value == nullptr ? "null" : Printable(value->Dump(), 200),
      allowed, at.OriginText(key)));
}

void ExpectSetting(QuantReading& reading, ConfigReader& at, const std::string& key,
                   std::initializer_list<Json> allowed) {
  const Json* value = at.Raw(key);
  const Json stated = value == nullptr ? Json() : *value;
  if (std::find(allowed.begin(), allowed.end(), stated) != allowed.end()) return;
  std::vector<std::string> names;
  for (const Json& one : allowed) names.push_back(one.Dump());
  RefuseSetting(reading, at, key, Join(names, ", "));
}

std::string ReadKvScheme(ConfigReader& at, const std::string& key) {
  if (at.Raw(key) == nullptr) return "";
  ConfigReader scheme = at.Nested(key);
  const int64_t bits = scheme.RequireInt("num_bits").value;
  const std::string type = scheme.RequireString("type").value;
  scheme.Ignore({"*"});
  return fmt::format("{}{}", type == "float" ? "FP" : "INT", bits);
}

QuantScheme Fp8Scheme(int64_t block_rows, int64_t block_cols, InputFormat input) {
  return {.method = "fp8",
          .codes = DType::kF8E4M3,
          .block_rows = block_rows,
          .block_cols = block_cols,
          .input = input,
          .scale_names = {"weight_scale_inv", "weight_scale"},
          .input_scale_names = {"input_scale", "activation_scale"}};
}

QuantScheme Int8Scheme(int64_t block_rows, InputFormat input) {
  return {.method = "int8",
          .codes = DType::kI8,
          .block_rows = block_rows,
          .input = input,
          .scale_names = {"weight_scale"},
          .input_scale_names = {"input_scale"}};
}

Result<QuantRules> ReadQuantRules(const QuantConfig& config) {
  TN_RETURN_IF_ERROR(config.Unsupported());
  if (config.method.value == QuantMethod::kNone) return QuantRules{};
  QuantReading reading{config, ConfigReader(config.settings, config.method.origin.Text()), {}};
  reading.reader.Ignore({"quant_method", "version", "producer"});
  reading.rules.method = config.method.value;
  reading.rules.text = config.Text();
  reading.rules.origin = config.method.origin;
  switch (config.method.value) {
    case QuantMethod::kFp8:
      ReadFp8(reading);
      break;
    case QuantMethod::kCompressedTensors:
      ReadCompressedTensors(reading);
      break;
    case QuantMethod::kModelOpt:
      ReadModelOpt(reading);
      break;
    case QuantMethod::kMxfp4:
      ReadMxfp4(reading);
      break;
    default:
      return InternalError("a quantisation method without a reader");
  }
  for (const std::string& key : reading.reader.UnreadKeys()) {
    // Of a matrix's format nothing may be unknown.
    if (key.find("weights.") != std::string::npos ||
        key.find("activations.") != std::string::npos) {
      reading.reader.AddError(fmt::format(
          "quantisation {}: {} is not known, and may change what the weights mean; set by {}; fix: "
          "use the checkpoint as it was before quantisation, or a GGUF file of it",
          NameOf(reading.rules.method), key, reading.rules.origin.Text()));
    } else {
      reading.rules.unread.push_back(key);
    }
  }
  TN_RETURN_IF_ERROR(reading.reader.status());
  return std::move(reading.rules);
}

}  // namespace tenon
