// Qwen3-Next (Hugging Face modeling_qwen3_next.py): on most layers the gated delta rule, which
// keeps a matrix per head instead of a cache; on every fourth attention whose output has a gate of
// its own; experts beside a shared one. The weights of its norms are stored as w of (1 + w).
#include <cmath>
#include <optional>

#include "tenon/modules/recurrent.h"
#include "tenon/ops/per_head.h"
#include "tenon/registry/registry.h"
#include "tenon/zoo/qwen.h"

namespace tenon {
namespace {

struct Qwen3NextConfig : QwenConfig {
  bool attention_bias = false;
  std::vector<bool> is_linear;  // by layer
  GatedDeltaSpec delta;
  int64_t conv_width = 4;
  QwenExperts experts;

  Qwen3NextConfig(ConfigReader& reader, Container container) {
    ReadCommon(reader, container,
               {.kv_heads = {"num_key_value_heads", 2}, .head_dim = {"head_dim", 256}});
    ReadRope(reader, *this, {.theta = 10000, .partial_rotary_factor = 0.25});
    attention_bias = reader.Bool("attention_bias", false).value;
    int64_t interval = 4;
    if (reader.Has("layer_types")) {
      reader.NotUsed("full_attention_interval", "layer_types counts");
    } else {
      interval = reader.Int("full_attention_interval", 4).value;
    }
    is_linear = ReadLayerTypes(reader, *this, {.yes = "linear_attention"},
                               [&](int64_t layer) { return (layer + 1) % interval != 0; });
    ReadDelta(reader);
    experts.Read(reader, *this,
                 {.count = 512, .per_token = 10, .intermediate = 512, .renormalise = true});
    experts.shared_intermediate = reader.Int("shared_expert_intermediate_size", 512).value;
  }

  void ReadDelta(ConfigReader& reader) {
    delta.key_heads = reader.Int("linear_num_key_heads", 16, kHeadCount).value;
    delta.value_heads = reader.Int("linear_num_value_heads", 32, kHeadCount).value;
    delta.key_dim = reader.Int("linear_key_head_dim", 128, kHeadCount).value;
    delta.value_dim = reader.Int("linear_value_head_dim", 128, kHeadCount).value;
    conv_width = reader.Int("linear_conv_kernel_dim", 4, kConvTaps).value;
    if (delta.value_heads % delta.key_heads != 0) {
      reader.Error("linear_num_value_heads", "must be a multiple of linear_num_key_heads");
      delta.value_heads = delta.key_heads;
    }
    if (2 * (keys() + values()) > kPositive.high) {
      reader.Error("linear_num_value_heads",
                   "key heads x their width and value heads x theirs are too large together: "
                   "twice their sum must be at most 2147483647");
      delta = {.key_heads = 1, .value_heads = 1, .key_dim = 1, .value_dim = 1};
    }
  }

  int64_t keys() const { return delta.key_heads * delta.key_dim; }
  int64_t values() const { return delta.value_heads * delta.value_dim; }

  NormOptions norm() const { return NormOf(hidden.value); }
  NormOptions NormOf(int64_t width) const {
    return {.width = width, .eps = static_cast<float>(norm_eps.value), .weight_offset = 1};
  }
};

// Rows of q are a head's queries, then its gate. (Qwen3NextAttention)
class GatedAttention {
 public:
  GatedAttention(const Scope& scope, const Qwen3NextConfig& c, const RopeTable& rope, int layer)
      : rope_(rope),
        core_(scope, LocalHeads(scope, c.Spec(layer))),
        qkv_(scope, "qkv_proj", c.hidden.value, Segments(c.Spec(layer), c.attention_bias),
             LinearShare::kRows),
        q_norm_(scope / "q_norm", c.NormOf(c.head_dim.value[layer])),
        k_norm_(scope / "k_norm", c.NormOf(c.head_dim.value[layer])),
        o_(scope / "o_proj", c.heads.value[layer] * c.head_dim.value[layer], c.hidden.value,
           c.attention_bias, LinearShare::kColumns) {}

  Value operator()(Forward& pass, const Value& x) const {
    const AttentionSpec& spec = core_.spec();
    const int64_t width = spec.head_dim;
    const Value qkv = qkv_(pass, x);
    const Value q_gate = qkv_.SegmentOf(qkv, 0).SplitLast(spec.heads, 2 * width);
    const QkvView view{q_norm_(pass, q_gate.Slice(2, 0, width)),
                       k_norm_(pass, qkv_.SegmentOf(qkv, 1).SplitLast(spec.kv_heads, width)),
                       qkv_.SegmentOf(qkv, 2).SplitLast(spec.kv_heads, width), pass.Angles(rope_)};
    const Value y = core_.Run(pass, view).SplitLast(spec.heads, width);
    const Value gate = q_gate.Slice(2, width, 2 * width);
    return o_(pass, GatedActivate(pass.tape(), Activation::kSigmoid, gate, y).MergeLast());
  }

 private:
  static std::vector<Segment> Segments(const AttentionSpec& spec, bool has_bias) {
    return {{"q_proj", 2 * spec.heads * spec.head_dim, has_bias, spec.heads},
            {"k_proj", spec.kv_heads * spec.head_dim, has_bias, spec.kv_heads},
            {"v_proj", spec.kv_heads * spec.head_dim, has_bias, spec.kv_heads}};
  }

  const RopeTable& rope_;
  AttentionCore core_;
  Linear qkv_;
  NormModule q_norm_;
  NormModule k_norm_;
  Linear o_;
};

// (Qwen3NextGatedDeltaNet)
class GatedDeltaNet : public Module {
 public:
  GatedDeltaNet(const Scope& scope, const Qwen3NextConfig& c, int layer)
      : Module(scope),
        spec_(c.delta),
        keys_(c.keys()),
        values_(c.values()),
        in_qkvz_(scope / "in_proj_qkvz", c.hidden.value, 2 * keys_ + 2 * values_),
        in_ba_(scope / "in_proj_ba", c.hidden.value, 2 * spec_.value_heads),
        conv_(scope / "conv1d", {.layer = layer,
                                 .channels = 2 * keys_ + values_,
                                 .width = c.conv_width,
                                 .activation = Activation::kSilu}),
        state_(scope, layer, StateBytesOf(spec_)),
        norm_(scope / "norm",
              {.width = spec_.value_dim, .eps = static_cast<float>(c.norm_eps.value)}),
        out_(scope / "out_proj", values_, c.hidden.value) {}

  void CreateWeights(LoadContext& context) override {
    for (const char* name : {".A_log", ".dt_bias"}) {
      AddParameter(context, path() + name, {spec_.value_heads}, Parameter::Form::kFloat32);
    }
  }
  void LinkWeights() override {
    spec_.a_log = parameters_[0].floats();
    spec_.dt_bias = parameters_[1].floats();
  }

  Value operator()(Forward& pass, const Value& x) const {
    const int64_t shared = spec_.value_heads / spec_.key_heads;
    const int64_t key = spec_.key_dim;
    const int64_t value = shared * spec_.value_dim;  // of the heads that share a key head
    // Rows of both projections: per key head q, k, v, z and b, a.
    const Value qkvz = in_qkvz_(pass, x).SplitLast(spec_.key_heads, 2 * key + 2 * value);
    const Value ba = in_ba_(pass, x).SplitLast(spec_.key_heads, 2 * shared);
    const Value mixed = conv_(pass, Ungrouped(pass, qkvz));
    const Value z = qkvz.Slice(2, 2 * key + value, 2 * key + 2 * value);
    const GatedDeltaInput input{mixed.Slice(1, 0, keys_).SplitLast(spec_.key_heads, key),
                                mixed.Slice(1, keys_, 2 * keys_).SplitLast(spec_.key_heads, key),
                                mixed.Slice(1, 2 * keys_, 2 * keys_ + values_)
                                    .SplitLast(spec_.value_heads, spec_.value_dim),
                                ba.Slice(2, shared, 2 * shared), ba.Slice(2, 0, shared)};
    const Value y =
        norm_(pass, GatedDelta(pass.tape(), spec_, input, state_.RunsOf(pass), state_.states()));
    const Value grouped = y.MergeLast().SplitLast(spec_.key_heads, value);
    return out_(pass, GatedActivate(pass.tape(), Activation::kSilu, z, grouped).MergeLast());
  }

 private:
  // The heads' q, k, v -> all q, all k, all v: the order of the convolution's channels.
  Value Ungrouped(Forward& pass, const Value& qkvz) const {
    const int64_t key = spec_.key_dim;
    const int64_t value = values_ / spec_.key_heads;
    const Value y = pass.tape().NewValue(DType::kF32, {qkvz.dim(0), 2 * keys_ + values_});
    const auto copy = [&](int64_t from, int64_t to, int64_t width) {
      const Value target = y.Slice(1, to, to + spec_.key_heads * width);
      CopyInto(pass.tape(), qkvz.Slice(2, from, from + width),
               target.SplitLast(spec_.key_heads, width));
    };
    copy(0, 0, key);
    copy(key, keys_, key);
    copy(2 * key, 2 * keys_, value);
    return y;
  }

  GatedDeltaSpec spec_;
  int64_t keys_;    // of all heads
  int64_t values_;  // of all heads
  Linear in_qkvz_;
  Linear in_ba_;
  CausalConvModule conv_;
  StateCache state_;
  NormModule norm_;
  Linear out_;
};

class Block {
 public:
  Block(const Scope& scope, const Qwen3NextConfig& c, const RopeTable& rope, int layer)
      : is_last_(layer + 1 == c.layers.value),
        mixer_norm_(scope / "input_layernorm", c.norm()),
        mlp_norm_(scope / "post_attention_layernorm", c.norm()),
        mlp_(scope / "mlp", c, layer) {
    if (c.is_linear[static_cast<size_t>(layer)]) {
      delta_.emplace(scope / "linear_attn", c, layer);
    } else {
      attention_.emplace(scope / "self_attn", c, rope, layer);
    }
  }

  void operator()(Forward& pass, Residual& x) const {
    const Value normed = mixer_norm_(pass, x);
    x.Add(delta_ ? (*delta_)(pass, normed) : (*attention_)(pass, normed));
    if (is_last_) x.KeepLogitRows(pass);
    mlp_.AddTo(pass, mlp_norm_(pass, x), x);
  }

 private:
  bool is_last_;
  NormModule mixer_norm_;
  std::optional<GatedDeltaNet> delta_;
  std::optional<GatedAttention> attention_;
  NormModule mlp_norm_;
  QwenSparseMlp<Qwen3NextConfig> mlp_;
};

class Qwen3NextForCausalLM final : public QwenModel<Qwen3NextConfig, Block> {
 public:
  using QwenModel::QwenModel;

  static NameTable Names(const Qwen3NextConfig& /*config*/, Container /*container*/) {
    return NameTable().WrapperPrefixes();
  }
};

}  // namespace

Status RegisterQwen3Next(Registrar& registrar) {
  registrar.Model<Qwen3NextForCausalLM>(
      "Qwen3NextForCausalLM", ModelKind::kCausalLm,
      {.model_type = "qwen3_next", .skippable = {"mtp.*"}, .base_prefix = "model."});
  return {};
}

}  // namespace tenon
