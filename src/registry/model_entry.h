// What providers register, one struct for each kind of slot: a model of an architecture, a vision
// encoder, a draft builder, a reader of another model_type's config, an attention backend. Constant
// once registered; shared, so that they outlive a rebuild of the registry.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/attention/capability.h"
#include "tenon/base/machine_profile.h"
#include "tenon/checkpoint/checkpoint.h"
#include "tenon/checkpoint/tensor_index.h"
#include "tenon/config/config_reader.h"
#include "tenon/config/gguf_config.h"
#include "tenon/config/model_config.h"
#include "tenon/config/option_table.h"
#include "tenon/config/quant_rules.h"
#include "tenon/modules/linear_method.h"
#include "tenon/modules/model.h"

namespace tenon {

enum class ModelKind { kCausalLm, kEncoderDecoder, kEncoder, kVisionEncoder, kDraft };
std::string_view NameOf(ModelKind kind);

// What a name may be registered for. Each kind has its own names: a model and a vision encoder of
// one architecture are two slots, which two providers may hold.
enum class SlotKind {
  kModel,
  kVisionEncoder,
  kDraftBuilder,
  kConfigReader,
  kTarget,
  kAttentionBackend,
  kQuantMethod
};
inline constexpr int kSlotKinds = 7;
std::string_view NameOf(SlotKind kind);

// The values that a family would rather have than the engine's, where nobody set them. From the
// config, the options as set, and the machine.
using ModelDefaults = std::vector<OptionDefault>(const ModelConfig& config,
                                                 const EngineOptions& options,
                                                 const MachineProfile& machine);

struct ModelTraits {
  std::string model_type;  // config.json's
  std::span<const GgufKeyRow> gguf_keys =
      {};  // GGUF metadata -> config keys; empty: no GGUF of this family
  // Checkpoint tensors that may be left unused, as patterns with `*`: old buffers, MTP heads,
  // towers.
  std::vector<std::string> skippable = {};
  std::function<ModelDefaults> defaults = {};  // null: none
  // What names lack in a checkpoint of the base model alone ("model."); empty: not served so.
  std::string base_prefix = {};
};

struct ModelEntry {
  static constexpr SlotKind kSlot = SlotKind::kModel;
  const std::string& slot() const { return architecture; }

  std::string architecture;
  ModelKind kind = ModelKind::kCausalLm;
  ModelTraits traits;
  // Errors are left in the reader.
  std::function<std::shared_ptr<const ModelConfig>(ConfigReader&, Container)> read_config;
  std::function<NameTable(const ModelConfig&, Container)> names;
  // As traits.skippable, where that depends on the config. Null: it does not.
  std::function<std::vector<std::string>(const ModelConfig&)> skippable = {};
  std::function<std::unique_ptr<Model>(const Scope&, const ModelConfig&)> create;
};

// The image part of a model that takes images.
struct VisionEncoderEntry {
  static constexpr SlotKind kSlot = SlotKind::kVisionEncoder;
  const std::string& slot() const { return architecture; }

  std::string architecture;  // of the model it belongs to
  std::function<std::shared_ptr<const ModelConfig>(ConfigReader&, Container)> read_config;
  std::function<NameTable(const ModelConfig&, Container)> names;
  std::function<std::unique_ptr<Model>(const Scope&, const ModelConfig&)> create;
};

// The draft model of one mode of speculative decoding, built beside its target model.
struct DraftBuilderEntry {
  static constexpr SlotKind kSlot = SlotKind::kDraftBuilder;
  const std::string& slot() const { return mode; }

  std::string mode;  // "MTP"
  std::function<std::unique_ptr<Model>(const Scope&, const ModelConfig& target,
                                       const ModelConfig& draft)>
      create;
};

// Checkpoints of a model_type that an architecture serves, in other words than its own.
struct ConfigReaderEntry {
  static constexpr SlotKind kSlot = SlotKind::kConfigReader;
  const std::string& slot() const { return model_type; }

  std::string model_type;
  std::string architecture;  // that serves it where config.json names none
  // config.json -> the same facts in the keys of the architecture's family. Null: they are alike.
  std::function<Result<ConfigSource>(const Json& config)> translate = {};
};

// An attention backend beside the built-in ones, or in place of one of its name.
struct AttentionBackendEntry {
  static constexpr SlotKind kSlot = SlotKind::kAttentionBackend;
  const std::string& slot() const { return name; }

  std::string name;  // the backend's, in small letters: case does not matter
  std::shared_ptr<const AttentionBackend> backend;
  std::vector<KernelRow> rows;  // what its kernels declare, in the order of preference
};

// A quantisation method that config.json may name, beside ours or in place of one of its name.
struct QuantMethodEntry {
  static constexpr SlotKind kSlot = SlotKind::kQuantMethod;
  const std::string& slot() const { return name; }

  std::string name;  // as quant_method spells it
  // Settings -> which layer has which scheme. Schemes name linear methods.
  std::function<Result<QuantRules>(const QuantConfig&)> read;
  // Methods that the schemes name and that we do not have: by name.
  std::vector<std::pair<std::string, std::shared_ptr<const LinearMethod>>> linear_methods = {};
};

}  // namespace tenon
