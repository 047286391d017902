// Aurora: a Llama-like decoder with QK norm and a sliding window on every second layer.
#include <cmath>

#include "tenon/modules/attention.h"
#include "tenon/modules/embedding.h"
#include "tenon/modules/mlp.h"
#include "tenon/registry/plugin.h"

namespace {  // all of it: other names might be tenon's own
using namespace tenon;

struct AuroraConfig : ModelConfig {
  int64_t window = 0;
  AuroraConfig(ConfigReader& reader, Container) {
    ReadIdentity(reader, *this);
    ReadSizes(reader, *this);
    ReadAttentionGeometry(reader, *this);
    ReadMaxPosition(reader, *this);
    ReadMlp(reader, *this, {.default_activation = Activation::kSilu});
    ReadNormEps(reader, *this, "rms_norm_eps", 1e-6);
    ReadTokens(reader, *this);
    ReadRope(reader, *this);  // a key that nobody reads or ignores is an error
    window = reader.RequireInt("sliding_window").value;
  }
  NormOptions norm() const {
    return {.width = hidden.value, .eps = static_cast<float>(norm_eps.value)};
  }
  AttentionSpec Attention(int layer) const {
    const int64_t width = head_dim.value[layer];
    AttentionSpec spec{.layer = layer,
                       .heads = heads.value[layer],
                       .kv_heads = kv_heads.value[layer],
                       .head_dim = width,
                       .v_head_dim = width,
                       .scale = 1.0f / std::sqrt(static_cast<float>(width))};
    if (layer % 2 == 1) spec.window = window;  // backends without windows are not chosen
    return spec;
  }
};

class Block {
 public:
  Block(const Scope& scope, const AuroraConfig& c, const RopeTable& rope, int layer)
      : attention_norm_(scope / "input_layernorm", c.norm()),
        attention_(scope / "self_attn", {.spec = c.Attention(layer),
                                         .hidden = c.hidden.value,
                                         .rope = &rope,
                                         .head_norm = NormOptions{.width = c.head_dim.value[layer],
                                                                  .eps = c.norm().eps}}),
        mlp_norm_(scope / "post_attention_layernorm", c.norm()),
        mlp_(scope / "mlp",
             {.hidden = c.hidden.value, .intermediate = c.intermediate.value[layer]}) {}

  void operator()(Forward& pass, Residual& x) const {  // x: [num_tokens, hidden]
    x.Add(attention_(pass, attention_norm_(pass, x)));
    x.Add(mlp_(pass, mlp_norm_(pass, x)));
  }

 private:
  NormModule attention_norm_;
  SelfAttention attention_;
  NormModule mlp_norm_;
  GatedMlp mlp_;
};

class AuroraForCausalLM final : public Model {
 public:
  using Config = AuroraConfig;
  AuroraForCausalLM(const Scope& scope, const Config& c)
      : Model(scope),
        rope_(scope, c.rope.value, c.head_dim.value[0], c.max_position.value),
        embedding_(scope / "model" / "embed_tokens", c.vocab.value, c.hidden.value),
        blocks_(scope / "model" / "layers", c.layers.value, c, rope_),
        norm_(scope / "model" / "norm", c.norm()),
        head_(scope / "lm_head", embedding_, c.tie_embeddings.value) {}

  Value Forward(tenon::Forward& pass) const override {  // [num_logit_rows, vocab]
    Residual x(embedding_(pass, pass.layout().token_ids));
    for (const Block& block : blocks_) block(pass, x);
    return head_(pass, LogitRows(pass, norm_(pass, x)));
  }
  static NameTable Names(const Config&, Container) { return {}; }  // stored under these names

 private:
  RopeTable rope_;
  Embedding embedding_;
  ModuleList<Block> blocks_;
  NormModule norm_;
  LmHead head_;
};

Status Register(Registrar& registrar) {
  registrar.Model<AuroraForCausalLM>("AuroraForCausalLM", ModelKind::kCausalLm,
                                     {.model_type = "aurora"});
  return {};
}

}  // namespace

TN_PLUGIN(Register);
