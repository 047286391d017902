// Gemma 3, the language model (Hugging Face modeling_gemma3.py): Gemma 2 with norms of q and k in
// place of the cap on scores, five windowed layers to one that sees all, and a rope of its own for
// each of the two kinds. Checkpoints that take images hold it below language_model. GGUF files hold
// the norms as 1 + w.
#include <cmath>
#include <optional>

#include "tenon/modules/attention.h"
#include "tenon/modules/embedding.h"
#include "tenon/modules/mlp.h"
#include "tenon/ops/activation.h"
#include "tenon/registry/registry.h"
#include "tenon/zoo/gguf_decoder.h"

namespace tenon {
namespace {

struct Gemma3Config : ModelConfig {
  RopeParameters window_rope;  // of windowed layers; `rope` is that of the others
  float norm_offset = 1;
  bool attention_bias = false;
  int64_t window = 4096;
  std::vector<bool> is_windowed;  // by layer
  double query_scalar = 256;
  std::optional<double> score_cap;
  std::optional<double> final_cap;

  Gemma3Config(ConfigReader& reader, Container container)
      : norm_offset(container == Container::kGguf ? 0 : 1) {
    ReadIdentity(reader, *this);
    ReadSizes(reader, *this,
              {.vocab = {"vocab_size", 262208},
               .hidden = {"hidden_size", 2304},
               .layers = {"num_hidden_layers", 26},
               .tied = true});
    ReadAttentionGeometry(reader, *this,
                          {.heads = {"num_attention_heads", 8},
                           .kv_heads = {"num_key_value_heads", 4},
                           .head_dim = {"head_dim", 256}});
    ReadMaxPosition(reader, *this, {"max_position_embeddings", 131072});
    ReadMlp(reader, *this,
            {.intermediate = {"intermediate_size", 9216},
             .activation = "hidden_activation",
             .default_activation = Activation::kGeluTanh});
    ReadNormEps(reader, *this, "rms_norm_eps", 1e-6);
    ReadTokens(reader, *this);
    ReadRopes(reader);
    ReadAttention(reader, container);
    reader.Ignore({"vision_config", "mm_tokens_per_image", "boi_token_*", "eoi_token_*",
                   "image_token_*", "text_config.model_type", "_sliding_window_pattern",
                   "hidden_act"});
  }

  void ReadRopes(ConfigReader& reader) {
    const RopeSpec spec = {
        .head_dim = head_dim.value.Max(), .max_position = max_position.value, .theta = 1e6};
    const double local_theta = reader.Double("rope_local_base_freq", 10000, kPositiveReal).value;
    rope = Rotating(ReadRopeOf(reader, spec, "full_attention"), reader);
    if (HasRopePerLayerType(reader, spec)) {
      window_rope = Rotating(ReadRopeOf(reader, spec, "sliding_attention"), reader).value;
    } else {
      window_rope.theta = local_theta;  // scaling is for the layers that see all
    }
  }

  static Sourced<RopeParameters> Rotating(Sourced<std::optional<RopeParameters>> read,
                                          ConfigReader& reader) {
    if (!read.value) {
      reader.AddError(read.origin.Text() + " is null, but this model's layers rotate");
    }
    return {read.value.value_or(RopeParameters{}), std::move(read.origin)};
  }

  void ReadAttention(ConfigReader& reader, Container container) {
    attention_bias = reader.Bool("attention_bias", false).value;
    if (reader.Bool("use_bidirectional_attention", false).value) {
      reader.Error("use_bidirectional_attention", "allowed: false (a causal model)");
    }
    window = reader.Int("sliding_window", 4096).value;
    const int64_t pattern = reader.Int("sliding_window_pattern", 6).value;
    is_windowed = ReadLayerTypes(reader, *this, {.yes = "sliding_attention"},
                                 [&](int64_t layer) { return (layer + 1) % pattern != 0; });
    query_scalar = reader
                       .Double("query_pre_attn_scalar",
                               container == Container::kGguf ? ScalarOfGguf() : 256, kPositiveReal)
                       .value;
    score_cap = reader.DoubleOrNull("attn_logit_softcapping", kPositiveReal).value;
    final_cap = reader.DoubleOrNull("final_logit_softcapping", kPositiveReal).value;
  }

  // No metadata says it: the 27B model alone, of 62 layers, differs (llama.cpp goes by that too).
  double ScalarOfGguf() const {
    constexpr int64_t kLayersOf27B = 62;
    return static_cast<double>(layers.value == kLayersOf27B ? hidden.value / heads.value[0]
                                                            : head_dim.value[0]);
  }

  NormOptions Norm(int64_t width) const {
    return {
        .width = width, .eps = static_cast<float>(norm_eps.value), .weight_offset = norm_offset};
  }
  AttentionSpec Attention(int layer) const {
    AttentionSpec spec = {.layer = layer,
                          .heads = heads.value[layer],
                          .kv_heads = kv_heads.value[layer],
                          .head_dim = head_dim.value[layer],
                          .v_head_dim = head_dim.value[layer],
                          .scale = static_cast<float>(1 / std::sqrt(query_scalar)),
                          .softcap = static_cast<float>(score_cap.value_or(0))};
    if (is_windowed[static_cast<size_t>(layer)]) spec.window = window;
    return spec;
  }
};

// The two kinds of layers.
struct Ropes {
  const RopeTable& full;
  const RopeTable& window;
};

class Block {
 public:
  Block(const Scope& scope, const Gemma3Config& c, const Ropes& ropes, int layer)
      : is_last_(layer + 1 == c.layers.value),
        attention_norm_(scope / "input_layernorm", c.Norm(c.hidden.value)),
        attention_(scope / "self_attn",
                   {.spec = c.Attention(layer),
                    .hidden = c.hidden.value,
                    .qkv_bias = c.attention_bias,
                    .o_bias = c.attention_bias,
                    .rope = c.is_windowed[static_cast<size_t>(layer)] ? &ropes.window : &ropes.full,
                    .head_norm = c.Norm(c.head_dim.value[layer])}),
        after_attention_(scope / "post_attention_layernorm", c.Norm(c.hidden.value)),
        mlp_norm_(scope / "pre_feedforward_layernorm", c.Norm(c.hidden.value)),
        mlp_(scope / "mlp", {.hidden = c.hidden.value,
                             .intermediate = c.intermediate.value[layer],
                             .activation = c.activation.value}),
        after_mlp_(scope / "post_feedforward_layernorm", c.Norm(c.hidden.value)) {}

  void operator()(Forward& pass, Residual& x) const {
    x.Add(after_attention_(pass, attention_(pass, attention_norm_(pass, x))));
    if (is_last_) x.KeepLogitRows(pass);
    x.Add(after_mlp_(pass, mlp_(pass, mlp_norm_(pass, x))));
  }

 private:
  bool is_last_;
  NormModule attention_norm_;
  SelfAttention attention_;
  NormModule after_attention_;
  NormModule mlp_norm_;
  GatedMlp mlp_;
  NormModule after_mlp_;
};

class Gemma3ForCausalLM final : public Model {
 public:
  using Config = Gemma3Config;

  Gemma3ForCausalLM(const Scope& scope, const Gemma3Config& c)
      : Model(scope),
        rope_(scope, c.rope.value, RotaryDim(c.rope.value, c.head_dim.value[0]),
              c.max_position.value),
        window_rope_(scope, c.window_rope, RotaryDim(c.window_rope, c.head_dim.value[0]),
                     c.max_position.value),
        embedding_(scope / "model" / "embed_tokens", c.vocab.value, c.hidden.value),
        embedding_scale_(std::sqrt(static_cast<float>(c.hidden.value))),
        blocks_(scope / "model" / "layers", c.layers.value, c, Ropes{rope_, window_rope_}),
        norm_(scope / "model" / "norm", c.Norm(c.hidden.value)),
        head_(scope / "lm_head", embedding_, c.tie_embeddings.value),
        final_cap_(static_cast<float>(c.final_cap.value_or(0))) {}

  Value Forward(tenon::Forward& pass) const override {
    Residual x(embedding_(pass, pass.layout().token_ids, embedding_scale_));
    RunBlocks(pass, blocks_, x);
    const Value logits = head_(pass, LogitRows(pass, norm_(pass, x)));
    return final_cap_ > 0 ? SoftCap(pass.tape(), logits, final_cap_) : logits;
  }

  static NameTable Names(const Gemma3Config& /*config*/, Container container) {
    if (container != Container::kGguf) {
      // Files of several years.
      return NameTable()
          .WrapperPrefixes()
          .Prefix("language_model.model.", "model.")
          .Prefix("language_model.lm_head.", "lm_head.")
          .Prefix("model.language_model.", "model.");
    }
    const GgufName rows[] = {
        {"self_attn.q_proj.weight", "attn_q.weight"},
        {"self_attn.k_proj.weight", "attn_k.weight"},
        {"self_attn.q_norm.weight", "attn_q_norm.weight"},
        {"self_attn.k_norm.weight", "attn_k_norm.weight"},
        {"post_attention_layernorm.weight", "post_attention_norm.weight"},
        {"pre_feedforward_layernorm.weight", "ffn_norm.weight"},
        {"mlp.gate_proj.weight", "ffn_gate.weight"},
        {"mlp.up_proj.weight", "ffn_up.weight"},
        {"mlp.down_proj.weight", "ffn_down.weight"},
        {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"},
    };
    return GgufDecoderNames(rows);
  }

 private:
  RopeTable rope_;
  RopeTable window_rope_;
  Embedding embedding_;
  float embedding_scale_;
  ModuleList<Block> blocks_;
  NormModule norm_;
  LmHead head_;
  float final_cap_;
};

constexpr auto kGgufKeys = GgufDecoderKeys(
    kGgufIntermediate, GgufKeyRow{"rope_local_base_freq", "{arch}.rope.freq_base_swa"}, kGgufWindow,
    GgufKeyRow{"final_logit_softcapping", "{arch}.final_logit_softcapping"});

}  // namespace

Status RegisterGemma3(Registrar& registrar) {
  ModelTraits traits = {.model_type = "gemma3_text",
                        .gguf_keys = kGgufKeys,
                        .skippable = {"*.rotary_emb.inv_freq"},
                        .base_prefix = "model."};
  registrar.Model<Gemma3ForCausalLM>("Gemma3ForCausalLM", ModelKind::kCausalLm, traits);
  registrar.Gguf("gemma3", [](const GgufMetadata&) { return std::string("Gemma3ForCausalLM"); });
  // With the part that reads images beside it, which text does not need.
  traits = {.model_type = "gemma3",
            .skippable = {"*.rotary_emb.inv_freq", "vision_tower.*", "multi_modal_projector.*",
                          "model.vision_tower.*", "model.multi_modal_projector.*"}};
  registrar.Model<Gemma3ForCausalLM>("Gemma3ForConditionalGeneration", ModelKind::kCausalLm,
                                     traits);
  return {};
}

}  // namespace tenon
