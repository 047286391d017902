// What the Qwen family's files share: the config's common part, which layers have windows and which
// have experts, the MLPs and the model around a kind of block, names in GGUF files. For sources of
// src/zoo only. Not thread-safe while recording.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tenon/config/model_config.h"
#include "tenon/modules/attention.h"
#include "tenon/modules/embedding.h"
#include "tenon/modules/mlp.h"
#include "tenon/modules/model.h"
#include "tenon/modules/moe.h"
#include "tenon/ops/row_scale.h"
#include "tenon/zoo/gguf_decoder.h"

namespace tenon {

struct QwenConfig : ModelConfig {
  std::optional<int64_t> window;
  std::vector<bool> has_window;  // by layer

  NormOptions norm() const {
    return {.width = hidden.value, .eps = static_cast<float>(norm_eps.value)};
  }
  MlpOptions Mlp(int64_t width) const {
    return {.hidden = hidden.value, .intermediate = width, .activation = activation.value};
  }
  AttentionSpec Spec(int layer) const {
    const bool is_windowed = !has_window.empty() && has_window[static_cast<size_t>(layer)];
    return {.layer = layer,
            .heads = heads.value[layer],
            .kv_heads = kv_heads.value[layer],
            .head_dim = head_dim.value[layer],
            .v_head_dim = head_dim.value[layer],
            .scale = 1.0f / std::sqrt(static_cast<float>(head_dim.value[layer])),
            .window = is_windowed ? window : std::nullopt};
  }

 protected:
  void ReadCommon(ConfigReader& reader, Container container, const AttentionKeys& keys) {
    ReadIdentity(reader, *this);
    // A GGUF file has no flag: without an output tensor the embedding is the head.
    ReadSizes(reader, *this, {.tied = container == Container::kGguf});
    ReadAttentionGeometry(reader, *this, keys);
    ReadMaxPosition(reader, *this, {"max_position_embeddings", 32768});
    ReadMlp(reader, *this, {.default_activation = Activation::kSilu});
    ReadNormEps(reader, *this, "rms_norm_eps", 1e-6);
    ReadTokens(reader, *this);
  }

  // The window that use_sliding_window turns on, and its layers. by_default: where layer_types is
  // absent, for a layer and max_window_layers.
  void ReadWindows(ConfigReader& reader,
                   const std::function<bool(int64_t layer, int64_t border)>& by_default) {
    if (!reader.Bool("use_sliding_window", false).value) {
      reader.NotUsed("sliding_window", "use_sliding_window is off");
    } else if (!reader.IsNull("sliding_window")) {
      window = reader.Int("sliding_window", 4096).value;
    }
    int64_t border = 0;
    if (window && !reader.Has("layer_types")) {
      border = reader.Int("max_window_layers", 28, kNonNegative).value;
    } else {
      reader.NotUsed("max_window_layers", window ? "layer_types counts" : "there is no window");
    }
    has_window = ReadLayerTypes(reader, *this, {.yes = "sliding_attention"},
                                [&](int64_t layer) { return window && by_default(layer, border); });
    if (!window && std::find(has_window.begin(), has_window.end(), true) != has_window.end()) {
      reader.Error("layer_types",
                   "has sliding_attention, which needs use_sliding_window and a sliding_window");
    }
  }
};

// Experts of the layers that have some.
struct QwenExperts {
  std::vector<bool> on_layer;
  int64_t count = 1;
  int64_t per_token = 1;
  int64_t intermediate = 1;
  bool renormalise = false;
  int64_t shared_intermediate = 0;  // 0: no shared expert

  struct Defaults {
    int64_t count = 0;
    int64_t per_token = 0;
    int64_t intermediate = 0;
    bool renormalise = false;
  };
  // Every decoder_sparse_step-th layer but for mlp_only_layers.
  void Read(ConfigReader& reader, const ModelConfig& config, const Defaults& defaults) {
    const IntRange layer_index = {.low = 0, .high = config.layers.value - 1};
    const int64_t step = reader.Int("decoder_sparse_step", 1).value;
    const std::vector<int64_t> dense = reader.Ints("mlp_only_layers", {}, layer_index).value;
    for (int64_t layer = 0; layer < config.layers.value; ++layer) {
      const bool is_dense = std::find(dense.begin(), dense.end(), layer) != dense.end();
      on_layer.push_back(!is_dense && (layer + 1) % step == 0);
    }
    count =
        ReadExpertCount(reader, config, {"num_experts", "num_local_experts"}, defaults.count).value;
    const IntRange chosen = {.low = 1, .high = count};
    per_token = reader.Int("num_experts_per_tok", defaults.per_token, chosen).value;
    intermediate = reader.Int("moe_intermediate_size", defaults.intermediate).value;
    renormalise = reader.Bool("norm_topk_prob", defaults.renormalise).value;
  }

  MoeOptions Options(const ModelConfig& config) const {
    MoeOptions options;
    options.hidden = config.hidden.value;
    options.intermediate = intermediate;
    options.activation = config.activation.value;
    options.routing.experts = static_cast<int>(count);
    options.routing.top_k = static_cast<int>(per_token);
    options.routing.renormalise = renormalise;
    return options;
  }
};

class QwenDenseMlp : public GatedMlp {
 public:
  QwenDenseMlp(const Scope& scope, const QwenConfig& c, int layer)
      : GatedMlp(scope, c.Mlp(c.intermediate.value[layer])) {}
};

// An expert that sees every token, by sigmoid of one number of it.
class QwenSharedExpert {
 public:
  QwenSharedExpert(const Scope& scope, const QwenConfig& c, int64_t width)
      : mlp_(scope / "shared_expert", c.Mlp(width)),
        gate_(scope / "shared_expert_gate", c.hidden.value, 1) {
    gate_.KeepExact();
  }
  Value operator()(Forward& pass, const Value& x) const {
    const Value gate = Activate(pass.tape(), Activation::kSigmoid, gate_(pass, x));
    return ScaleRows(pass.tape(), mlp_(pass, x), gate);
  }

 private:
  GatedMlp mlp_;
  Linear gate_;
};

// Config: a QwenConfig with `QwenExperts experts`.
template <typename Config>
class QwenSparseMlp {
 public:
  QwenSparseMlp(const Scope& scope, const Config& c, int layer) {
    if (!c.experts.on_layer[static_cast<size_t>(layer)]) {
      dense_.emplace(scope, c, layer);
      return;
    }
    routed_.emplace(scope, c.experts.Options(c));
    if (c.experts.shared_intermediate > 0) shared_.emplace(scope, c, c.experts.shared_intermediate);
  }
  void AddTo(Forward& pass, const Value& normed, Residual& x) const {
    if (dense_) dense_->AddTo(pass, normed, x);
    if (routed_) x.Add((*routed_)(pass, normed));
    if (shared_) x.Add((*shared_)(pass, normed));
  }

 private:
  std::optional<QwenDenseMlp> dense_;
  std::optional<Moe> routed_;
  std::optional<QwenSharedExpert> shared_;
};

// Config: a QwenConfig with Attention(layer), the options but for the rope.
template <typename Config, typename Mlp>
class QwenBlock {
 public:
  QwenBlock(const Scope& scope, const Config& c, const RopeTable& rope, int layer)
      : is_last_(layer + 1 == c.layers.value),
        attention_norm_(scope / "input_layernorm", c.norm()),
        attention_(scope / "self_attn", WithRope(c.Attention(layer), rope)),
        mlp_norm_(scope / "post_attention_layernorm", c.norm()),
        mlp_(scope / "mlp", c, layer) {}

  void operator()(Forward& pass, Residual& x) const {
    x.Add(attention_(pass, attention_norm_(pass, x)));
    if (is_last_) x.KeepLogitRows(pass);
    mlp_.AddTo(pass, mlp_norm_(pass, x), x);
  }

 private:
  static SelfAttentionOptions WithRope(SelfAttentionOptions options, const RopeTable& rope) {
    options.rope = &rope;
    return options;
  }

  bool is_last_;
  NormModule attention_norm_;
  SelfAttention attention_;
  NormModule mlp_norm_;
  Mlp mlp_;
};

template <typename ConfigType, typename Block>
class QwenModel : public Model {
 public:
  using Config = ConfigType;

  QwenModel(const Scope& scope, const Config& c)
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

 private:
  RopeTable rope_;
  Embedding embedding_;
  ModuleList<Block> blocks_;
  NormModule norm_;
  LmHead head_;
};

// What all files of the family have, and `more` of one architecture's layers.
inline NameTable QwenNames(Container container, std::vector<GgufName> more) {
  if (container != Container::kGguf) return NameTable().WrapperPrefixes();
  for (const GgufName& row : {GgufName{"post_attention_layernorm.weight", "ffn_norm.weight"},
                              GgufName{"self_attn.q_proj.weight", "attn_q.weight"},
                              GgufName{"self_attn.k_proj.weight", "attn_k.weight"},
                              GgufName{"mlp.gate_proj.weight", "ffn_gate.weight"},
                              GgufName{"mlp.up_proj.weight", "ffn_up.weight"},
                              GgufName{"mlp.down_proj.weight", "ffn_down.weight"}}) {
    more.push_back(row);
  }
  return GgufDecoderNames(more);
}
// The names of routed experts, each a slice of one tensor.
inline std::vector<GgufName> QwenExpertNames() {
  const Transform slice = {TransformStep::Slice(0, 1)};
  return {{"mlp.gate.weight", "ffn_gate_inp.weight"},
          {"mlp.experts.{}.gate_proj.weight", "ffn_gate_exps.weight", slice},
          {"mlp.experts.{}.up_proj.weight", "ffn_up_exps.weight", slice},
          {"mlp.experts.{}.down_proj.weight", "ffn_down_exps.weight", slice}};
}

}  // namespace tenon
