// Mixtral (Hugging Face modeling_mixtral.py): Llama's attention with experts chosen by softmax, the
// weights of the chosen ones renormalised.
#include <cmath>

#include "tenon/modules/attention.h"
#include "tenon/modules/embedding.h"
#include "tenon/modules/moe.h"
#include "tenon/registry/registry.h"

namespace tenon {
namespace {

struct MixtralConfig : ModelConfig {
  std::optional<int64_t> window;
  int64_t experts = 1;
  int64_t experts_per_token = 1;

  MixtralConfig(ConfigReader& reader, Container /*container*/) {
    ReadIdentity(reader, *this);
    ReadSizes(reader, *this);
    ReadAttentionGeometry(reader, *this);
    ReadMaxPosition(reader, *this, {"max_position_embeddings", 4096 * 32});
    ReadMlp(reader, *this, {.default_activation = Activation::kSilu});
    RequireAlike(reader, "intermediate_size", intermediate);
    ReadNormEps(reader, *this, "rms_norm_eps", 1e-5);
    ReadTokens(reader, *this);
    ReadRope(reader, *this, {.theta = 1e6});
    window = reader.IntOrNull("sliding_window").value;
    experts = ReadExpertCount(reader, *this, {"num_local_experts", "num_experts"}, 8).value;
    experts_per_token = reader.Int("num_experts_per_tok", 2, {.low = 1, .high = experts}).value;
    reader.Ignore({"router_*"});
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
            .scale = 1.0f / std::sqrt(static_cast<float>(head_dim.value[layer])),
            .window = window};
  }
  MoeOptions moe() const {
    MoeOptions options;
    options.hidden = hidden.value;
    options.intermediate = intermediate.value.Max();
    options.activation = activation.value;
    options.routing.experts = static_cast<int>(experts);
    options.routing.top_k = static_cast<int>(experts_per_token);
    options.routing.renormalise = true;
    options.gate = "w1";
    options.up = "w3";
    options.down = "w2";
    return options;
  }
};

class Block {
 public:
  Block(const Scope& scope, const MixtralConfig& c, const RopeTable& rope, int layer)
      : is_last_(layer + 1 == c.layers.value),
        attention_norm_(scope / "input_layernorm", c.norm()),
        attention_(scope / "self_attn",
                   {.spec = c.Attention(layer), .hidden = c.hidden.value, .rope = &rope}),
        moe_norm_(scope / "post_attention_layernorm", c.norm()),
        moe_(scope / "block_sparse_moe", c.moe()) {}

  void operator()(Forward& pass, Residual& x) const {
    x.Add(attention_(pass, attention_norm_(pass, x)));
    if (is_last_) x.KeepLogitRows(pass);
    x.Add(moe_(pass, moe_norm_(pass, x)));
  }

 private:
  bool is_last_;
  NormModule attention_norm_;
  SelfAttention attention_;
  NormModule moe_norm_;
  Moe moe_;
};

class MixtralForCausalLM final : public Model {
 public:
  using Config = MixtralConfig;

  MixtralForCausalLM(const Scope& scope, const MixtralConfig& c)
      : Model(scope),
        rope_(scope, c.rope.value, RotaryDim(c.rope.value, c.head_dim.value[0]),
              c.max_position.value),
        embedding_(scope / "model" / "embed_tokens", c.vocab.value, c.hidden.value),
        blocks_(scope / "model" / "layers", c.layers.value, c, rope_),
        norm_(scope / "model" / "norm", c.norm()),
        head_(scope / "lm_head", embedding_, c.tie_embeddings.value) {}

  Value Forward(tenon::Forward& pass) const override {
    Residual x(embedding_(pass, pass.layout().token_ids));
    RunBlocks(pass, blocks_, x);
    return head_(pass, LogitRows(pass, norm_(pass, x)));
  }

  static NameTable Names(const MixtralConfig& /*config*/, Container /*container*/) {
    return NameTable().WrapperPrefixes();
  }

 private:
  RopeTable rope_;
  Embedding embedding_;
  ModuleList<Block> blocks_;
  NormModule norm_;
  LmHead head_;
};

}  // namespace

Status RegisterMixtral(Registrar& registrar) {
  registrar.Model<MixtralForCausalLM>(
      "MixtralForCausalLM", ModelKind::kCausalLm,
      {.model_type = "mixtral", .skippable = {"*.rotary_emb.inv_freq"}, .base_prefix = "model."});
  return {};
}

}  // namespace tenon
