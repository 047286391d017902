// Llama 4, the language model (Hugging Face modeling_llama4.py): most layers rotate, norm q and k
// afterwards and see the chunk they are in; the others see all, do not rotate, and sharpen queries
// with their position. Experts beside a shared one, on all layers or every n-th; the score of an
// expert multiplies its input. Checkpoints that take images hold the model below language_model.
#include <cmath>
#include <optional>

#include "tenon/modules/attention.h"
#include "tenon/modules/embedding.h"
#include "tenon/modules/mlp.h"
#include "tenon/modules/moe.h"
#include "tenon/ops/row_scale.h"
#include "tenon/registry/registry.h"
#include "tenon/zoo/gguf_decoder.h"

namespace tenon {
namespace {

struct Llama4Config : ModelConfig {
  bool attention_bias = false;
  bool qk_norm = true;
  std::vector<bool> rotates;      // by layer
  std::vector<bool> is_chunked;   // by layer
  std::vector<bool> has_experts;  // by layer
  int64_t chunk = 8192;
  std::optional<PositionTemperature> temperature;  // of queries that are not rotated
  int64_t dense_intermediate = 1;                  // of layers without experts
  int64_t experts = 1;
  int64_t experts_per_token = 1;

  Llama4Config(ConfigReader& reader, Container container) {
    ReadIdentity(reader, *this);
    ReadSizes(reader, *this,
              {.vocab = {"vocab_size", 202048},
               .hidden = {"hidden_size", 5120},
               .layers = {"num_hidden_layers", 48},
               .tied = container == Container::kGguf});
    ReadAttentionGeometry(reader, *this,
                          {.heads = {"num_attention_heads", 40},
                           .kv_heads = {"num_key_value_heads", 8},
                           .head_dim = {"head_dim", 128}});
    ReadMaxPosition(reader, *this, {"max_position_embeddings", 131072});
    ReadMlp(reader, *this,
            {.intermediate = {"intermediate_size", 8192}, .default_activation = Activation::kSilu});
    RequireAlike(reader, "intermediate_size", intermediate);
    ReadNormEps(reader, *this, "rms_norm_eps", 1e-5);
    ReadTokens(reader, *this);
    ReadRope(reader, *this, {.theta = 500000});
    ReadAttention(reader);
    ReadExperts(reader);
    // No metadata says it: the model of 128 experts goes without (llama.cpp goes by that too).
    if (container == Container::kGguf) qk_norm = experts != 128;
    reader.Ignore({"vision_config", "boi_token_*", "eoi_token_*", "image_token_*",
                   "for_llm_compressor", "router_*"});
  }

  void ReadAttention(ConfigReader& reader) {
    attention_bias = reader.Bool("attention_bias", false).value;
    qk_norm = reader.Bool("use_qk_norm", true).value;
    const int64_t interval = reader.Int("no_rope_layer_interval", 4).value;
    // In spite of its name, 1 is a layer that rotates. An empty list is none.
    const std::vector<int64_t> listed =
        reader.Ints("no_rope_layers", {}, {.low = 0, .high = 1}).value;
    if (!listed.empty() && static_cast<int64_t>(listed.size()) < layers.value) {
      reader.Error("no_rope_layers", "must have an entry for every layer");
    }
    for (int64_t layer = 0; layer < layers.value; ++layer) {
      const auto i = static_cast<size_t>(layer);
      rotates.push_back(i < listed.size() ? listed[i] == 1 : (layer + 1) % interval != 0);
    }
    chunk = reader.Int("attention_chunk_size", 8192).value;
    is_chunked = ReadLayerTypes(reader, *this, {.yes = "chunked_attention"},
                                [&](int64_t layer) { return rotates[static_cast<size_t>(layer)]; });
    const PositionTemperature of_queries = {
        .beta = static_cast<float>(reader.Double("attn_scale", 0.1, kNonNegativeReal).value),
        .interval = reader.Int("floor_scale", 8192).value,
        .offset = 1};
    if (reader.Bool("attn_temperature_tuning", true).value) temperature = of_queries;
  }

  void ReadExperts(ConfigReader& reader) {
    experts = ReadExpertCount(reader, *this, "num_local_experts", 16).value;
    experts_per_token = reader.Int("num_experts_per_tok", 1, {.low = 1, .high = experts}).value;
    dense_intermediate = reader.Int("intermediate_size_mlp", 16384).value;
    const int64_t step = reader.Int("interleave_moe_layer_step", 1).value;
    for (int64_t layer = 0; layer < layers.value; ++layer) {
      has_experts.push_back((layer + 1) % step == 0);
    }
    if (!reader.Has("moe_layers")) return;
    has_experts.assign(has_experts.size(), false);
    for (const int64_t layer :
         reader.Ints("moe_layers", {}, {.low = 0, .high = layers.value - 1}).value) {
      has_experts[static_cast<size_t>(layer)] = true;
    }
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
    if (is_chunked[static_cast<size_t>(layer)]) spec.chunk = chunk;
    return spec;
  }
  MlpOptions Mlp(int64_t width) const {
    return {.hidden = hidden.value, .intermediate = width, .activation = activation.value};
  }
  MoeOptions moe() const {
    MoeOptions options;
    options.hidden = hidden.value;
    options.intermediate = intermediate.value[0];
    options.activation = activation.value;
    options.routing.experts = static_cast<int>(experts);
    options.routing.top_k = static_cast<int>(experts_per_token);
    options.routing.scoring = RoutingSpec::Scoring::kSigmoid;
    options.routing.score_chosen = true;
    options.weighs = ExpertWeights::Weighs::kInput;
    options.router = "router";
    return options;
  }
};

class Attention {
 public:
  Attention(const Scope& scope, const Llama4Config& c, const RopeTable& rope, int layer)
      : core_(scope, LocalHeads(scope, c.Attention(layer))),
        qkv_(scope, "qkv_proj", c.hidden.value, Segments(c, layer), LinearShare::kRows),
        o_(scope / "o_proj", c.heads.value[layer] * c.head_dim.value[layer], c.hidden.value,
           c.attention_bias, LinearShare::kColumns) {
    if (c.rotates[static_cast<size_t>(layer)]) {
      rope_ = &rope;
      if (c.qk_norm) head_norm_ = NormWeights{.eps = static_cast<float>(c.norm_eps.value)};
    } else {
      temperature_ = c.temperature;
    }
  }

  Value operator()(Forward& pass, const Value& x) const {
    const AttentionSpec& spec = core_.spec();
    const Value qkv = qkv_(pass, x);
    QkvView view{qkv_.SegmentOf(qkv, 0).SplitLast(spec.heads, spec.head_dim),
                 qkv_.SegmentOf(qkv, 1).SplitLast(spec.kv_heads, spec.head_dim),
                 qkv_.SegmentOf(qkv, 2).SplitLast(spec.kv_heads, spec.head_dim)};
    if (head_norm_) {
      view.q = RotatedAndNormed(pass, view.q);
      view.k = RotatedAndNormed(pass, view.k);
    } else if (rope_ != nullptr) {
      view.angles = pass.Angles(*rope_);
      view.pairing = RopePairing::kInterleaved;
    } else if (temperature_) {
      const Value factors =
          TemperatureOf(pass.tape(), *temperature_, pass.layout().positions, pass.num_tokens());
      view.q = ScaleRows(pass.tape(), view.q, factors);
    }
    return o_(pass, core_.Run(pass, view));
  }

 private:
  static std::vector<Segment> Segments(const Llama4Config& c, int layer) {
    const int64_t heads = c.heads.value[layer];
    const int64_t kv_heads = c.kv_heads.value[layer];
    const int64_t width = c.head_dim.value[layer];
    return {{"q_proj", heads * width, c.attention_bias, heads},
            {"k_proj", kv_heads * width, c.attention_bias, kv_heads},
            {"v_proj", kv_heads * width, c.attention_bias, kv_heads}};
  }

  // x [num_tokens, heads, head_dim]
  Value RotatedAndNormed(Forward& pass, const Value& x) const {
    return Norm(pass.tape(), *head_norm_,
                Rotated(pass.tape(), x, pass.Angles(*rope_), RopePairing::kInterleaved));
  }

  const RopeTable* rope_ = nullptr;       // null: no rotation
  std::optional<NormWeights> head_norm_;  // of rotated q and k; it has no weights
  std::optional<PositionTemperature> temperature_;
  AttentionCore core_;
  Linear qkv_;
  Linear o_;
};

// Dense, or experts with a shared one beside them.
class FeedForward {
 public:
  FeedForward(const Scope& scope, const Llama4Config& c, int layer) {
    if (c.has_experts[static_cast<size_t>(layer)]) {
      routed_.emplace(scope, c.moe());
      mlp_.emplace(scope / "shared_expert", c.Mlp(c.intermediate.value[0]));
    } else {
      mlp_.emplace(scope, c.Mlp(c.dense_intermediate));
    }
  }
  void AddTo(Forward& pass, const Value& x, Residual& residual) const {
    if (routed_) residual.Add((*routed_)(pass, x));
    mlp_->AddTo(pass, x, residual);
  }

 private:
  std::optional<Moe> routed_;
  std::optional<GatedMlp> mlp_;
};

class Block {
 public:
  Block(const Scope& scope, const Llama4Config& c, const RopeTable& rope, int layer)
      : is_last_(layer + 1 == c.layers.value),
        attention_norm_(scope / "input_layernorm", c.norm()),
        attention_(scope / "self_attn", c, rope, layer),
        mlp_norm_(scope / "post_attention_layernorm", c.norm()),
        mlp_(scope / "feed_forward", c, layer) {}

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
  FeedForward mlp_;
};

NameTable GgufNames() {
  const Transform slice = {TransformStep::Slice(0, 1)};
  const GgufName rows[] = {
      {"self_attn.q_proj.weight", "attn_q.weight"},
      {"self_attn.k_proj.weight", "attn_k.weight"},
      {"post_attention_layernorm.weight", "ffn_norm.weight"},
      {"feed_forward.gate_proj.weight", "ffn_gate.weight"},
      {"feed_forward.up_proj.weight", "ffn_up.weight"},
      {"feed_forward.down_proj.weight", "ffn_down.weight"},
      {"feed_forward.router.weight", "ffn_gate_inp.weight"},
      {"feed_forward.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"},
      {"feed_forward.shared_expert.up_proj.weight", "ffn_up_shexp.weight"},
      {"feed_forward.shared_expert.down_proj.weight", "ffn_down_shexp.weight"},
      {"feed_forward.experts.{}.gate_proj.weight", "ffn_gate_exps.weight", slice},
      {"feed_forward.experts.{}.up_proj.weight", "ffn_up_exps.weight", slice},
      {"feed_forward.experts.{}.down_proj.weight", "ffn_down_exps.weight", slice},
  };
  return GgufDecoderNames(rows);
}

class Llama4ForCausalLM final : public Model {
 public:
  using Config = Llama4Config;

  Llama4ForCausalLM(const Scope& scope, const Llama4Config& c)
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

  static NameTable Names(const Llama4Config& c, Container container) {
    if (container == Container::kGguf) return GgufNames();
    NameTable names;
    names.WrapperPrefixes().Prefix("language_model.", "");
    // Experts are stacked, [experts, in, out]; gate is the first half of gate_up.
    const std::string stored = "model.layers.{}.feed_forward.experts.";
    const int64_t width = c.intermediate.value[0];
    const auto half = [&](int part) -> Transform {
      return {TransformStep::Slice(0, 1), TransformStep::Transpose(),
              TransformStep::RowPart({width, width}, part)};
    };
    names.Add(stored + "{}.gate_proj.weight", stored + "gate_up_proj", half(0));
    names.Add(stored + "{}.up_proj.weight", stored + "gate_up_proj", half(1));
    names.Add(stored + "{}.down_proj.weight", stored + "down_proj",
              {TransformStep::Slice(0, 1), TransformStep::Transpose()});
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
    GgufDecoderKeys(GgufKeyRow{"intermediate_size_mlp", "{arch}.feed_forward_length"},
                    GgufKeyRow{"intermediate_size", "{arch}.expert_feed_forward_length"},
                    GgufKeyRow{"interleave_moe_layer_step", "{arch}.interleave_moe_layer_step"},
                    GgufKeyRow{"num_local_experts", "{arch}.expert_count"},
                    GgufKeyRow{"num_experts_per_tok", "{arch}.expert_used_count"});

}  // namespace

Status RegisterLlama4(Registrar& registrar) {
  ModelTraits traits = {.model_type = "llama4_text",
                        .gguf_keys = kGgufKeys,
                        .skippable = {"*.rotary_emb.inv_freq"},
                        .base_prefix = "model."};
  registrar.Model<Llama4ForCausalLM>("Llama4ForCausalLM", ModelKind::kCausalLm, traits);
  registrar.Gguf("llama4", [](const GgufMetadata&) { return std::string("Llama4ForCausalLM"); });
  // With the part that reads images beside it, which text does not need.
  traits = {.model_type = "llama4",
            .skippable = {"*.rotary_emb.inv_freq", "vision_model.*", "multi_modal_projector.*"}};
  registrar.Model<Llama4ForCausalLM>("Llama4ForConditionalGeneration", ModelKind::kCausalLm,
                                     traits);
  return {};
}

}  // namespace tenon
