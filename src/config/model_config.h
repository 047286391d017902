// ModelConfig: what most families have in common, each field with its origin, and the functions
// that read it group by group. A family derives a struct, calls the groups it has and reads its own
// keys; errors stay in the reader. Nothing here knows an architecture. Frozen after reading;
// thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tenon/config/config_reader.h"
#include "tenon/config/per_layer.h"
#include "tenon/config/rope_parameters.h"
#include "tenon/numeric/activation.h"
#include "tenon/numeric/dtype.h"

namespace tenon {

// Numbers of things that are kept books of. Generous; they keep a damaged config from costing
// gigabytes before its memory is counted.
inline constexpr IntRange kLayerCount = {.low = 1, .high = 1 << 16};
inline constexpr IntRange kHeadCount = {.low = 1, .high = 1 << 20};  // and the width of a head
inline constexpr IntRange kHiddenSize = {.low = 1, .high = 1 << 24};
// Taps of a causal convolution; with one it would remember nothing.
inline constexpr IntRange kConvTaps = {.low = 2, .high = 1 << 10};

// A group that a family did not read keeps its zeros.
struct ModelConfig {
  Sourced<std::string> model_type;
  Sourced<std::vector<std::string>> architectures;
  Sourced<std::optional<DType>> stored_dtype;  // what the config says of the weights, if anything

  Sourced<int64_t> vocab;
  Sourced<int64_t> hidden;
  Sourced<int64_t> layers;
  Sourced<int64_t> max_position;
  Sourced<double> norm_eps;
  Sourced<bool> tie_embeddings;

  Sourced<PerLayer<int64_t>> heads;  // of optional ones a list may hold 0 (AttentionKeys)
  Sourced<PerLayer<int64_t>> kv_heads;
  Sourced<PerLayer<int64_t>> head_dim;
  Sourced<RopeParameters> rope;

  Sourced<PerLayer<int64_t>> intermediate;
  Sourced<Activation> activation;

  Sourced<std::optional<int64_t>> bos;
  Sourced<std::optional<int64_t>> pad;
  Sourced<std::vector<int64_t>> eos;  // several models stop at more than one
  // The decoder's first token; encoder-decoder models only.
  Sourced<std::optional<int64_t>> decoder_start;
};

// A size: its names and the family's default (Hugging Face: the config class's; hand-written
// configs rely on them). No default: required.
struct SizeKey {
  Keys keys;
  std::optional<int64_t> fallback = {};
};

// model_type, architectures, stored dtype (dtype or torch_dtype); the keys that only Hugging Face's
// own code uses are declared ignored.
void ReadIdentity(ConfigReader& reader, ModelConfig& config);
// Declares those keys ignored, also for a nested text_config.
void IgnoreBookkeeping(ConfigReader& reader);

struct SizesSpec {
  SizeKey vocab = {"vocab_size"};
  SizeKey hidden = {"hidden_size"};
  SizeKey layers = {"num_hidden_layers"};
  Keys tie_embeddings = "tie_word_embeddings";
  bool tied = false;  // when the key is absent
};
// vocab, hidden, layers, tie_embeddings.
void ReadSizes(ConfigReader& reader, ModelConfig& config, const SizesSpec& spec = {});

struct AttentionKeys {
  SizeKey heads = {"num_attention_heads"};
  SizeKey kv_heads = {"num_key_value_heads"};  // no default, or null: as many as heads
  SizeKey head_dim = {"head_dim"};             // no default, or null: hidden / heads
  bool optional = false;                       // a layer whose number is 0 has no attention
};
// heads, kv_heads, head_dim, after ReadSizes. Errors: heads do not divide hidden although head_dim
// is not given; kv_heads do not divide heads; a product that does not fit in 32 bits.
void ReadAttentionGeometry(ConfigReader& reader, ModelConfig& config,
                           const AttentionKeys& keys = {});

// Error: the layers' numbers differ, for families that read one of them for all.
void RequireAlike(ConfigReader& reader, const Keys& keys, Sourced<PerLayer<int64_t>>& value);

// max_position alone: some families have no rope but learned positions.
void ReadMaxPosition(ConfigReader& reader, ModelConfig& config,
                     const SizeKey& key = {"max_position_embeddings"});
// rope, after ReadAttentionGeometry and ReadMaxPosition. spec.head_dim and spec.max_position are
// filled from the config where they are 0.
void ReadRope(ConfigReader& reader, ModelConfig& config, RopeSpec spec = {});

struct MlpSpec {
  SizeKey intermediate = {"intermediate_size"};
  Keys activation = "hidden_act";
  std::optional<Activation> default_activation = {};  // none: required
  bool optional = false;                              // a layer whose number is 0 has no MLP
};
// intermediate, activation.
void ReadMlp(ConfigReader& reader, ModelConfig& config, const MlpSpec& spec = {});
// One activation by Hugging Face's names (activations.py, ACT2CLS). No fallback: required.
Sourced<Activation> ReadActivation(ConfigReader& reader, const Keys& keys,
                                   std::optional<Activation> fallback = {});

// layer_types: one of two names for every layer.
struct LayerTypes {
  const char* yes;
  const char* no = "full_attention";
};
// Which layers are of the first type, after ReadSizes. Without the key: by_default(layer).
std::vector<bool> ReadLayerTypes(ConfigReader& reader, const ModelConfig& config,
                                 const LayerTypes& types,
                                 const std::function<bool(int64_t)>& by_default);

// Experts of a layer, after ReadSizes. Error: more than 2^20 in all layers together (1 is
// returned).
Sourced<int64_t> ReadExpertCount(ConfigReader& reader, const ModelConfig& config, const Keys& keys,
                                 int64_t fallback);

void ReadNormEps(ConfigReader& reader, ModelConfig& config, const Keys& keys,
                 std::optional<double> fallback);

// bos, eos (one or a list), pad; after ReadSizes. Negative ids, which old configs use for "none",
// and ids beyond the vocabulary are dropped, the latter with a note in the record.
void ReadTokens(ConfigReader& reader, ModelConfig& config);

}  // namespace tenon
