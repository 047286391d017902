// The name tables that the tests of this folder share: what a family writes for its GGUF files.
#pragma once

#include "tenon/checkpoint/name_table.h"

namespace tenon::test {

// GGUF "llama" and "qwen3moe" against Hugging Face names. permute: q and k rows are interleaved.
inline NameTable GgufNames(int64_t heads, int64_t kv_heads, bool permute) {
  const auto rows = [&](int64_t n) {
    return permute ? Transform{TransformStep::PermuteQk(n)} : Transform{};
  };
  NameTable table;
  table.Add("model.embed_tokens.weight", "token_embd.weight")
      .Add("model.norm.weight", "output_norm.weight")
      .Add("lm_head.weight", "output.weight")
      .Add("model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight")
      .Add("model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight")
      .Add("model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight", rows(heads))
      .Add("model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight", rows(kv_heads))
      .Add("model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight")
      .Add("model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight")
      .Add("model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight")
      .Add("model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight")
      .Add("model.layers.{}.mlp.gate.weight", "blk.{}.ffn_gate_inp.weight");
  for (const char* name : {"gate", "up", "down"}) {
    const std::string canonical = std::string(name) + "_proj.weight";
    const std::string stored = std::string("blk.{}.ffn_") + name;
    table.Add("model.layers.{}.mlp." + canonical, stored + ".weight");
    table.Add("model.layers.{}.mlp.experts.{}." + canonical, stored + "_exps.weight",
              {TransformStep::Slice(0, 1)});
  }
  return table;
}

}  // namespace tenon::test
