// ModelEntry: what a provider registers for one architecture: how its config is read, how its
// tensors are named, how it is built. Constant once registered; shared, so that it outlives a
// rebuild of the registry.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/checkpoint/checkpoint.h"
#include "tenon/checkpoint/tensor_index.h"
#include "tenon/config/config_reader.h"
#include "tenon/config/gguf_config.h"
#include "tenon/config/model_config.h"
#include "tenon/modules/model.h"

namespace tenon {

enum class ModelKind { kCausalLm, kEncoderDecoder, kEncoder, kVisionEncoder, kDraft };
std::string_view NameOf(ModelKind kind);

struct ModelTraits {
  std::string model_type;  // config.json's
  std::span<const GgufKeyRow> gguf_keys =
      {};  // GGUF metadata -> config keys; empty: no GGUF of this family
  // Checkpoint tensors that may be left unused, as patterns with `*`: old buffers, MTP heads,
  // towers.
  std::vector<std::string> skippable = {};
};

struct ModelEntry {
  std::string architecture;
  ModelKind kind = ModelKind::kCausalLm;
  ModelTraits traits;
  // Errors are left in the reader.
  std::function<std::shared_ptr<const ModelConfig>(ConfigReader&, Container)> read_config;
  std::function<NameTable(const ModelConfig&, Container)> names;
  std::function<std::unique_ptr<Model>(const Scope&, const ModelConfig&)> create;
};

}  // namespace tenon
