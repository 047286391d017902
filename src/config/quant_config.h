// QuantConfig: how a checkpoint says its weights are quantised: the method and its raw settings.
// GGUF files do not pass here: there each tensor names its block format. What a method does with
// the settings (schemes per layer, excludes, the cache's format) is read by that method. A value;
// thread-compatible.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tenon/base/json.h"
#include "tenon/base/ledger.h"
#include "tenon/base/status.h"
#include "tenon/config/config_reader.h"

namespace tenon {

enum class QuantMethod {
  kNone,
  kFp8,                // DeepSeek's blocks; static tensor scales
  kCompressedTensors,  // its formats are below, in the settings
  kModelOpt,
  kAwq,
  kGptq,
  kMxfp4,
  kBitsAndBytes,
  kExternal,  // a plugin's
};
std::string_view NameOf(QuantMethod method);

struct QuantConfig {
  Sourced<QuantMethod> method = {QuantMethod::kNone, {}};
  std::string external;  // kExternal: the method's name
  Json settings;         // the object that names the method, as it is in the file; null for kNone
  // One line of what the settings ask for, for reports: "fp8, fmt e4m3, weight_block_size
  // [128,128]".
  std::string Text() const;

  // OK for methods that can be computed, else the refusal.
  Status Unsupported() const;
};

// Looks at hf_quant_config (that file's content; null when absent), then quantization_config or
// compression_config of the config or of its text_config; absent or null is kNone. A method that is
// not known, or not named, is left as an error in the reader. externals: names of methods that
// others read, which count before ours.
QuantConfig ReadQuantConfig(ConfigReader& reader, const Json* hf_quant_config,
                            std::span<const std::string> externals = {});

}  // namespace tenon
