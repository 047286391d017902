// LFM2 (Hugging Face modeling_lfm2.py): short gated convolutions on most layers, grouped attention
// with head norms on the others.
#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "tenon/modules/attention.h"
#include "tenon/modules/embedding.h"
#include "tenon/modules/mlp.h"
#include "tenon/modules/recurrent.h"
#include "tenon/registry/registry.h"

namespace tenon {
namespace {

struct Lfm2Config : ModelConfig {
  int64_t inner = 1;               // of the feed-forward part
  std::vector<bool> is_attention;  // by layer
  int64_t conv_width = 3;
  bool conv_bias = false;

  Lfm2Config(ConfigReader& reader, Container /*container*/) {
    ReadIdentity(reader, *this);
    ReadSizes(reader, *this,
              {.tie_embeddings = {"tie_embedding", "tie_word_embeddings"}, .tied = true});
    ReadAttentionGeometry(reader, *this);
    ReadMaxPosition(reader, *this, {"max_position_embeddings", 128000});
    ReadNormEps(reader, *this, {"norm_eps", "block_norm_eps"}, 1e-5);
    ReadTokens(reader, *this);
    ReadRope(reader, *this, {.theta = 1e6});
    inner = reader.RequireInt({"block_ff_dim", "intermediate_size"}).value;
    conv_width = reader.Int("conv_L_cache", 3, kConvTaps).value;
    conv_bias = reader.Bool("conv_bias", false).value;
    ReadLayerKinds(reader);
    AdjustIntermediate(reader);
    reader.Ignore({"block_dim", "block_mlp_init_scale", "block_out_init_scale", "block_use_*",
                   "conv_dim*", "num_heads", "use_pos_enc", "full_attn_idxs", "theta"});
  }

  void ReadLayerKinds(ConfigReader& reader) {
    std::set<int64_t> listed;
    const bool is_listed = !reader.Has("layer_types") && reader.Has("full_attn_idxs");
    if (is_listed) {
      for (const int64_t i :
           reader.Ints("full_attn_idxs", {}, {.low = 0, .high = layers.value - 1}).value) {
        listed.insert(i);
      }
    }
    is_attention =
        ReadLayerTypes(reader, *this, {.yes = "full_attention", .no = "conv"},
                       [&](int64_t layer) { return !is_listed || listed.contains(layer); });
  }

  // Lfm2MLP: two thirds of the stated width, scaled, rounded up to a multiple.
  void AdjustIntermediate(ConfigReader& reader) {
    const bool adjust = reader.Bool("block_auto_adjust_ff_dim", true).value;
    const int64_t multiple = reader.Int("block_multiple_of", 256).value;
    const std::optional<double> multiplier =
        reader.DoubleOrNull("block_ffn_dim_multiplier", kPositiveReal).value;
    if (!adjust) return;
    const int64_t two_thirds = 2 * inner / 3;
    const double scaled = static_cast<double>(two_thirds) * multiplier.value_or(1);
    if (scaled < 1 || scaled > static_cast<double>(kPositive.high)) {
      reader.Error("block_ff_dim",
                   "times 2/3 and block_ffn_dim_multiplier must be from 1 to 2147483647");
      return;
    }
    const int64_t width = (static_cast<int64_t>(scaled) + multiple - 1) / multiple * multiple;
    reader.RecordDerived("intermediate", width, "block_auto_adjust_ff_dim");
    inner = width;
  }

  NormOptions norm() const {
    return {.width = hidden.value, .eps = static_cast<float>(norm_eps.value)};
  }
  SelfAttentionOptions Attention(int layer, const RopeTable& table) const {
    SelfAttentionOptions options;
    options.spec = {.layer = layer,
                    .heads = heads.value[layer],
                    .kv_heads = kv_heads.value[layer],
                    .head_dim = head_dim.value[layer],
                    .v_head_dim = head_dim.value[layer],
                    .scale = 1.0f / std::sqrt(static_cast<float>(head_dim.value[layer]))};
    options.hidden = hidden.value;
    options.rope = &table;
    options.head_norm =
        NormOptions{.width = head_dim.value[layer], .eps = static_cast<float>(norm_eps.value)};
    options.o = "out_proj";
    options.q_norm = "q_layernorm";
    options.k_norm = "k_layernorm";
    return options;
  }
};

class Block {
 public:
  Block(const Scope& scope, const Lfm2Config& c, const RopeTable& rope, int layer)
      : operator_norm_(scope / "operator_norm", c.norm()),
        mlp_norm_(scope / "ffn_norm", c.norm()),
        mlp_(scope / "feed_forward", {.hidden = c.hidden.value,
                                      .intermediate = c.inner,
                                      .gate = "w1",
                                      .up = "w3",
                                      .down = "w2"}) {
    if (c.is_attention[static_cast<size_t>(layer)]) {
      attention_.emplace(scope / "self_attn", c.Attention(layer, rope));
    } else {
      conv_.emplace(scope / "conv", ShortConvOptions{.layer = layer,
                                                     .hidden = c.hidden.value,
                                                     .width = c.conv_width,
                                                     .has_bias = c.conv_bias});
    }
  }

  void operator()(Forward& pass, Residual& x) const {
    const Value normed = operator_norm_(pass, x);
    x.Add(attention_ ? (*attention_)(pass, normed) : (*conv_)(pass, normed));
    x.Add(mlp_(pass, mlp_norm_(pass, x)));
  }

 private:
  NormModule operator_norm_;
  std::optional<SelfAttention> attention_;
  std::optional<ShortConv> conv_;
  NormModule mlp_norm_;
  GatedMlp mlp_;
};

class Lfm2ForCausalLM final : public Model {
 public:
  using Config = Lfm2Config;

  Lfm2ForCausalLM(const Scope& scope, const Lfm2Config& c)
      : Model(scope),
        rope_(scope, c.rope.value, RotaryDim(c.rope.value, c.head_dim.value[0]),
              c.max_position.value),
        embedding_(scope / "model" / "embed_tokens", c.vocab.value, c.hidden.value),
        blocks_(scope / "model" / "layers", c.layers.value, c, rope_),
        norm_(scope / "model" / "embedding_norm", c.norm()),
        head_(scope / "lm_head", embedding_, c.tie_embeddings.value) {}

  Value Forward(tenon::Forward& pass) const override {
    Residual x(embedding_(pass, pass.layout().token_ids));
    RunBlocks(pass, blocks_, x);
    return head_(pass, LogitRows(pass, norm_(pass, x)));
  }

  static NameTable Names(const Lfm2Config& /*config*/, Container /*container*/) {
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

Status RegisterLfm2(Registrar& registrar) {
  registrar.Model<Lfm2ForCausalLM>("Lfm2ForCausalLM", ModelKind::kCausalLm,
                                   {.model_type = "lfm2", .base_prefix = "model."});
  return {};
}

}  // namespace tenon
