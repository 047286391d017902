// Llama 1-3 and what follows it exactly (Hugging Face modeling_llama.py): pre-norm blocks of
// grouped attention with half rope and a gated MLP. GGUF's "llama" stores q and k rows in
// interleaved pairs.
#include <fmt/format.h>

#include "tenon/registry/registry.h"
#include "tenon/zoo/gguf_decoder.h"
#include "tenon/zoo/llama.h"

namespace tenon {
namespace {

class LlamaForCausalLM final : public LlamaModel<GatedMlp, const ParallelMapping*> {
 public:
  LlamaForCausalLM(const Scope& scope, const LlamaConfig& c) : LlamaModel(scope, c, nullptr) {}

  // A row for all layers, or one for each where their heads are listed.
  static void AddPermuted(NameTable& names, const PerLayer<int64_t>& heads,
                          const std::string& canonical, const std::string& stored) {
    for (size_t i = 0; i < heads.values().size(); ++i) {
      const std::string layer = heads.is_list() ? std::to_string(i) : "{}";
      names.Add(fmt::format("model.layers.{}.{}", layer, canonical),
                fmt::format("blk.{}.{}", layer, stored),
                {TransformStep::PermuteQk(heads.values()[i])});
    }
  }

  static NameTable Names(const LlamaConfig& c, Container container) {
    if (container != Container::kGguf) return NameTable().WrapperPrefixes();
    const GgufName rows[] = {{"post_attention_layernorm.weight", "ffn_norm.weight"},
                             {"mlp.gate_proj.weight", "ffn_gate.weight"},
                             {"mlp.up_proj.weight", "ffn_up.weight"},
                             {"mlp.down_proj.weight", "ffn_down.weight"}};
    NameTable names = GgufDecoderNames(rows);
    AddPermuted(names, c.heads.value, "self_attn.q_proj.weight", "attn_q.weight");
    AddPermuted(names, c.kv_heads.value, "self_attn.k_proj.weight", "attn_k.weight");
    return names;
  }
};

constexpr auto kGgufKeys = GgufDecoderKeys(kGgufIntermediate, kGgufPartialRotary);

// GGUF's "llama" is several Hugging Face architectures; experts tell them apart.
Result<std::string> IdentityOfGguf(const GgufMetadata& metadata) {
  if (metadata.Has("llama.expert_count") && metadata.Int("llama.expert_count").ok() &&
      *metadata.Int("llama.expert_count") > 0) {
    return Refused(
        "GGUF architecture 'llama' with llama.expert_count > 0 is not served from GGUF yet; fix: "
        "the Hugging "
        "Face directory of the model");
  }
  return std::string("LlamaForCausalLM");
}

}  // namespace

Status RegisterLlama(Registrar& registrar) {
  registrar.Model<LlamaForCausalLM>(
      "LlamaForCausalLM", ModelKind::kCausalLm,
      {.model_type = "llama",
       .gguf_keys = kGgufKeys,
       .skippable = {"*.rotary_emb.inv_freq", "*.attn.bias", "*.masked_bias"},
       .base_prefix = "model."});
  registrar.Gguf("llama", IdentityOfGguf);
  return {};
}

}  // namespace tenon
