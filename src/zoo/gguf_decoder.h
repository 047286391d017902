// What GGUF files of most decoders spell alike: keys of the config and names of tensors. A family
// adds its own to both; what its architecture stores otherwise it does not take from here. For
// sources of src/zoo only. Pure functions; thread-safe.
#pragma once

#include <array>
#include <span>
#include <string>

#include "tenon/checkpoint/name_table.h"
#include "tenon/config/gguf_config.h"

namespace tenon {

// Sizes, heads, epsilon, rope base, tokens that begin and end a text; then `more`.
template <typename... Rows>
constexpr auto GgufDecoderKeys(const Rows&... more) {
  return std::array<GgufKeyRow, 12 + sizeof...(more)>{
      {{"vocab_size", "{arch}.vocab_size"},
       {"vocab_size", "tokenizer.ggml.tokens.length"},
       {"hidden_size", "{arch}.embedding_length"},
       {"num_hidden_layers", "{arch}.block_count"},
       {"num_attention_heads", "{arch}.attention.head_count"},
       {"num_key_value_heads", "{arch}.attention.head_count_kv"},
       {"head_dim", "{arch}.attention.key_length"},
       {"max_position_embeddings", "{arch}.context_length"},
       {"rms_norm_eps", "{arch}.attention.layer_norm_rms_epsilon"},
       {"rope_theta", "{arch}.rope.freq_base"},
       {"bos_token_id", "tokenizer.ggml.bos_token_id"},
       {"eos_token_id", "tokenizer.ggml.eos_token_id"},
       more...}};
}
// Of several families.
inline constexpr GgufKeyRow kGgufIntermediate = {"intermediate_size", "{arch}.feed_forward_length"};
inline constexpr GgufKeyRow kGgufPartialRotary = {"partial_rotary_factor",
                                                  "{arch}.rope.dimension_count", GgufPartialRotary};
inline constexpr GgufKeyRow kGgufWindow = {"sliding_window", "{arch}.attention.sliding_window"};

struct GgufName {
  const char* canonical;  // below "model.layers.{}."
  const char* stored;     // below "blk.{}."
  Transform transform = {};
};

// Embedding, last norm and head; of each layer the first norm, the matrices of values and of the
// attention's output, and `more`. Queries and keys are not among them: some files permute them.
inline NameTable GgufDecoderNames(std::span<const GgufName> more) {
  NameTable names;
  names.WrapperPrefixes();
  names.Add("model.embed_tokens.weight", "token_embd.weight");
  names.Add("model.norm.weight", "output_norm.weight");
  names.Add("lm_head.weight", "output.weight");
  const GgufName common[] = {{"input_layernorm.weight", "attn_norm.weight"},
                             {"self_attn.v_proj.weight", "attn_v.weight"},
                             {"self_attn.o_proj.weight", "attn_output.weight"}};
  for (const std::span<const GgufName> rows : {std::span<const GgufName>(common), more}) {
    for (const GgufName& row : rows) {
      names.Add(std::string("model.layers.{}.") + row.canonical,
                std::string("blk.{}.") + row.stored, row.transform);
    }
  }
  return names;
}

}  // namespace tenon
