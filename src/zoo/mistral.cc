// Mistral (Hugging Face modeling_mistral.py): pre-norm blocks of grouped attention, of which every
// layer may have a window, and a gated MLP. Ministral 3 (modeling_ministral3.py): the same with
// YaRN and queries that get sharper with their position. Mistral 3 (modeling_mistral3.py): either
// of them beside an image part, which is not served. GGUF files of Mistral say "llama".
#include <cmath>
#include <optional>
#include <string>

#include "tenon/modules/attention.h"
#include "tenon/modules/embedding.h"
#include "tenon/modules/mlp.h"
#include "tenon/ops/row_scale.h"
#include "tenon/registry/registry.h"

namespace tenon {
namespace {

enum class TextModel { kMistral, kMinistral3 };

struct MistralConfig : ModelConfig {
  std::optional<int64_t> window;
  std::optional<PositionTemperature> temperature;  // of queries

  MistralConfig(ConfigReader& reader, Container /*container*/)
      : MistralConfig(reader, TextModel::kMistral, /*tied=*/false) {}

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
  MlpOptions Mlp(int layer) const {
    return {.hidden = hidden.value,
            .intermediate = intermediate.value[layer],
            .activation = activation.value};
  }

 protected:
  // tied: where no key says so.
  MistralConfig(ConfigReader& reader, TextModel model, bool tied) {
    const bool is_ministral3 = model == TextModel::kMinistral3;
    ReadIdentity(reader, *this);
    ReadSizes(reader, *this, {.tied = tied});
    AttentionKeys keys = {.kv_heads = {"num_key_value_heads", 8}};
    if (is_ministral3) keys.head_dim.fallback = 128;
    ReadAttentionGeometry(reader, *this, keys);
    ReadMaxPosition(reader, *this, {"max_position_embeddings", is_ministral3 ? 262144 : 131072});
    ReadMlp(reader, *this, {.default_activation = Activation::kSilu});
    ReadNormEps(reader, *this, "rms_norm_eps", is_ministral3 ? 1e-5 : 1e-6);
    ReadTokens(reader, *this);
    if (is_ministral3) {
      window = reader.IntOrNull("sliding_window").value;
      ReadMinistralRope(reader);
    } else {
      // No window has to be said: null.
      if (!reader.IsNull("sliding_window")) window = reader.Int("sliding_window", 4096).value;
      ReadRope(reader, *this, {.theta = 10000});
    }
  }

 private:
  void ReadMinistralRope(ConfigReader& reader) {
    const Keys dictionary = {"rope_scaling", "rope_parameters"};
    PositionTemperature of_queries = {.beta = 0.1f, .interval = 16384};
    if (reader.Has(dictionary)) {
      ReadRope(reader, *this, {.theta = 1e6});
      ConfigReader inside = reader.Nested(dictionary);
      of_queries.beta =
          static_cast<float>(inside.RequireDouble("llama_4_scaling_beta", kNonNegativeReal).value);
      of_queries.interval = inside.RequireInt("original_max_position_embeddings").value;
    } else {
      rope.value.type = RopeType::kYarn;
      rope.value.theta = 1e6;
      rope.value.factor = 16;
      rope.value.original_max_position = of_queries.interval;
      rope.value.mscale = rope.value.mscale_all_dim = 1;
      rope.origin = reader.RecordDefault("rope_parameters", "yarn, factor 16 of 16384 positions");
    }
    temperature = of_queries;
  }
};

struct Ministral3Config : MistralConfig {
  Ministral3Config(ConfigReader& reader, Container /*container*/)
      : MistralConfig(reader, TextModel::kMinistral3, /*tied=*/false) {}
};

// Keys of the language model are those of text_config, whose own model_type says which it is.
struct Mistral3Config : MistralConfig {
  Mistral3Config(ConfigReader& reader, Container /*container*/)
      : MistralConfig(reader, TextModelOf(reader), /*tied=*/true) {
    reader.Ignore({"vision_config", "vision_feature_layer", "image_token_*", "projector_hidden_act",
                   "multimodal_projector_bias", "spatial_merge_size"});
  }

 private:
  static TextModel TextModelOf(ConfigReader& reader) {
    ConfigReader text = reader.Nested("text_config");
    return text
        .Enum<TextModel>("model_type",
                         {{"mistral", TextModel::kMistral}, {"ministral3", TextModel::kMinistral3}},
                         TextModel::kMistral)
        .value;
  }
};

// SelfAttention with the queries' temperature.
class Attention {
 public:
  Attention(const Scope& scope, const MistralConfig& c, const RopeTable& rope, int layer)
      : rope_(rope),
        temperature_(c.temperature),
        core_(scope, LocalHeads(scope, c.Attention(layer))),
        qkv_(scope, "qkv_proj", c.hidden.value, Segments(c.Attention(layer)), LinearShare::kRows),
        o_(scope / "o_proj", c.heads.value[layer] * c.head_dim.value[layer], c.hidden.value,
           /*has_bias=*/false, LinearShare::kColumns) {}

  Value operator()(Forward& pass, const Value& x) const {
    const AttentionSpec& spec = core_.spec();
    const Value qkv = qkv_(pass, x);
    QkvView view{qkv_.SegmentOf(qkv, 0).SplitLast(spec.heads, spec.head_dim),
                 qkv_.SegmentOf(qkv, 1).SplitLast(spec.kv_heads, spec.head_dim),
                 qkv_.SegmentOf(qkv, 2).SplitLast(spec.kv_heads, spec.head_dim),
                 pass.Angles(rope_)};
    if (temperature_) {
      const Value factors =
          TemperatureOf(pass.tape(), *temperature_, pass.layout().positions, pass.num_tokens());
      view.q = ScaleRows(pass.tape(), view.q, factors);
    }
    return o_(pass, core_.Run(pass, view));
  }

 private:
  static std::vector<Segment> Segments(const AttentionSpec& spec) {
    return {{"q_proj", spec.heads * spec.head_dim, false, spec.heads},
            {"k_proj", spec.kv_heads * spec.head_dim, false, spec.kv_heads},
            {"v_proj", spec.kv_heads * spec.head_dim, false, spec.kv_heads}};
  }

  const RopeTable& rope_;
  std::optional<PositionTemperature> temperature_;
  AttentionCore core_;
  Linear qkv_;
  Linear o_;
};

class Block {
 public:
  Block(const Scope& scope, const MistralConfig& c, const RopeTable& rope, int layer)
      : is_last_(layer + 1 == c.layers.value),
        attention_norm_(scope / "input_layernorm", c.norm()),
        attention_(scope / "self_attn", c, rope, layer),
        mlp_norm_(scope / "post_attention_layernorm", c.norm()),
        mlp_(scope / "mlp", c.Mlp(layer)) {}

  void operator()(Forward& pass, Residual& x) const {
    x.Add(attention_(pass, attention_norm_(pass, x)));
    if (is_last_) x.KeepLogitRows(pass);
    mlp_.AddTo(pass, mlp_norm_(pass, x), x);
  }

 private:
  bool is_last_;
  NormModule attention_norm_;
  Attention attention_;
  NormModule mlp_norm_;
  GatedMlp mlp_;
};

class MistralForCausalLM : public Model {
 public:
  using Config = MistralConfig;

  MistralForCausalLM(const Scope& scope, const MistralConfig& c)
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

  static NameTable Names(const MistralConfig& /*config*/, Container /*container*/) {
    return NameTable().WrapperPrefixes();
  }

 private:
  RopeTable rope_;
  Embedding embedding_;
  ModuleList<Block> blocks_;
  NormModule norm_;
  LmHead head_;
};

class Ministral3ForCausalLM final : public MistralForCausalLM {
 public:
  using Config = Ministral3Config;
  using MistralForCausalLM::MistralForCausalLM;
};

class Mistral3ForConditionalGeneration final : public MistralForCausalLM {
 public:
  using Config = Mistral3Config;
  using MistralForCausalLM::MistralForCausalLM;

  // Files since transformers 4.52 put "model." before all but the head, older ones
  // "language_model." before the whole language model.
  static NameTable Names(const Mistral3Config& /*config*/, Container /*container*/) {
    return NameTable()
        .WrapperPrefixes()
        .Prefix("model.language_model.", "model.")
        .Prefix("language_model.", "");
  }
};

}  // namespace

Status RegisterMistral(Registrar& registrar) {
  registrar.Model<MistralForCausalLM>(
      "MistralForCausalLM", ModelKind::kCausalLm,
      {.model_type = "mistral", .skippable = {"*.rotary_emb.inv_freq"}, .base_prefix = "model."});
  registrar.Model<Ministral3ForCausalLM>("Ministral3ForCausalLM", ModelKind::kCausalLm,
                                         {.model_type = "ministral3", .base_prefix = "model."});
  registrar.Model<Mistral3ForConditionalGeneration>(
      "Mistral3ForConditionalGeneration", ModelKind::kCausalLm,
      {.model_type = "mistral3",
       .skippable = {"vision_tower.*", "multi_modal_projector.*", "model.vision_tower.*",
                     "model.multi_modal_projector.*"}});
  return {};
}

}  // namespace tenon
