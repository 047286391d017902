// T5 and T5 v1.1 (Raffel et al. 2020; Hugging Face modeling_t5.py): encoder-decoder with a learned
// bias by bucketed distance, shared by all layers of a stack, and no attention scale.
#include <cmath>
#include <optional>

#include "tenon/modules/attention.h"
#include "tenon/modules/embedding.h"
#include "tenon/modules/mlp.h"
#include "tenon/registry/registry.h"

namespace tenon {
namespace {

struct T5Config : ModelConfig {
  int64_t decoder_layers = 1;
  int64_t inner = 1;  // of the feed-forward part
  int64_t buckets = 32;
  int64_t max_distance = 128;
  bool gated = false;

  T5Config(ConfigReader& reader, Container /*container*/) {
    ReadIdentity(reader, *this);
    ReadSizes(reader, *this, {.hidden = {"d_model"}, .layers = {"num_layers"}, .tied = true});
    ReadAttentionGeometry(reader, *this,
                          {.heads = {"num_heads"}, .kv_heads = {Keys()}, .head_dim = {"d_kv"}});
    RequireAlike(reader, "num_heads", heads);
    RequireAlike(reader, "d_kv", head_dim);
    inner = reader.RequireInt("d_ff").value;
    ReadTokens(reader, *this);
    decoder_layers = reader.Int("num_decoder_layers", layers.value, kLayerCount).value;
    decoder_start = reader.IntOrNull("decoder_start_token_id", kNonNegative);
    ReadNormEps(reader, *this, "layer_norm_epsilon", 1e-6);
    buckets = reader.Int("relative_attention_num_buckets", 32, {.low = 2, .high = 1 << 16}).value;
    max_distance =
        reader.Int("relative_attention_max_distance", 128, {.low = 1, .high = 1 << 24}).value;
    ReadFeedForward(reader);
    reader.Ignore({"is_encoder_decoder", "is_gated_act", "dense_act_fn", "layer_norm_eps",
                   "feed_forward_proj"});
  }

  // "relu" or "gated-gelu"; of the gated form gelu means the tanh approximation.
  void ReadFeedForward(ConfigReader& reader) {
    const std::string text = reader.String("feed_forward_proj", "relu").value;
    gated = text.starts_with("gated-");
    const std::string name = gated ? text.substr(6) : text;
    if (name == "relu") {
      activation.value = Activation::kRelu;
    } else if (name == "gelu") {
      activation.value = gated ? Activation::kGeluTanh : Activation::kGelu;
    } else if (name == "silu") {
      activation.value = Activation::kSilu;
    } else if (name == "gelu_new") {
      activation.value = Activation::kGeluTanh;
    } else {
      reader.Error("feed_forward_proj",
                   "is '" + text + "', allowed: [gated-]relu, gelu, silu, gelu_new");
    }
  }

  NormOptions norm() const {
    return {.width = hidden.value, .eps = static_cast<float>(norm_eps.value)};
  }
  AttentionSpec Attention(int layer, AttentionKind kind) const {
    return {.layer = layer,
            .kind = kind,
            .heads = heads.value[0],
            .kv_heads = heads.value[0],
            .head_dim = head_dim.value[0],
            .v_head_dim = head_dim.value[0],
            .scale = 1.0f};
  }
};

// The bias table of a stack, kept by its first layer in the checkpoint.
class DistanceBias : public Module {
 public:
  DistanceBias(const Scope& scope, const T5Config& c, bool bidirectional)
      : Module(scope), buckets_(c.buckets), heads_(c.heads.value[0]) {
    bias_ = {&table_, static_cast<int>(c.buckets), static_cast<int>(c.max_distance), bidirectional};
  }
  void CreateWeights(LoadContext& context) override {
    AddParameter(context, path() + ".weight", {buckets_, heads_}, Parameter::Form::kFloat32);
  }
  void LinkWeights() override { table_ = parameters_[0].floats(); }
  const RelativeBias& bias() const { return bias_; }

 private:
  int64_t buckets_;
  int64_t heads_;
  const float* table_ = nullptr;  // [buckets, heads]
  RelativeBias bias_;
};

class T5SelfAttention {
 public:
  T5SelfAttention(const Scope& scope, const T5Config& c, AttentionSpec spec,
                  const DistanceBias& bias)
      : core_(scope, WithBias(spec, bias)),
        qkv_(scope, "qkv", c.hidden.value,
             {{"q", Width(spec)}, {"k", Width(spec)}, {"v", Width(spec)}}),
        o_(scope / "o", Width(spec), c.hidden.value) {}

  Value operator()(Forward& pass, const Value& x) const {
    const AttentionSpec& spec = core_.spec();
    const Value qkv = qkv_(pass, x);
    const auto part = [&](size_t i) {
      return qkv_.SegmentOf(qkv, i).SplitLast(spec.heads, spec.head_dim);
    };
    return o_(pass, core_.Run(pass, {part(0), part(1), part(2)}));
  }

 private:
  static AttentionSpec WithBias(AttentionSpec spec, const DistanceBias& bias) {
    spec.relative_bias = bias.bias();
    return spec;
  }
  static int64_t Width(const AttentionSpec& spec) { return spec.heads * spec.head_dim; }

  AttentionCore core_;
  Linear qkv_;
  Linear o_;
};

class T5CrossAttention {
 public:
  T5CrossAttention(const Scope& scope, const T5Config& c, int layer)
      : core_(scope, c.Attention(layer, AttentionKind::kCross)),
        q_(scope / "q", c.hidden.value, c.heads.value[0] * c.head_dim.value[0]),
        kv_(scope, "kv", c.hidden.value,
            {{"k", c.heads.value[0] * c.head_dim.value[0]},
             {"v", c.heads.value[0] * c.head_dim.value[0]}}),
        o_(scope / "o", c.heads.value[0] * c.head_dim.value[0], c.hidden.value) {}

  // Keys and values of the encoder's rows, into the cross cache.
  void Remember(Forward& pass, const Value& encoded) const {
    const AttentionSpec& spec = core_.spec();
    const Value kv = kv_(pass, encoded);
    core_.Run(pass, {Value(), kv_.SegmentOf(kv, 0).SplitLast(spec.heads, spec.head_dim),
                     kv_.SegmentOf(kv, 1).SplitLast(spec.heads, spec.head_dim)});
  }
  Value operator()(Forward& pass, const Value& x) const {
    const AttentionSpec& spec = core_.spec();
    return o_(pass, core_.Run(pass, {q_(pass, x).SplitLast(spec.heads, spec.head_dim), Value(),
                                     Value()}));
  }

 private:
  AttentionCore core_;
  Linear q_;
  Linear kv_;
  Linear o_;
};

class FeedForward {
 public:
  FeedForward(const Scope& scope, const T5Config& c) {
    MlpOptions options{.hidden = c.hidden.value,
                       .intermediate = c.inner,
                       .activation = c.activation.value,
                       .gate = "wi_0",
                       .up = c.gated ? "wi_1" : "wi",
                       .down = "wo"};
    if (c.gated) {
      gated_.emplace(scope / "DenseReluDense", options);
    } else {
      plain_.emplace(scope / "DenseReluDense", options);
    }
  }
  Value operator()(Forward& pass, const Value& x) const {
    return gated_ ? (*gated_)(pass, x) : (*plain_)(pass, x);
  }

 private:
  std::optional<GatedMlp> gated_;
  std::optional<PlainMlp> plain_;
};

class EncoderBlock {
 public:
  EncoderBlock(const Scope& scope, const T5Config& c, const DistanceBias& bias, int layer)
      : attention_norm_(scope / "layer" / 0 / "layer_norm", c.norm()),
        attention_(scope / "layer" / 0 / "SelfAttention", c,
                   c.Attention(layer, AttentionKind::kEncoder), bias),
        feed_norm_(scope / "layer" / 1 / "layer_norm", c.norm()),
        feed_(scope / "layer" / 1, c) {}

  void operator()(Forward& pass, Residual& x) const {
    x.Add(attention_(pass, attention_norm_(pass, x)));
    x.Add(feed_(pass, feed_norm_(pass, x)));
  }

 private:
  NormModule attention_norm_;
  T5SelfAttention attention_;
  NormModule feed_norm_;
  FeedForward feed_;
};

class DecoderBlock {
 public:
  DecoderBlock(const Scope& scope, const T5Config& c, const DistanceBias& bias, int layer)
      : attention_norm_(scope / "layer" / 0 / "layer_norm", c.norm()),
        attention_(scope / "layer" / 0 / "SelfAttention", c,
                   c.Attention(layer, AttentionKind::kDecoder), bias),
        cross_norm_(scope / "layer" / 1 / "layer_norm", c.norm()),
        cross_(scope / "layer" / 1 / "EncDecAttention", c, layer),
        feed_norm_(scope / "layer" / 2 / "layer_norm", c.norm()),
        feed_(scope / "layer" / 2, c) {}

  void operator()(Forward& pass, Residual& x) const {
    x.Add(attention_(pass, attention_norm_(pass, x)));
    x.Add(cross_(pass, cross_norm_(pass, x)));
    x.Add(feed_(pass, feed_norm_(pass, x)));
  }
  const T5CrossAttention& cross() const { return cross_; }

 private:
  NormModule attention_norm_;
  T5SelfAttention attention_;
  NormModule cross_norm_;
  T5CrossAttention cross_;
  NormModule feed_norm_;
  FeedForward feed_;
};

Scope BiasScope(const Scope& stack) {
  return stack / "block" / 0 / "layer" / 0 / "SelfAttention" / "relative_attention_bias";
}

class T5ForConditionalGeneration final : public Model {
 public:
  using Config = T5Config;

  T5ForConditionalGeneration(const Scope& scope, const T5Config& c)
      : Model(scope),
        shared_(scope / "shared", c.vocab.value, c.hidden.value),
        encoder_bias_(BiasScope(scope / "encoder"), c, /*bidirectional=*/true),
        encoder_(scope / "encoder" / "block", c.layers.value, c, encoder_bias_),
        encoder_norm_(scope / "encoder" / "final_layer_norm", c.norm()),
        decoder_bias_(BiasScope(scope / "decoder"), c, /*bidirectional=*/false),
        decoder_(scope / "decoder" / "block", c.decoder_layers, c, decoder_bias_),
        decoder_norm_(scope / "decoder" / "final_layer_norm", c.norm()),
        // An absent flag and an absent tensor both mean the shared matrix.
        head_(scope / "lm_head", shared_, c.tie_embeddings.value),
        scale_(c.tie_embeddings.value ? 1.0f / std::sqrt(static_cast<float>(c.hidden.value))
                                      : 1.0f) {}

  void Encode(tenon::Forward& pass) const override {
    Residual x(shared_(pass, pass.layout().token_ids));
    RunBlocks(pass, encoder_, x, "enc_");
    const Value encoded = encoder_norm_(pass, x);
    for (const DecoderBlock& block : decoder_) block.cross().Remember(pass, encoded);
  }

  Value Forward(tenon::Forward& pass) const override {
    Residual x(shared_(pass, pass.layout().token_ids));
    RunBlocks(pass, decoder_, x);
    const Value normed = LogitRows(pass, decoder_norm_(pass, x));
    return head_(pass, scale_ == 1.0f ? normed : Scale(pass.tape(), normed, scale_));
  }

  static NameTable Names(const T5Config& /*config*/, Container /*container*/) {
    return NameTable().WrapperPrefixes();
  }

 private:
  Embedding shared_;
  DistanceBias encoder_bias_;
  ModuleList<EncoderBlock> encoder_;
  NormModule encoder_norm_;
  DistanceBias decoder_bias_;
  ModuleList<DecoderBlock> decoder_;
  NormModule decoder_norm_;
  LmHead head_;
  float scale_;
};

}  // namespace

Status RegisterT5(Registrar& registrar) {
  registrar.Model<T5ForConditionalGeneration>(
      "T5ForConditionalGeneration", ModelKind::kEncoderDecoder,
      {.model_type = "t5",
       .skippable = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight",
                     "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"}});
  return {};
}

}  // namespace tenon
