// Gemma 1 and 2 (Hugging Face modeling_gemma.py, modeling_gemma2.py): the embedding times the
// square root of its width, norms that hold w of (1 + w), a GELU-gated MLP. Gemma 2 also norms what
// attention and MLP give, caps scores and logits, and sees a window in every other layer. GGUF
// files hold the norms as 1 + w.
#include <cmath>

#include "tenon/modules/attention.h"
#include "tenon/modules/embedding.h"
#include "tenon/modules/mlp.h"
#include "tenon/ops/activation.h"
#include "tenon/registry/registry.h"
#include "tenon/zoo/gguf_decoder.h"

namespace tenon {
namespace {

// The config class's defaults, where the two differ.
struct Sizes {
  int64_t hidden;
  int64_t layers;
  int64_t heads;
  int64_t kv_heads;
  int64_t intermediate;
  Keys activation;
};

struct GemmaConfig : ModelConfig {
  float norm_offset = 1;
  bool attention_bias = false;
  double final_cap = 0;  // of the logits; 0: none

  GemmaConfig(ConfigReader& reader, Container container)
      : GemmaConfig(reader, container,
                    {.hidden = 3072,
                     .layers = 28,
                     .heads = 16,
                     .kv_heads = 16,
                     .intermediate = 24576,
                     .activation = {"hidden_activation", "hidden_act"}}) {
    // Early files say "gelu" and mean the approximation they were trained with.
    if (activation.value == Activation::kGelu) activation.value = Activation::kGeluTanh;
  }

  GemmaConfig(ConfigReader& reader, Container container, const Sizes& sizes)
      : norm_offset(container == Container::kGguf ? 0 : 1) {
    ReadIdentity(reader, *this);
    ReadSizes(reader, *this,
              {.vocab = {"vocab_size", 256000},
               .hidden = {"hidden_size", sizes.hidden},
               .layers = {"num_hidden_layers", sizes.layers},
               .tied = true});
    ReadAttentionGeometry(reader, *this,
                          {.heads = {"num_attention_heads", sizes.heads},
                           .kv_heads = {"num_key_value_heads", sizes.kv_heads},
                           .head_dim = {"head_dim", 256}});
    ReadMaxPosition(reader, *this, {"max_position_embeddings", 8192});
    ReadMlp(reader, *this,
            {.intermediate = {"intermediate_size", sizes.intermediate},
             .activation = sizes.activation,
             .default_activation = Activation::kGeluTanh});
    ReadNormEps(reader, *this, "rms_norm_eps", 1e-6);
    ReadTokens(reader, *this);
    ReadRope(reader, *this, {.theta = 10000});
    attention_bias = reader.Bool("attention_bias", false).value;
    if (reader.Bool("use_bidirectional_attention", false).value) {
      reader.Error("use_bidirectional_attention", "allowed: false (a causal model)");
    }
  }

  NormOptions norm() const {
    return {.width = hidden.value,
            .eps = static_cast<float>(norm_eps.value),
            .weight_offset = norm_offset};
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
            .activation = activation.value};
  }
};

struct Gemma2Config : GemmaConfig {
  int64_t window = 4096;
  std::vector<bool> is_windowed;  // by layer
  double score_cap = 0;           // 0: none
  double query_scalar = 256;

  Gemma2Config(ConfigReader& reader, Container container)
      : GemmaConfig(reader, container,
                    {.hidden = 2304,
                     .layers = 26,
                     .heads = 8,
                     .kv_heads = 4,
                     .intermediate = 9216,
                     .activation = "hidden_activation"}) {
    reader.Ignore({"hidden_act"});
    window = reader.Int("sliding_window", 4096).value;
    is_windowed = ReadLayerTypes(reader, *this, {.yes = "sliding_attention"},
                                 [](int64_t layer) { return layer % 2 == 0; });
    score_cap = ReadCap(reader, "attn_logit_softcapping", 50);
    final_cap = ReadCap(reader, "final_logit_softcapping", 30);
    query_scalar = reader
                       .Double("query_pre_attn_scalar",
                               container == Container::kGguf ? ScalarOfGguf() : 256, kPositiveReal)
                       .value;
  }

  // Null turns the cap off; the default is for an absent key.
  static double ReadCap(ConfigReader& reader, const char* key, double fallback) {
    return reader.IsNull(key) ? 0 : reader.Double(key, fallback, kPositiveReal).value;
  }

  // No metadata says it: the 27B model alone, of 46 layers, differs (llama.cpp goes by that too).
  double ScalarOfGguf() const {
    constexpr int64_t kLayersOf27B = 46;
    return static_cast<double>(layers.value == kLayersOf27B ? hidden.value / heads.value[0]
                                                            : head_dim.value[0]);
  }

  AttentionSpec Attention(int layer) const {
    AttentionSpec spec = GemmaConfig::Attention(layer);
    spec.scale = static_cast<float>(1 / std::sqrt(query_scalar));
    spec.softcap = static_cast<float>(score_cap);
    if (is_windowed[static_cast<size_t>(layer)]) spec.window = window;
    return spec;
  }
};

template <typename Config>
SelfAttentionOptions AttentionOf(const Config& c, const RopeTable& rope, int layer) {
  return {.spec = c.Attention(layer),
          .hidden = c.hidden.value,
          .qkv_bias = c.attention_bias,
          .o_bias = c.attention_bias,
          .rope = &rope};
}

class GemmaBlock {
 public:
  GemmaBlock(const Scope& scope, const GemmaConfig& c, const RopeTable& rope, int layer)
      : is_last_(layer + 1 == c.layers.value),
        attention_norm_(scope / "input_layernorm", c.norm()),
        attention_(scope / "self_attn", AttentionOf(c, rope, layer)),
        mlp_norm_(scope / "post_attention_layernorm", c.norm()),
        mlp_(scope / "mlp", c.Mlp(layer)) {}

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

class Gemma2Block {
 public:
  Gemma2Block(const Scope& scope, const Gemma2Config& c, const RopeTable& rope, int layer)
      : is_last_(layer + 1 == c.layers.value),
        attention_norm_(scope / "input_layernorm", c.norm()),
        attention_(scope / "self_attn", AttentionOf(c, rope, layer)),
        after_attention_(scope / "post_attention_layernorm", c.norm()),
        mlp_norm_(scope / "pre_feedforward_layernorm", c.norm()),
        mlp_(scope / "mlp", c.Mlp(layer)),
        after_mlp_(scope / "post_feedforward_layernorm", c.norm()) {}

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

// Names of both, and `more` of one: of the norms they share the first.
NameTable NamesWith(Container container, std::vector<GgufName> more) {
  if (container != Container::kGguf) return NameTable().WrapperPrefixes();
  for (const GgufName& row : {GgufName{"self_attn.q_proj.weight", "attn_q.weight"},
                              GgufName{"self_attn.k_proj.weight", "attn_k.weight"},
                              GgufName{"mlp.gate_proj.weight", "ffn_gate.weight"},
                              GgufName{"mlp.up_proj.weight", "ffn_up.weight"},
                              GgufName{"mlp.down_proj.weight", "ffn_down.weight"}}) {
    more.push_back(row);
  }
  return GgufDecoderNames(more);
}

template <typename BlockConfig, typename Block>
class GemmaModel : public Model {
 public:
  using Config = BlockConfig;

  GemmaModel(const Scope& scope, const Config& c)
      : Model(scope),
        rope_(scope, c.rope.value, RotaryDim(c.rope.value, c.head_dim.value[0]),
              c.max_position.value),
        embedding_(scope / "model" / "embed_tokens", c.vocab.value, c.hidden.value),
        embedding_scale_(std::sqrt(static_cast<float>(c.hidden.value))),
        blocks_(scope / "model" / "layers", c.layers.value, c, rope_),
        norm_(scope / "model" / "norm", c.norm()),
        head_(scope / "lm_head", embedding_, c.tie_embeddings.value),
        final_cap_(static_cast<float>(c.final_cap)) {}

  Value Forward(tenon::Forward& pass) const override {
    Residual x(embedding_(pass, pass.layout().token_ids, embedding_scale_));
    RunBlocks(pass, blocks_, x);
    const Value logits = head_(pass, LogitRows(pass, norm_(pass, x)));
    return final_cap_ > 0 ? SoftCap(pass.tape(), logits, final_cap_) : logits;
  }

 private:
  RopeTable rope_;
  Embedding embedding_;
  float embedding_scale_;
  ModuleList<Block> blocks_;
  NormModule norm_;
  LmHead head_;
  float final_cap_;
};

class GemmaForCausalLM final : public GemmaModel<GemmaConfig, GemmaBlock> {
 public:
  using GemmaModel::GemmaModel;

  static NameTable Names(const GemmaConfig& /*config*/, Container container) {
    return NamesWith(container, {{"post_attention_layernorm.weight", "ffn_norm.weight"}});
  }
};

class Gemma2ForCausalLM final : public GemmaModel<Gemma2Config, Gemma2Block> {
 public:
  using GemmaModel::GemmaModel;

  static NameTable Names(const Gemma2Config& /*config*/, Container container) {
    return NamesWith(container, {{"post_attention_layernorm.weight", "post_attention_norm.weight"},
                                 {"pre_feedforward_layernorm.weight", "ffn_norm.weight"},
                                 {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"}});
  }
};

constexpr auto kGgufKeys =
    GgufDecoderKeys(kGgufIntermediate, kGgufWindow,
                    GgufKeyRow{"attn_logit_softcapping", "{arch}.attn_logit_softcapping"},
                    GgufKeyRow{"final_logit_softcapping", "{arch}.final_logit_softcapping"});

}  // namespace

Status RegisterGemma(Registrar& registrar) {
  ModelTraits traits = {.model_type = "gemma",
                        .gguf_keys = kGgufKeys,
                        .skippable = {"*.rotary_emb.inv_freq"},
                        .base_prefix = "model."};
  registrar.Model<GemmaForCausalLM>("GemmaForCausalLM", ModelKind::kCausalLm, traits);
  traits.model_type = "gemma2";
  registrar.Model<Gemma2ForCausalLM>("Gemma2ForCausalLM", ModelKind::kCausalLm, traits);
  registrar.Gguf("gemma", [](const GgufMetadata&) { return std::string("GemmaForCausalLM"); });
  registrar.Gguf("gemma2", [](const GgufMetadata&) { return std::string("Gemma2ForCausalLM"); });
  return {};
}

}  // namespace tenon
