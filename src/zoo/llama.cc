// Llama 1-3 and what follows it exactly (Hugging Face modeling_llama.py): pre-norm blocks of
// grouped attention with half rope and a gated MLP. GGUF's "llama" stores q and k rows in
// interleaved pairs.
#include <fmt/format.h>

#include <cmath>

#include "tenon/modules/attention.h"
#include "tenon/modules/embedding.h"
#include "tenon/modules/mlp.h"
#include "tenon/registry/registry.h"

namespace tenon {
namespace {

struct LlamaConfig : ModelConfig {
  bool attention_bias = false;
  bool mlp_bias = false;

  LlamaConfig(ConfigReader& reader, Container container) {
    ReadIdentity(reader, *this);
    // A GGUF file has no flag: without an output tensor the embedding is the head.
    ReadSizes(reader, *this, {.tied = container == Container::kGguf});
    ReadAttentionGeometry(reader, *this);
    ReadMaxPosition(reader, *this, {"max_position_embeddings", 2048});
    ReadMlp(reader, *this, {.default_activation = Activation::kSilu});
    ReadNormEps(reader, *this, "rms_norm_eps", 1e-6);
    ReadTokens(reader, *this);
    ReadRope(reader, *this, {.theta = 10000});
    attention_bias = reader.Bool("attention_bias", false).value;
    mlp_bias = reader.Bool("mlp_bias", false).value;
    reader.Ignore({"rope_interleaved", "pretraining_tp", "is_llama_config"});
  }

  NormOptions norm() const {
    return {.width = hidden.value, .eps = static_cast<float>(norm_eps.value)};
  }
  AttentionSpec Attention(int layer) const {
    return {.layer = layer,
            .heads = heads.value[layer],
            .kv_heads = kv_heads.value[layer],
            .head_dim = head_dim.value[layer],
            .v_head_dim = head_dim.value[layer],
            .scale = 1.0f / std::sqrt(static_cast<float>(head_dim.value[layer]))};
  }
};

class Block {
 public:
  Block(const Scope& scope, const LlamaConfig& c, const RopeTable& rope, int layer)
      : is_last_(layer + 1 == c.layers.value),
        attention_norm_(scope / "input_layernorm", c.norm()),
        attention_(scope / "self_attn", {.spec = c.Attention(layer),
                                         .hidden = c.hidden.value,
                                         .qkv_bias = c.attention_bias,
                                         .o_bias = c.attention_bias,
                                         .rope = &rope}),
        mlp_norm_(scope / "post_attention_layernorm", c.norm()),
        mlp_(scope / "mlp", {.hidden = c.hidden.value,
                             .intermediate = c.intermediate.value[layer],
                             .activation = c.activation.value,
                             .has_bias = c.mlp_bias}) {}

  void operator()(Forward& pass, Residual& x) const {
    x.Add(attention_(pass, attention_norm_(pass, x)));
    if (is_last_) x.KeepLogitRows(pass);
    x.Add(mlp_(pass, mlp_norm_(pass, x)));
  }

 private:
  bool is_last_;
  NormModule attention_norm_;
  SelfAttention attention_;
  NormModule mlp_norm_;
  GatedMlp mlp_;
};

class LlamaForCausalLM final : public Model {
 public:
  using Config = LlamaConfig;

  LlamaForCausalLM(const Scope& scope, const LlamaConfig& c)
      : Model(scope),
        rope_(scope, c.rope.value, RotaryDim(c.rope.value, c.head_dim.value[0]),
              c.max_position.value),
        embedding_(scope / "model" / "embed_tokens", c.vocab.value, c.hidden.value),
        blocks_(scope / "model" / "layers", c.layers.value, c, rope_),
        norm_(scope / "model" / "norm", c.norm()),
        head_(scope / "lm_head", embedding_, c.tie_embeddings.value) {}

  Value Forward(tenon::Forward& pass) const override {
    Residual x(embedding_(pass, pass.layout().token_ids));
    x.Tap(pass, "embed");
    int layer = 0;
    for (const Block& block : blocks_) {
      block(pass, x);
      x.Tap(pass, "hidden." + std::to_string(layer++));
    }
    return head_(pass, LogitRows(pass, norm_(pass, x)));
  }

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
    NameTable names;
    names.WrapperPrefixes();
    if (container != Container::kGguf) return names;
    const auto layer = [&](const char* canonical, const char* stored, Transform transform = {}) {
      names.Add(std::string("model.layers.{}.") + canonical, std::string("blk.{}.") + stored,
                std::move(transform));
    };
    names.Add("model.embed_tokens.weight", "token_embd.weight");
    names.Add("model.norm.weight", "output_norm.weight");
    names.Add("lm_head.weight", "output.weight");
    layer("input_layernorm.weight", "attn_norm.weight");
    layer("post_attention_layernorm.weight", "ffn_norm.weight");
    AddPermuted(names, c.heads.value, "self_attn.q_proj.weight", "attn_q.weight");
    AddPermuted(names, c.kv_heads.value, "self_attn.k_proj.weight", "attn_k.weight");
    layer("self_attn.v_proj.weight", "attn_v.weight");
    layer("self_attn.o_proj.weight", "attn_output.weight");
    layer("mlp.gate_proj.weight", "ffn_gate.weight");
    layer("mlp.up_proj.weight", "ffn_up.weight");
    layer("mlp.down_proj.weight", "ffn_down.weight");
    return names;
  }

 private:
  RopeTable rope_;
  Embedding embedding_;
  ModuleList<Block> blocks_;
  NormModule norm_;
  LmHead head_;
};

constexpr GgufKeyRow kGgufKeys[] = {
    {"vocab_size", "{arch}.vocab_size"},
    {"vocab_size", "tokenizer.ggml.tokens.length"},
    {"hidden_size", "{arch}.embedding_length"},
    {"num_hidden_layers", "{arch}.block_count"},
    {"intermediate_size", "{arch}.feed_forward_length"},
    {"num_attention_heads", "{arch}.attention.head_count"},
    {"num_key_value_heads", "{arch}.attention.head_count_kv"},
    {"head_dim", "{arch}.attention.key_length"},
    {"partial_rotary_factor", "{arch}.rope.dimension_count", GgufPartialRotary},
    {"max_position_embeddings", "{arch}.context_length"},
    {"rms_norm_eps", "{arch}.attention.layer_norm_rms_epsilon"},
    {"rope_theta", "{arch}.rope.freq_base"},
    {"bos_token_id", "tokenizer.ggml.bos_token_id"},
    {"eos_token_id", "tokenizer.ggml.eos_token_id"},
};

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
