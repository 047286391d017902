// DeepSeek-V3, R1 and Kimi-K2 (Hugging Face modeling_deepseek_v3.py): latent attention with YaRN, a
// few dense layers, then experts that a bias helps to choose (sigmoid scores, within groups whose
// score is the sum of their best two) beside shared ones. Layers past num_hidden_layers predict
// further tokens and are skipped.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "tenon/config/mla_sizes.h"
#include "tenon/modules/embedding.h"
#include "tenon/modules/mla.h"
#include "tenon/modules/mlp.h"
#include "tenon/modules/moe.h"
#include "tenon/registry/registry.h"

namespace tenon {
namespace {

struct DeepseekV3Config : ModelConfig {
  MlaGeometry mla;
  bool attention_bias = false;
  int64_t first_dense = 0;  // layers before the first with experts
  int64_t moe_intermediate = 1;
  int64_t routed_experts = 1;
  int64_t shared_experts = 0;
  int64_t experts_per_token = 1;
  int64_t groups = 1;
  int64_t kept_groups = 1;
  double routed_scale = 1;
  bool renormalise = true;
  bool rope_interleave = true;

  DeepseekV3Config(ConfigReader& reader, Container /*container*/) {
    ReadIdentity(reader, *this);
    ReadSizes(reader, *this);
    heads = {PerLayer<int64_t>(reader.RequireInt("num_attention_heads", kHeadCount).value), {}};
    ReadMaxPosition(reader, *this, {"max_position_embeddings", 2048});
    ReadMlp(reader, *this, {.default_activation = Activation::kSilu});
    ReadNormEps(reader, *this, "rms_norm_eps", 1e-6);
    ReadTokens(reader, *this);
    attention_bias = reader.Bool("attention_bias", false).value;
    ReadMla(reader);
    ReadExperts(reader);
    ReadRope(reader, *this, {.head_dim = mla.qk_rope_head_dim, .theta = 10000});
    rope_interleave = reader.Bool("rope_interleave", true).value;
    // head_dim and num_key_value_heads are left-overs of the base class.
    reader.Ignore({"head_dim", "num_key_value_heads", "aux_loss_alpha", "seq_aux", "ep_size",
                   "mlp_bias", "pretraining_tp", "num_nextn_predict_layers"});
  }

  void ReadMla(ConfigReader& reader) {
    const MlaSizes sizes = ReadMlaSizes(reader, *this);
    mla = {.q_lora_rank = sizes.q_lora_rank,
           .kv_lora_rank = sizes.kv_lora_rank,
           .qk_nope_head_dim = sizes.qk_nope_head_dim,
           .qk_rope_head_dim = sizes.qk_rope_head_dim,
           .v_head_dim = sizes.v_head_dim};
  }

  void ReadExperts(ConfigReader& reader) {
    first_dense = reader.Int("first_k_dense_replace", 3, kNonNegative).value;
    routed_experts = ReadExpertCount(reader, *this, "n_routed_experts", 256).value;
    shared_experts = reader.IntOrNull("n_shared_experts", kNonNegative).value.value_or(0);
    moe_intermediate = reader.Int("moe_intermediate_size", 2048).value;
    if (shared_experts * moe_intermediate > kPositive.high) {
      reader.Error("n_shared_experts", "times moe_intermediate_size must be at most 2147483647");
      shared_experts = 0;
    }
    experts_per_token =
        reader.Int("num_experts_per_tok", 8, {.low = 1, .high = routed_experts}).value;
    routed_scale = reader.Double("routed_scaling_factor", 2.5, kNonNegativeReal).value;
    renormalise = reader.Bool("norm_topk_prob", true).value;
    groups = reader.IntOrNull("n_group").value.value_or(8);
    kept_groups = reader.IntOrNull("topk_group").value.value_or(4);
    if (routed_experts % groups != 0 || routed_experts / groups < 2) {
      reader.Error("n_group", "must divide n_routed_experts into groups of two or more");
      groups = 1;
    }
    if (kept_groups > groups) {
      reader.Error("topk_group", "must be at most n_group");
      kept_groups = 1;
    }
    // Other methods are other models; the reference reads neither key.
    reader.Enum<int>("topk_method", {{"noaux_tc", 0}}, 0);
    reader.Enum<int>("scoring_func", {{"sigmoid", 0}}, 0);
    const int64_t frequency = reader.Int("moe_layer_freq", 1).value;
    if (frequency != 1)
      reader.Error("moe_layer_freq", "allowed: 1 (every layer after the dense ones has experts)");
  }

  NormOptions norm() const {
    return {.width = hidden.value, .eps = static_cast<float>(norm_eps.value)};
  }
  AttentionSpec Attention(int layer) const {
    AttentionSpec spec;
    spec.layer = layer;
    spec.heads = spec.kv_heads = heads.value[layer];
    spec.head_dim = head_dim.value[layer];
    spec.v_head_dim = mla.v_head_dim;
    spec.mla = mla;
    // YaRN stretches the softmax too (yarn_get_mscale, squared).
    const double mscale = rope.value.type == RopeType::kYarn && rope.value.mscale_all_dim != 0
                              ? YarnMscale(rope.value.factor.value_or(1), rope.value.mscale_all_dim)
                              : 1.0;
    spec.scale =
        static_cast<float>(mscale * mscale / std::sqrt(static_cast<double>(head_dim.value[layer])));
    return spec;
  }
  MlpOptions Mlp(int64_t width) const {
    return {.hidden = hidden.value, .intermediate = width, .activation = activation.value};
  }
  MoeOptions moe() const {
    MoeOptions options;
    options.hidden = hidden.value;
    options.intermediate = moe_intermediate;
    options.activation = activation.value;
    options.routing.experts = static_cast<int>(routed_experts);
    options.routing.top_k = static_cast<int>(experts_per_token);
    options.routing.scale = static_cast<float>(routed_scale);
    options.routing.scoring = RoutingSpec::Scoring::kSigmoid;
    options.routing.renormalise = renormalise;
    options.routing.renormalise_eps = 1e-20f;
    options.routing.group_score = RoutingSpec::GroupScore::kSumOfTop2;
    options.routing.masked_score = -std::numeric_limits<float>::infinity();
    options.routing.groups = static_cast<int>(groups);
    options.routing.kept_groups = static_cast<int>(kept_groups);
    options.has_choice_bias = true;
    return options;
  }
};

// Routed and shared experts of one layer.
class ExpertMlp {
 public:
  ExpertMlp(const Scope& scope, const DeepseekV3Config& c) : routed_(scope, c.moe()) {
    if (c.shared_experts > 0) {
      shared_.emplace(scope / "shared_experts", c.Mlp(c.moe_intermediate * c.shared_experts));
    }
  }
  void operator()(Forward& pass, const Value& normed, Residual& x) const {
    x.Add(routed_(pass, normed));
    if (shared_) x.Add((*shared_)(pass, normed));
  }

 private:
  Moe routed_;
  std::optional<GatedMlp> shared_;
};

class Block {
 public:
  Block(const Scope& scope, const DeepseekV3Config& c, const RopeTable& rope, int layer)
      : is_last_(layer + 1 == c.layers.value),
        attention_norm_(scope / "input_layernorm", c.norm()),
        attention_(scope / "self_attn",
                   {.spec = c.Attention(layer),
                    .hidden = c.hidden.value,
                    .rope = &rope,
                    .pairing = c.rope_interleave ? RopePairing::kInterleaved : RopePairing::kHalf,
                    .bias = c.attention_bias}),
        mlp_norm_(scope / "post_attention_layernorm", c.norm()) {
    if (layer < c.first_dense) {
      dense_.emplace(scope / "mlp", c.Mlp(c.intermediate.value[layer]));
    } else {
      experts_.emplace(scope / "mlp", c);
    }
  }

  void operator()(Forward& pass, Residual& x) const {
    x.Add(attention_(pass, attention_norm_(pass, x)));
    if (is_last_) x.KeepLogitRows(pass);
    const Value normed = mlp_norm_(pass, x);
    if (dense_) {
      x.Add((*dense_)(pass, normed));
    } else {
      (*experts_)(pass, normed, x);
    }
  }

 private:
  bool is_last_;
  NormModule attention_norm_;
  Mla attention_;
  NormModule mlp_norm_;
  std::optional<GatedMlp> dense_;
  std::optional<ExpertMlp> experts_;
};

class DeepseekV3ForCausalLM final : public Model {
 public:
  using Config = DeepseekV3Config;

  DeepseekV3ForCausalLM(const Scope& scope, const DeepseekV3Config& c)
      : Model(scope),
        rope_(scope, c.rope.value, c.mla.qk_rope_head_dim, c.max_position.value),
        embedding_(scope / "model" / "embed_tokens", c.vocab.value, c.hidden.value),
        blocks_(scope / "model" / "layers", c.layers.value, c, rope_),
        norm_(scope / "model" / "norm", c.norm()),
        head_(scope / "lm_head", embedding_, c.tie_embeddings.value) {}

  Value Forward(tenon::Forward& pass) const override {
    Residual x(embedding_(pass, pass.layout().token_ids));
    RunBlocks(pass, blocks_, x);
    return head_(pass, LogitRows(pass, norm_(pass, x)));
  }

  static std::vector<std::string> Skippable(const DeepseekV3Config& c) {
    return {"model.layers." + std::to_string(c.layers.value) + ".*"};
  }

  static NameTable Names(const DeepseekV3Config& /*config*/, Container /*container*/) {
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

Status RegisterDeepseekV3(Registrar& registrar) {
  registrar.Model<DeepseekV3ForCausalLM>("DeepseekV3ForCausalLM", ModelKind::kCausalLm,
                                         {.model_type = "deepseek_v3",
                                          .skippable = {"*.rotary_emb.inv_freq"},
                                          .base_prefix = "model."});
  return {};
}

}  // namespace tenon
