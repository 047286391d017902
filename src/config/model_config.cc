#include "tenon/config/model_config.h"

#include <fmt/format.h>

#include <algorithm>

namespace tenon {
namespace {

Sourced<int64_t> ReadSize(ConfigReader& reader, const SizeKey& key, IntRange range = kPositive) {
  if (key.fallback) return reader.Int(key.keys, *key.fallback, range);
  return reader.RequireInt(key.keys, range);
}

// Else the number follows from others. A default is for an absent key: null asks for the rule.
bool HasDefaultOrValue(const ConfigReader& reader, const SizeKey& key) {
  return reader.Has(key.keys) || (key.fallback && !reader.IsNull(key.keys));
}

// optional: 0 in a list says that the layer has none.
Sourced<PerLayer<int64_t>> ReadPerLayer(ConfigReader& reader, const ModelConfig& config,
                                        const SizeKey& key, IntRange range, bool optional) {
  std::optional<PerLayer<int64_t>> fallback;
  if (key.fallback) fallback = PerLayer<int64_t>(*key.fallback);
  Sourced<PerLayer<int64_t>> value = reader.PerLayerInt(key.keys, config.layers, fallback, range);
  const std::vector<int64_t>& values = value.value.values();
  const auto none = std::find(values.begin(), values.end(), 0);
  if (optional || !value.value.is_list() || none == values.end()) return value;
  reader.Error(key.keys, fmt::format("is 0 for layer {}, every layer of this model has some",
                                     none - values.begin()));
  // Some number, so that one mistake is one error.
  return {PerLayer<int64_t>(std::max<int64_t>(value.value.Max(), 1)), value.origin};
}

// f(layer) for every layer, as a list only where the inputs are lists.
template <typename Function>
PerLayer<int64_t> ForEachLayer(const PerLayer<int64_t>& like, const Function& f) {
  if (!like.is_list()) return f(0);
  std::vector<int64_t> values;
  for (size_t layer = 0; layer < like.values().size(); ++layer) {
    values.push_back(f(static_cast<int64_t>(layer)));
  }
  return PerLayer<int64_t>::List(std::move(values));
}

Json AsJson(const PerLayer<int64_t>& value) {
  if (!value.is_list()) return value[0];
  return Json::Array(value.values().begin(), value.values().end());
}

Sourced<PerLayer<int64_t>> DeriveHeadDim(ConfigReader& reader, const ModelConfig& config,
                                         const AttentionKeys& keys) {
  const Origin& heads_origin = config.heads.origin;
  if (IsPlaceholder(config.hidden.origin) || IsPlaceholder(heads_origin)) {
    return {PerLayer<int64_t>(1),
            IsPlaceholder(heads_origin) ? heads_origin : config.hidden.origin};
  }
  bool divisible = true;
  PerLayer<int64_t> head_dim = ForEachLayer(config.heads.value, [&](int64_t layer) -> int64_t {
    const int64_t heads = config.heads.value[layer];
    if (heads == 0) return 0;
    if (config.hidden.value % heads != 0 && divisible) {
      divisible = false;
      reader.AddError(fmt::format(
          "{} is absent, and hidden / heads = {} / {} is no whole number (hidden set by {}, heads "
          "by {}); fix: add head_dim to {}",
          reader.OriginText(keys.head_dim.keys), config.hidden.value, heads,
          config.hidden.origin.Text(), heads_origin.Text(), reader.source_name()));
    }
    return std::max<int64_t>(config.hidden.value / heads, 1);
  });
  Origin origin = reader.RecordDerived(
      keys.head_dim.keys, AsJson(head_dim),
      fmt::format("hidden / heads ({}, {})", config.hidden.origin.Text(), heads_origin.Text()));
  return {std::move(head_dim), std::move(origin)};
}

// The relations between the three, per layer; the first violation is reported.
void CheckGeometry(ConfigReader& reader, const ModelConfig& config) {
  if (IsPlaceholder(config.heads.origin) || IsPlaceholder(config.kv_heads.origin) ||
      IsPlaceholder(config.head_dim.origin)) {
    return;
  }
  const bool listed = config.heads.value.is_list() || config.kv_heads.value.is_list() ||
                      config.head_dim.value.is_list();
  const int64_t layers = listed ? config.layers.value : 1;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const int64_t heads = config.heads.value[layer];
    const int64_t kv_heads = config.kv_heads.value[layer];
    const std::string where = listed ? fmt::format(" (layer {})", layer) : "";
    if (heads > 0 && kv_heads > 0 && heads % kv_heads != 0) {
      reader.AddError(fmt::format(
          "kv_heads = {}, must divide heads = {}{}; kv_heads set by {}, heads by {}; fix: correct "
          "{}",
          kv_heads, heads, where, config.kv_heads.origin.Text(), config.heads.origin.Text(),
          reader.source_name()));
      return;
    }
    const int64_t width = std::max(heads, kv_heads) * config.head_dim.value[layer];
    if (width > kPositive.high) {
      reader.AddError(fmt::format(
          "heads x head_dim = {} x {}{}, their product must be at most {}; heads set by {}, "
          "head_dim by {}; fix: correct {}",
          std::max(heads, kv_heads), config.head_dim.value[layer], where, kPositive.high,
          config.heads.origin.Text(), config.head_dim.origin.Text(), reader.source_name()));
      return;
    }
  }
}

// Negative ids mean "none" in old configs.
constexpr IntRange kTokenId = {.low = -1};

// A token that the vocabulary does not hold can neither be fed nor come out: it is dropped, which
// changes nothing, and noted.
bool IsBeyondVocab(ConfigReader& reader, const ModelConfig& config, const char* key, int64_t id) {
  if (config.vocab.value == 0 || IsPlaceholder(config.vocab.origin)) return false;
  if (id < config.vocab.value) return false;
  reader.NotUsed(key,
                 fmt::format("token {} is beyond the vocabulary of {}", id, config.vocab.value));
  return true;
}

Sourced<std::optional<int64_t>> ReadToken(ConfigReader& reader, const ModelConfig& config,
                                          const char* key) {
  Sourced<std::optional<int64_t>> token = reader.IntOrNull(key, kTokenId);
  if (!token.value) return token;
  if (*token.value < 0 || IsBeyondVocab(reader, config, key, *token.value)) token.value.reset();
  return token;
}

std::optional<DType> TorchDType(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  if (name == "bfloat16") return DType::kBF16;
  if (name == "float16" || name == "half") return DType::kF16;
  if (name == "float32" || name == "float") return DType::kF32;
  if (name == "float64" || name == "double") return DType::kF64;
  if (name == "float8_e4m3fn") return DType::kF8E4M3;
  if (name == "float8_e5m2") return DType::kF8E5M2;
  return std::nullopt;
}

// Keys of configs that do not say what is computed.
constexpr const char* kBookkeeping[] = {
    // Written by the library about itself.
    "transformers_version",
    "_name_or_path",
    "auto_map",
    "_commit_hash",
    "_attn_implementation",
    "attn_implementation",
    "_attn_implementation_autoset",
    "transformers.js_config",
    // Training.
    "*dropout",
    "*_dropout_prob",
    "*_pdrop",
    "*dropout_rate",
    "initializer_range",
    "init_*",
    "initializer_factor",
    "gradient_checkpointing",
    "use_cache",
    "pretraining_tp",
    "output_router_logits",
    "router_aux_loss_coef",
    "router_z_loss_coef",
    "aux_loss_alpha",
    "seq_aux",
    "ep_size",
    "problem_type",
    "_remove_final_layer_norm",
    // What Hugging Face returns, not what is computed.
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "is_decoder",
    "is_encoder_decoder",
    "add_cross_attention",
    "cross_attention_hidden_size",
    "chunk_size_feed_forward",
    "torchscript",
    "use_bfloat16",
    "tf_legacy_loss",
    "cache_implementation",
    "finetuning_task",
    "task_specific_params",
    "id2label",
    "label2id",
    "num_labels",
    "prefix",
    "pruned_heads",
    "tokenizer_class",
    "sep_token_id",
    "unk_token_id",
    // Sampling; generation_config.h reads them where they count.
    "do_sample",
    "early_stopping",
    "num_beams",
    "num_beam_groups",
    "diversity_penalty",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    "repetition_penalty",
    "length_penalty",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "bad_words_ids",
    "num_return_sequences",
    "output_scores",
    "return_dict_in_generate",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "remove_invalid_values",
    "exponential_decay_length_penalty",
    "suppress_tokens",
    "begin_suppress_tokens",
    "max_length",
    "min_length",
    // Read by other layers.
    "quantization_config",
    "compression_config",
};

}  // namespace

void IgnoreBookkeeping(ConfigReader& reader) { reader.Ignore(kBookkeeping); }

void ReadIdentity(ConfigReader& reader, ModelConfig& config) {
  config.model_type = reader.String("model_type", "");
  config.architectures = reader.Strings("architectures", {});
  config.stored_dtype = {};
  const Keys dtype_keys = {"dtype", "torch_dtype"};
  const Sourced<std::optional<std::string>> dtype = reader.StringOrNull(dtype_keys);
  config.stored_dtype.origin = dtype.origin;
  if (dtype.value && *dtype.value != "auto") {
    config.stored_dtype.value = TorchDType(*dtype.value);
    if (!config.stored_dtype.value) {
      reader.Error(dtype_keys,
                   "must be one of float32, float16, bfloat16, float8_e4m3fn, "
                   "float8_e5m2, float64, auto");
    }
  }
  IgnoreBookkeeping(reader);
}

void ReadSizes(ConfigReader& reader, ModelConfig& config, const SizesSpec& spec) {
  config.vocab = ReadSize(reader, spec.vocab);
  config.hidden = ReadSize(reader, spec.hidden, kHiddenSize);
  config.layers = ReadSize(reader, spec.layers, kLayerCount);
  config.tie_embeddings = reader.Bool(spec.tie_embeddings, spec.tied);
}

void ReadAttentionGeometry(ConfigReader& reader, ModelConfig& config, const AttentionKeys& keys) {
  config.heads = ReadPerLayer(reader, config, keys.heads, kHeadCount, keys.optional);
  if (HasDefaultOrValue(reader, keys.kv_heads)) {
    config.kv_heads = ReadPerLayer(reader, config, keys.kv_heads, kHeadCount, keys.optional);
  } else {
    config.kv_heads = config.heads;
    if (!IsPlaceholder(config.heads.origin)) {
      config.kv_heads.origin =
          reader.RecordDerived(keys.kv_heads.keys, AsJson(config.heads.value),
                               fmt::format("as many as heads ({})", config.heads.origin.Text()));
    }
  }
  if (HasDefaultOrValue(reader, keys.head_dim)) {
    config.head_dim = ReadPerLayer(reader, config, keys.head_dim, kHeadCount, keys.optional);
  } else {
    config.head_dim = DeriveHeadDim(reader, config, keys);
  }
  CheckGeometry(reader, config);
}

void RequireAlike(ConfigReader& reader, const Keys& keys, Sourced<PerLayer<int64_t>>& value) {
  if (value.value.IsUniform()) return;
  reader.Error(keys, "differs by layer, the layers of this model are alike");
  value.value = PerLayer<int64_t>(value.value[0]);
}

void ReadMaxPosition(ConfigReader& reader, ModelConfig& config, const SizeKey& key) {
  config.max_position = ReadSize(reader, key);
}

void ReadRope(ConfigReader& reader, ModelConfig& config, RopeSpec spec) {
  if (spec.head_dim == 0) {
    if (reader.ok() && !config.head_dim.value.IsUniform()) {
      reader.AddError(fmt::format(
          "head_dim differs by layer (set by {}), but the rope is one for all; fix: correct {}",
          config.head_dim.origin.Text(), reader.source_name()));
    }
    spec.head_dim = config.head_dim.value.Max();
  }
  if (spec.max_position == 0) spec.max_position = config.max_position.value;
  config.rope = ReadRope(reader, spec);
}

Sourced<Activation> ReadActivation(ConfigReader& reader, const Keys& keys,
                                   std::optional<Activation> fallback) {
  return reader.Enum<Activation>(keys,
                                 {{"silu", Activation::kSilu},
                                  {"swish", Activation::kSilu},
                                  {"gelu", Activation::kGelu},
                                  {"gelu_python", Activation::kGelu},
                                  {"gelu_new", Activation::kGeluTanh},
                                  {"gelu_fast", Activation::kGeluTanh},
                                  {"gelu_accurate", Activation::kGeluTanh},
                                  {"gelu_pytorch_tanh", Activation::kGeluTanh},
                                  {"gelu_python_tanh", Activation::kGeluTanh},
                                  {"quick_gelu", Activation::kQuickGelu},
                                  {"relu", Activation::kRelu},
                                  {"relu2", Activation::kRelu2},
                                  {"sigmoid", Activation::kSigmoid},
                                  {"tanh", Activation::kTanh},
                                  {"linear", Activation::kNone}},
                                 fallback);
}

void ReadMlp(ConfigReader& reader, ModelConfig& config, const MlpSpec& spec) {
  config.intermediate = ReadPerLayer(reader, config, spec.intermediate, kPositive, spec.optional);
  config.activation = ReadActivation(reader, spec.activation, spec.default_activation);
}

std::vector<bool> ReadLayerTypes(ConfigReader& reader, const ModelConfig& config,
                                 const LayerTypes& types,
                                 const std::function<bool(int64_t)>& by_default) {
  std::vector<bool> is_yes(static_cast<size_t>(config.layers.value));
  if (!reader.Has("layer_types")) {
    for (size_t i = 0; i < is_yes.size(); ++i) is_yes[i] = by_default(static_cast<int64_t>(i));
    return is_yes;
  }
  const std::vector<std::string> names = reader.Strings("layer_types", {}).value;
  if (names.size() != is_yes.size() && !IsPlaceholder(config.layers.origin)) {
    reader.Error("layer_types", fmt::format("has {} entries, must have one for each of {} layers",
                                            names.size(), is_yes.size()));
  }
  for (size_t i = 0; i < std::min(names.size(), is_yes.size()); ++i) {
    is_yes[i] = names[i] == types.yes;
    if (is_yes[i] || names[i] == types.no) continue;
    reader.Error("layer_types", fmt::format("has '{}' for layer {}, allowed: {}, {}", names[i], i,
                                            types.yes, types.no));
    break;
  }
  return is_yes;
}

Sourced<int64_t> ReadExpertCount(ConfigReader& reader, const ModelConfig& config, const Keys& keys,
                                 int64_t fallback) {
  constexpr int64_t kMostInAll = 1 << 20;
  Sourced<int64_t> experts = reader.Int(keys, fallback);
  if (IsPlaceholder(experts.origin) || IsPlaceholder(config.layers.origin)) return experts;
  if (config.layers.value * experts.value <= kMostInAll) return experts;
  reader.AddError(fmt::format(
      "layers x experts = {} x {}, their product must be at most {}; layers set by {}, experts by "
      "{}; fix: correct {}",
      config.layers.value, experts.value, kMostInAll, config.layers.origin.Text(),
      experts.origin.Text(), reader.source_name()));
  experts.value = 1;
  return experts;
}

void ReadNormEps(ConfigReader& reader, ModelConfig& config, const Keys& keys,
                 std::optional<double> fallback) {
  constexpr RealRange kEps = {.low = 0, .high = 1};
  config.norm_eps =
      fallback ? reader.Double(keys, *fallback, kEps) : reader.RequireDouble(keys, kEps);
}

void ReadTokens(ConfigReader& reader, ModelConfig& config) {
  config.bos = ReadToken(reader, config, "bos_token_id");
  config.pad = ReadToken(reader, config, "pad_token_id");
  config.eos = reader.IntsOrInt("eos_token_id", {}, kTokenId);
  std::erase_if(config.eos.value, [&](int64_t id) {
    return id < 0 || IsBeyondVocab(reader, config, "eos_token_id", id);
  });
}

}  // namespace tenon
