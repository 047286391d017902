#include "tenon/config/model_config.h"

#include <fmt/format.h>

namespace tenon {

void ReadSizes(ConfigReader& reader, ModelConfig& config, const SizeKeys& keys) {
  config.vocab = reader.RequireInt(keys.vocab);
  config.hidden = reader.RequireInt(keys.hidden);
  config.layers = reader.RequireInt(keys.layers, {.low = 1, .high = 10000});
  if (!keys.intermediate.names().empty())
    config.intermediate = reader.RequireInt(keys.intermediate);
  if (!keys.max_position.names().empty()) config.max_position = reader.Int(keys.max_position, 2048);
}

void ReadHeads(ConfigReader& reader, ModelConfig& config) {
  config.heads = reader.RequireInt("num_attention_heads");
  config.kv_heads = reader.Int("num_key_value_heads", config.heads.value);
  if (!IsPlaceholder(config.heads.origin) && !IsPlaceholder(config.kv_heads.origin) &&
      config.heads.value % config.kv_heads.value != 0) {
    reader.Error("num_key_value_heads", fmt::format("{} does not divide num_attention_heads {}",
                                                    config.kv_heads.value, config.heads.value));
  }
  if (reader.Has("head_dim")) {
    config.head_dim = reader.RequireInt("head_dim");
    return;
  }
  if (config.hidden.value % config.heads.value != 0 && !IsPlaceholder(config.heads.origin) &&
      !IsPlaceholder(config.hidden.origin)) {
    reader.Error("num_attention_heads",
                 fmt::format("{} does not divide hidden_size {}, and head_dim is absent",
                             config.heads.value, config.hidden.value));
  }
  config.head_dim.value = std::max<int64_t>(1, config.hidden.value / config.heads.value);
  config.head_dim.origin =
      reader.RecordDerived("head_dim", config.head_dim.value, "hidden_size / num_attention_heads");
}

void ReadTokens(ConfigReader& reader, ModelConfig& config, bool tied_by_default) {
  config.bos = reader.IntOrNull("bos_token_id", kNonNegative);
  config.eos = reader.IntsOrInt("eos_token_id", {}, kNonNegative);
  config.tie_embeddings = reader.Bool("tie_word_embeddings", tied_by_default);
  config.stored_dtype = reader.Enum<DType>({"dtype", "torch_dtype"},
                                           {{"float32", DType::kF32},
                                            {"bfloat16", DType::kBF16},
                                            {"float16", DType::kF16},
                                            {"float64", DType::kF64}},
                                           DType::kF32);
  reader.Ignore({"architectures",
                 "model_type",
                 "auto_map",
                 "_name_or_path",
                 "transformers_version",
                 "use_cache",
                 "*dropout*",
                 "initializer_*",
                 "pad_token_id",
                 "pretraining_tp",
                 "is_llama_config",
                 "sep_token_id",
                 "cls_token_id",
                 "output_*",
                 "return_dict",
                 "torchscript",
                 "id2label",
                 "label2id",
                 "problem_type",
                 "gradient_checkpointing",
                 "classifier_*",
                 "task_specific_params",
                 "n_positions"});
}

Sourced<Activation> ReadActivation(ConfigReader& reader, const Keys& keys, Activation fallback) {
  return reader.Enum<Activation>(keys,
                                 {{"silu", Activation::kSilu},
                                  {"swish", Activation::kSilu},
                                  {"gelu", Activation::kGelu},
                                  {"gelu_new", Activation::kGeluTanh},
                                  {"gelu_pytorch_tanh", Activation::kGeluTanh},
                                  {"gelu_fast", Activation::kGeluTanh},
                                  {"quick_gelu", Activation::kQuickGelu},
                                  {"relu", Activation::kRelu},
                                  {"relu2", Activation::kRelu2},
                                  {"sigmoid", Activation::kSigmoid},
                                  {"tanh", Activation::kTanh}},
                                 fallback);
}

}  // namespace tenon
