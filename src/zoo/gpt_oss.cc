// gpt-oss (Hugging Face modeling_gpt_oss.py): grouped attention with biases and a learned logit per
// head that takes its share of the softmax, a window in every other layer, YaRN that does not round
// its corners, and experts with biases and a clamped SwiGLU. The files stack the experts, gate and
// up rows in turn: plain ones as [experts, in, out], quantised ones (MXFP4) as [experts, out, in].
#include <cmath>

#include "tenon/modules/attention.h"
#include "tenon/modules/embedding.h"
#include "tenon/modules/moe.h"
#include "tenon/registry/registry.h"
#include "tenon/zoo/gguf_decoder.h"

namespace tenon {
namespace {

struct GptOssConfig : ModelConfig {
  bool attention_bias = true;
  int64_t window = 128;
  std::vector<bool> is_windowed;  // by layer
  int64_t experts = 1;
  int64_t experts_per_token = 1;
  ClampedSwiglu unit;

  GptOssConfig(ConfigReader& reader, Container container) {
    ReadIdentity(reader, *this);
    ReadSizes(reader, *this,
              {.vocab = {"vocab_size", 201088},
               .hidden = {"hidden_size", 2880},
               .layers = {"num_hidden_layers", 36},
               .tied = container == Container::kGguf});
    ReadAttentionGeometry(reader, *this,
                          {.heads = {"num_attention_heads", 64},
                           .kv_heads = {"num_key_value_heads", 8},
                           .head_dim = {"head_dim", 64}});
    RequireAlike(reader, "num_attention_heads", heads);
    ReadMaxPosition(reader, *this, {"max_position_embeddings", 131072});
    ReadNormEps(reader, *this, "rms_norm_eps", 1e-5);
    ReadTokens(reader, *this);
    ReadYarn(reader, container);
    attention_bias = reader.Bool("attention_bias", true).value;
    window = reader.Int("sliding_window", 128).value;
    is_windowed = ReadLayerTypes(reader, *this, {.yes = "sliding_attention"},
                                 [](int64_t layer) { return layer % 2 == 0; });
    ReadExperts(reader);
    reader.Ignore({"hidden_act", "initial_context_length", "router_*"});
  }

  // Without the dictionary the reference takes the published models' own.
  void ReadYarn(ConfigReader& reader, Container container) {
    if (reader.Has("rope_scaling") || reader.Has("rope_parameters")) {
      ReadRope(reader, *this, {.theta = 150000});
      // There is no metadata for it, and the reference never rounds.
      if (container == Container::kGguf) rope.value.truncate = false;
      return;
    }
    rope.value = {.type = RopeType::kYarn,
                  .theta = reader.Double("rope_theta", 150000, kPositiveReal).value,
                  .factor = 32,
                  .original_max_position = 4096,
                  .truncate = false};
    rope.origin = reader.RecordDefault("rope_scaling",
                                       Json(Json::Object{{"rope_type", "yarn"},
                                                         {"factor", 32},
                                                         {"original_max_position_embeddings", 4096},
                                                         {"truncate", false}}));
  }

  void ReadExperts(ConfigReader& reader) {
    intermediate = {PerLayer<int64_t>(reader.Int("intermediate_size", 2880).value), {}};
    experts = ReadExpertCount(reader, *this, {"num_local_experts", "num_experts"}, 128).value;
    experts_per_token =
        reader.Int({"num_experts_per_tok", "experts_per_token"}, 4, {.low = 1, .high = experts})
            .value;
    reader.Ignore({"experts_per_token"});
    unit.alpha = static_cast<float>(reader.Double("swiglu_alpha", 1.702, kPositiveReal).value);
    unit.limit = static_cast<float>(reader.Double("swiglu_limit", 7, kPositiveReal).value);
  }

  NormOptions norm() const {
    return {.width = hidden.value, .eps = static_cast<float>(norm_eps.value)};
  }
  AttentionSpec Attention(int layer) const {
    AttentionSpec spec = {.layer = layer,
                          .heads = heads.value[layer],
                          .kv_heads = kv_heads.value[layer],
                          .head_dim = head_dim.value[layer],
                          .v_head_dim = head_dim.value[layer],
                          .scale = 1.0f / std::sqrt(static_cast<float>(head_dim.value[layer]))};
    if (is_windowed[static_cast<size_t>(layer)]) spec.window = window;
    return spec;
  }
  MoeOptions moe() const {
    MoeOptions options;
    options.hidden = hidden.value;
    options.intermediate = intermediate.value[0];
    options.activation = unit;
    options.routing.experts = static_cast<int>(experts);
    options.routing.top_k = static_cast<int>(experts_per_token);
    options.routing.score_chosen = true;
    options.router_bias = true;
    options.expert_bias = true;
    options.router = "router";
    return options;
  }
};

// The logit of each head that no key has.
class Sinks : public Module {
 public:
  Sinks(const Scope& scope, int64_t heads) : Module(scope) {
    if (!DivideEvenly(scope.context().options.mapping, heads, 0, share_)) {
      share_ = {0, heads, 0};  // the projections say that it cannot be
    }
  }
  void CreateWeights(LoadContext& context) override {
    AddParameter(context, path(), VectorPart(share_.size, share_), Parameter::Form::kFloat32);
  }
  void LinkWeights() override { logits_ = parameters_[0].floats(); }
  const float* const* logits() const { return &logits_; }

 private:
  Share share_;
  const float* logits_ = nullptr;  // [heads]
};

class Block {
 public:
  Block(const Scope& scope, const GptOssConfig& c, const RopeTable& rope, int layer)
      : is_last_(layer + 1 == c.layers.value),
        attention_norm_(scope / "input_layernorm", c.norm()),
        sinks_(scope / "self_attn" / "sinks", c.heads.value[layer]),
        attention_(scope / "self_attn", {.spec = WithSinks(c.Attention(layer)),
                                         .hidden = c.hidden.value,
                                         .qkv_bias = c.attention_bias,
                                         .o_bias = c.attention_bias,
                                         .rope = &rope}),
        moe_norm_(scope / "post_attention_layernorm", c.norm()),
        moe_(scope / "mlp", c.moe()) {}

  void operator()(Forward& pass, Residual& x) const {
    x.Add(attention_(pass, attention_norm_(pass, x)));
    if (is_last_) x.KeepLogitRows(pass);
    x.Add(moe_(pass, moe_norm_(pass, x)));
  }

 private:
  AttentionSpec WithSinks(AttentionSpec spec) const {
    spec.sinks = sinks_.logits();
    return spec;
  }

  bool is_last_;
  NormModule attention_norm_;
  Sinks sinks_;
  SelfAttention attention_;
  NormModule moe_norm_;
  Moe moe_;
};

// Names of the stacked experts, plain and quantised.
void AddExperts(NameTable& names, const GptOssConfig& c) {
  const std::string stored = "model.layers.{}.mlp.experts.";
  const std::string canonical = stored + "{}.";
  const auto add = [&](const std::string& matrix, const std::string& stack, const Transform& cut) {
    const auto steps = [&](std::vector<TransformStep> before, std::vector<TransformStep> after) {
      Transform transform = {TransformStep::Slice(0, 1)};
      transform.insert(transform.end(), before.begin(), before.end());
      transform.insert(transform.end(), cut.begin(), cut.end());
      transform.insert(transform.end(), after.begin(), after.end());
      return transform;
    };
    names.Add(canonical + matrix + ".weight", stored + stack,
              steps({TransformStep::Transpose()}, {}));
    names.Add(canonical + matrix + ".bias", stored + stack + "_bias", steps({}, {}));
    names.Add(canonical + matrix + ".weight_packed", stored + stack + "_blocks",
              steps({}, {TransformStep::MergeLast(16)}));
    names.Add(canonical + matrix + ".weight_scale", stored + stack + "_scales", steps({}, {}));
  };
  const int64_t rows = c.intermediate.value[0];
  add("gate_proj", "gate_up_proj", {TransformStep::RowPart({1, 1}, 0, rows)});
  add("up_proj", "gate_up_proj", {TransformStep::RowPart({1, 1}, 1, rows)});
  add("down_proj", "down_proj", {});
}

NameTable GgufNames() {
  const Transform slice = {TransformStep::Slice(0, 1)};
  const GgufName rows[] = {
      {"post_attention_layernorm.weight", "post_attention_norm.weight"},
      {"self_attn.sinks", "attn_sinks.weight"},
      {"self_attn.q_proj.weight", "attn_q.weight"},
      {"self_attn.q_proj.bias", "attn_q.bias"},
      {"self_attn.k_proj.weight", "attn_k.weight"},
      {"self_attn.k_proj.bias", "attn_k.bias"},
      {"self_attn.v_proj.bias", "attn_v.bias"},
      {"self_attn.o_proj.bias", "attn_output.bias"},
      {"mlp.router.weight", "ffn_gate_inp.weight"},
      {"mlp.router.bias", "ffn_gate_inp.bias"},
      {"mlp.experts.{}.gate_proj.weight", "ffn_gate_exps.weight", slice},
      {"mlp.experts.{}.gate_proj.bias", "ffn_gate_exps.bias", slice},
      {"mlp.experts.{}.up_proj.weight", "ffn_up_exps.weight", slice},
      {"mlp.experts.{}.up_proj.bias", "ffn_up_exps.bias", slice},
      {"mlp.experts.{}.down_proj.weight", "ffn_down_exps.weight", slice},
      {"mlp.experts.{}.down_proj.bias", "ffn_down_exps.bias", slice},
  };
  return GgufDecoderNames(rows);
}

class GptOssForCausalLM final : public Model {
 public:
  using Config = GptOssConfig;

  GptOssForCausalLM(const Scope& scope, const GptOssConfig& c)
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

  static NameTable Names(const GptOssConfig& c, Container container) {
    if (container == Container::kGguf) return GgufNames();
    NameTable names;
    names.WrapperPrefixes();
    AddExperts(names, c);
    return names;
  }

 private:
  RopeTable rope_;
  Embedding embedding_;
  ModuleList<Block> blocks_;
  NormModule norm_;
  LmHead head_;
};

constexpr auto kGgufKeys =
    GgufDecoderKeys(GgufKeyRow{"intermediate_size", "{arch}.expert_feed_forward_length"},
                    kGgufWindow, GgufKeyRow{"num_local_experts", "{arch}.expert_count"},
                    GgufKeyRow{"num_experts_per_tok", "{arch}.expert_used_count"});

}  // namespace

Status RegisterGptOss(Registrar& registrar) {
  registrar.Model<GptOssForCausalLM>("GptOssForCausalLM", ModelKind::kCausalLm,
                                     {.model_type = "gpt_oss",
                                      .gguf_keys = kGgufKeys,
                                      .skippable = {"*.rotary_emb.inv_freq"},
                                      .base_prefix = "model."});
  registrar.Gguf("gpt-oss", [](const GgufMetadata&) { return std::string("GptOssForCausalLM"); });
  return {};
}

}  // namespace tenon
