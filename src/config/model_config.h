// ModelConfig: what nearly every family has, and functions that read it group by group; a family
// calls those that fit (a recurrent model has no heads) and reads its own keys beside them. Every
// value knows where it came from. Frozen after reading. No architecture is named here. A value;
// thread-compatible.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tenon/config/config_reader.h"
#include "tenon/config/rope_parameters.h"
#include "tenon/numeric/activation.h"
#include "tenon/numeric/dtype.h"

namespace tenon {

struct ModelConfig {
  virtual ~ModelConfig() = default;

  Sourced<int64_t> vocab;
  Sourced<int64_t> hidden;
  Sourced<int64_t> layers;
  Sourced<int64_t> heads;  // 0: the model has no attention
  Sourced<int64_t> kv_heads;
  Sourced<int64_t> head_dim;
  Sourced<int64_t> intermediate;
  Sourced<int64_t> max_position;  // 0: no limit
  Sourced<double> norm_eps;
  Sourced<bool> tie_embeddings;
  Sourced<Activation> activation;
  Sourced<std::vector<int64_t>> eos;  // token ids that end a text
  Sourced<std::optional<int64_t>> bos;
  Sourced<DType> stored_dtype = {DType::kF32, {}};  // what the config says; the tensors decide
  // The decoder's first token; encoder-decoder models only.
  Sourced<std::optional<int64_t>> decoder_start;
};

// Names of a family's keys where they differ from the usual ones.
struct SizeKeys {
  Keys vocab = "vocab_size";
  Keys hidden = "hidden_size";
  Keys layers = "num_hidden_layers";
  Keys intermediate = "intermediate_size";
  Keys max_position = "max_position_embeddings";
};
void ReadSizes(ConfigReader& reader, ModelConfig& config, const SizeKeys& keys = {});
// heads, kv_heads (absent or null: heads), head_dim (absent or null: hidden / heads). Heads are
// whole groups.
void ReadHeads(ConfigReader& reader, ModelConfig& config);
// bos, eos (a number or a list), tie_word_embeddings with the family's default, dtype; ignores
// bookkeeping keys.
void ReadTokens(ConfigReader& reader, ModelConfig& config, bool tied_by_default);
// "silu", "gelu", … with the family's default.
Sourced<Activation> ReadActivation(ConfigReader& reader, const Keys& keys, Activation fallback);

}  // namespace tenon
