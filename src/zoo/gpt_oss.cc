// gpt-oss (Hugging Face modeling_gpt_oss.py): grouped attention with biases and a learned logit per
// head that takes its share of the softmax, a window in every other layer, YaRN that does not round
// its corners, and experts with biases and a clamped SwiGLU. The files stack the experts, gate and
// up rows in turn: plain ones as [experts, in, out], quantised ones (MXFP4) as [experts, out, in].
#include <cmath>

#include "tenon/modules/attention.h"
#include "tenon/modules/embedding.h"
#include "tenon/modules/moe.h"
#include "tenon/registry/registry.h"

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
  NameTable names;
  names.WrapperPrefixes();
  names.Add("model.embed_tokens.weight", "token_embd.weight");
  names.Add("model.norm.weight", "output_norm.weight");
  names.Add("lm_head.weight", "output.weight");
  const std::string layer = "model.layers.{}.";
  names.Add(layer + "input_layernorm.weight", "blk.{}.attn_norm.weight");
  names.Add(layer + "post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight");
  names.Add(layer + "self_attn.sinks", "blk.{}.attn_sinks.weight");
  constexpr std::pair<const char*, const char*> kMatrices[] = {
      {"self_attn.q_proj", "attn_q"}, {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"}, {"self_attn.o_proj", "attn_output"},
      {"mlp.router", "ffn_gate_inp"},
  };
  constexpr std::pair<const char*, const char*> kExperts[] = {
      {"gate_proj", "ffn_gate_exps"}, {"up_proj", "ffn_up_exps"}, {"down_proj", "ffn_down_exps"}};
  for (const char* kind : {".weight", ".bias"}) {
    for (const auto& [canonical, stored] : kMatrices) {
      names.Add(layer + canonical + kind, std::string("blk.{}.") + stored + kind);
    }
    for (const auto& [canonical, stored] : kExperts) {
      names.Add(layer + "mlp.experts.{}." + canonical + kind,
                std::string("blk.{}.") + stored + kind, {TransformStep::Slice(0, 1)});
    }
  }
  return names;
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
    x.Tap(pass, "embed");
    int layer = 0;
    for (const Block& block : blocks_) {
      block(pass, x);
      x.Tap(pass, "hidden." + std::to_string(layer++));
    }
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

constexpr GgufKeyRow kGgufKeys[] = {
    {"vocab_size", "{arch}.vocab_size"},
    {"vocab_size", "tokenizer.ggml.tokens.length"},
    {"hidden_size", "{arch}.embedding_length"},
    {"num_hidden_layers", "{arch}.block_count"},
    {"intermediate_size", "{arch}.expert_feed_forward_length"},
    {"num_attention_heads", "{arch}.attention.head_count"},
    {"num_key_value_heads", "{arch}.attention.head_count_kv"},
    {"head_dim", "{arch}.attention.key_length"},
    {"max_position_embeddings", "{arch}.context_length"},
    {"rms_norm_eps", "{arch}.attention.layer_norm_rms_epsilon"},
    {"rope_theta", "{arch}.rope.freq_base"},
    {"sliding_window", "{arch}.attention.sliding_window"},
    {"num_local_experts", "{arch}.expert_count"},
    {"num_experts_per_tok", "{arch}.expert_used_count"},
    {"bos_token_id", "tokenizer.ggml.bos_token_id"},
    {"eos_token_id", "tokenizer.ggml.eos_token_id"},
};

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
