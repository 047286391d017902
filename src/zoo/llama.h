// What the Llama family's files share: its config, its block and the model around it, over the kind
// of MLP. For sources of src/zoo only. Not thread-safe while recording.
#pragma once

#include <cmath>
#include <string>

#include "tenon/config/model_config.h"
#include "tenon/modules/attention.h"
#include "tenon/modules/embedding.h"
#include "tenon/modules/mlp.h"
#include "tenon/modules/model.h"

namespace tenon {

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
  MlpOptions Mlp(int layer) const {
    return {.hidden = hidden.value,
            .intermediate = intermediate.value[layer],
            .activation = activation.value,
            .has_bias = mlp_bias};
  }
};

// Mlp: made from (scope, MlpOptions, MlpArg), with AddTo(pass, normed, residual).
template <typename Mlp, typename MlpArg>
class LlamaBlock {
 public:
  LlamaBlock(const Scope& scope, const LlamaConfig& c, const RopeTable& rope, MlpArg mlp_arg,
             int layer)
      : is_last_(layer + 1 == c.layers.value),
        attention_norm_(scope / "input_layernorm", c.norm()),
        attention_(scope / "self_attn", {.spec = c.Attention(layer),
                                         .hidden = c.hidden.value,
                                         .qkv_bias = c.attention_bias,
                                         .o_bias = c.attention_bias,
                                         .rope = &rope}),
        mlp_norm_(scope / "post_attention_layernorm", c.norm()),
        mlp_(scope / "mlp", c.Mlp(layer), mlp_arg) {}

  void operator()(Forward& pass, Residual& x) const {
    x.Add(attention_(pass, attention_norm_(pass, x)));
    if (is_last_) x.KeepLogitRows(pass);
    mlp_.AddTo(pass, mlp_norm_(pass, x), x);
  }

 private:
  bool is_last_;
  NormModule attention_norm_;
  SelfAttention attention_;
  NormModule mlp_norm_;
  Mlp mlp_;
};

template <typename Mlp, typename MlpArg>
class LlamaModel : public Model {
 public:
  using Config = LlamaConfig;

  LlamaModel(const Scope& scope, const LlamaConfig& c, MlpArg mlp_arg)
      : Model(scope),
        rope_(scope, c.rope.value, RotaryDim(c.rope.value, c.head_dim.value[0]),
              c.max_position.value),
        embedding_(scope / "model" / "embed_tokens", c.vocab.value, c.hidden.value),
        blocks_(scope / "model" / "layers", c.layers.value, c, rope_, mlp_arg),
        norm_(scope / "model" / "norm", c.norm()),
        head_(scope / "lm_head", embedding_, c.tie_embeddings.value) {}

  Value Forward(tenon::Forward& pass) const override {
    Residual x(embedding_(pass, pass.layout().token_ids));
    RunBlocks(pass, blocks_, x);
    return head_(pass, LogitRows(pass, norm_(pass, x)));
  }

 private:
  RopeTable rope_;
  Embedding embedding_;
  ModuleList<LlamaBlock<Mlp, MlpArg>> blocks_;
  NormModule norm_;
  LmHead head_;
};

}  // namespace tenon
