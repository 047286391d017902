#include "tenon/config/quant_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tenon/base/text.h"

namespace tenon {
namespace {

struct MethodRow {
  const char* name;  // as quant_method spells it, and we do
  QuantMethod method;
  bool supported;
};
// The one list of methods; a method is served when its row says so.
constexpr MethodRow kMethods[] = {
    {"none", QuantMethod::kNone, true},
    {"fp8", QuantMethod::kFp8, true},
    {"compressed-tensors", QuantMethod::kCompressedTensors, true},
    {"modelopt", QuantMethod::kModelOpt, true},
    {"awq", QuantMethod::kAwq, false},
    {"gptq", QuantMethod::kGptq, false},
    {"mxfp4", QuantMethod::kMxfp4, true},
    {"bitsandbytes", QuantMethod::kBitsAndBytes, false},
};

const MethodRow* FindMethod(std::string_view name) {
  for (const MethodRow& row : kMethods) {
    if (row.method != QuantMethod::kNone && name == row.name) return &row;
  }
  return nullptr;
}

std::string MethodNames(bool only_supported, std::span<const std::string> externals = {}) {
  std::vector<std::string> names;
  for (const MethodRow& row : kMethods) {
    if (!only_supported || row.supported) names.emplace_back(row.name);
  }
  names.insert(names.end(), externals.begin(), externals.end());
  return Join(names, ", ");
}

bool IsTrue(const Json* value) { return value != nullptr && value->is_bool() && value->as_bool(); }

// The method's name where older writers left quant_method out.
std::string ImpliedMethod(const Json& settings) {
  if (IsTrue(settings.Find("load_in_4bit")) || IsTrue(settings.Find("load_in_8bit"))) {
    return "bitsandbytes";
  }
  const Json* producer = settings.Find("producer");
  const Json* name = producer == nullptr ? nullptr : producer->Find("name");
  if (settings.Find("quant_algo") != nullptr ||
      (name != nullptr && name->is_string() && name->as_string() == "modelopt")) {
    return "modelopt";
  }
  return settings.Find("config_groups") != nullptr ? "compressed-tensors" : "";
}

// One object that may name a method. owner: for errors.
QuantConfig ReadSettings(ConfigReader& owner, const Keys& keys, const Json& settings,
                         std::span<const std::string> externals) {
  QuantConfig quant;
  quant.method.origin = {Origin::Kind::kCheckpoint, owner.OriginText(keys)};
  if (!settings.is_object()) {
    owner.Error(keys, "must be an object or null");
    return quant;
  }
  const Json* stated = settings.Find("quant_method");
  if (stated != nullptr && !stated->is_null() && !stated->is_string()) {
    owner.Error(keys, fmt::format("quant_method = {}, must be a string", stated->Dump()));
    return quant;
  }
  const bool is_stated = stated != nullptr && stated->is_string();
  const std::string name = is_stated ? stated->as_string() : ImpliedMethod(settings);
  if (std::find(externals.begin(), externals.end(), name) != externals.end()) {
    quant.method.value = QuantMethod::kExternal;
    quant.external = name;
    quant.settings = settings;
    return quant;
  }
  const MethodRow* row = FindMethod(name);
  if (row == nullptr) {
    owner.Error(keys, fmt::format("{}, known are {}",
                                  is_stated ? "quant_method = " + JsonQuote(name)
                                            : "it names no quant_method",
                                  MethodNames(false, externals)));
    return quant;
  }
  quant.method.value = row->method;
  quant.settings = settings;
  return quant;
}

}  // namespace

std::string_view NameOf(QuantMethod method) {
  for (const MethodRow& row : kMethods) {
    if (row.method == method) return row.name;
  }
  return "unknown";
}

std::string QuantConfig::Text() const {
  std::string text(method.value == QuantMethod::kExternal ? external : NameOf(method.value));
  const Json* inner = settings.Find("quantization");
  const Json& from = inner != nullptr ? *inner : settings;
  for (const char* key :
       {"quant_algo", "kv_cache_quant_algo", "format", "fmt", "activation_scheme", "bits",
        "group_size", "checkpoint_format", "version", "sym", "desc_act", "zero_point",
        "bnb_4bit_quant_type", "load_in_8bit", "weight_block_size"}) {
    const Json* value = from.Find(key);
    if (value == nullptr || value->is_null()) continue;
    text += fmt::format(", {} {}", key, value->is_string() ? value->as_string() : value->Dump());
  }
  return text;
}

Status QuantConfig::Unsupported() const {
  for (const MethodRow& row : kMethods) {
    if (row.method == method.value && row.supported) return {};
  }
  return Refused(fmt::format(
      "quantisation method = {} ({}), supports {} and the block formats of GGUF files; set by {}; "
      "fix: use the checkpoint as it was before quantisation, or a GGUF file of it",
      NameOf(method.value), Text(), MethodNames(true), method.origin.Text()));
}

QuantConfig ReadQuantConfig(ConfigReader& reader, const Json* hf_quant_config,
                            std::span<const std::string> externals) {
  const Keys keys = {"quantization_config", "compression_config"};
  if (hf_quant_config != nullptr) {
    ConfigReader file(*hf_quant_config, "hf_quant_config.json");
    QuantConfig quant = ReadSettings(file, "producer", *hf_quant_config, externals);
    quant.method.origin.detail = "hf_quant_config.json";
    if (!file.ok()) reader.AddError(file.status().message());
    return quant;
  }
  if (const Json* settings = reader.Raw(keys)) {
    return ReadSettings(reader, keys, *settings, externals);
  }
  const Json* text = reader.Peek("text_config");
  if (text == nullptr || !text->is_object()) return {};
  ConfigReader nested = reader.Nested("text_config");
  if (const Json* settings = nested.Raw(keys)) {
    return ReadSettings(nested, keys, *settings, externals);
  }
  return {};
}

}  // namespace tenon
