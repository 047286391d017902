// Mamba-2 (Dao and Gu 2024; Hugging Face modeling_mamba2.py): a recurrent model without attention.
#include <limits>

#include "tenon/modules/embedding.h"
#include "tenon/modules/recurrent.h"
#include "tenon/registry/registry.h"

namespace tenon {
namespace {

struct Mamba2Config : ModelConfig {
  int64_t inner_heads = 1;
  int64_t inner_head_dim = 1;
  int64_t groups = 1;
  int64_t state_size = 1;
  int64_t conv_width = 1;
  bool conv_bias = true;
  bool proj_bias = false;
  double dt_min = 0;
  double dt_max = std::numeric_limits<double>::infinity();

  Mamba2Config(ConfigReader& reader, Container /*container*/) {
    ReadIdentity(reader, *this);
    ReadSizes(reader, *this);
    activation = ReadActivation(reader, "hidden_act", Activation::kSilu);
    ReadNormEps(reader, *this, "layer_norm_epsilon", 1e-5);
    ReadTokens(reader, *this);
    inner_heads = reader.Int("num_heads", 128, kHeadCount).value;
    inner_head_dim = reader.Int("head_dim", 64, kHeadCount).value;
    groups = reader.Int("n_groups", 8, kHeadCount).value;
    state_size = reader.Int("state_size", 128, kHeadCount).value;
    conv_width = reader.Int("conv_kernel", 4, kConvTaps).value;
    conv_bias = reader.Bool("use_conv_bias", true).value;
    proj_bias = reader.Bool("use_bias", false).value;
    const double infinity = std::numeric_limits<double>::infinity();
    const std::vector<double> limits =
        reader.Doubles("time_step_limit", {0, infinity}, {.low = 0}).value;
    if (limits.size() == 2) {
      dt_min = limits[0];
      dt_max = limits[1];
    } else {
      reader.Error("time_step_limit", "allowed: two numbers, the smallest and the largest step");
    }
    const int64_t expand = reader.Int("expand", 2).value;
    if (expand * hidden.value != inner_heads * inner_head_dim && reader.ok()) {
      reader.Error("num_heads", "times head_dim must be expand times hidden_size");
    }
    if (inner_heads % groups != 0) {
      reader.Error("n_groups", "must divide num_heads");
      groups = 1;
    }
    // The reference reads none of these at inference.
    reader.Ignore({"chunk_size", "norm_before_gate", "rms_norm", "time_step_*", "residual_in_fp32",
                   "rescale_prenorm_residual"});
  }

  NormOptions norm() const {
    return {.width = hidden.value, .eps = static_cast<float>(norm_eps.value)};
  }
  Mamba2Options Mixer(int layer) const {
    return {.layer = layer,
            .hidden = hidden.value,
            .heads = inner_heads,
            .head_dim = inner_head_dim,
            .groups = groups,
            .state_size = state_size,
            .conv_width = conv_width,
            .conv_bias = conv_bias,
            .proj_bias = proj_bias,
            .activation = activation.value,
            .dt_min = static_cast<float>(dt_min),
            .dt_max = static_cast<float>(dt_max),
            .norm_eps = static_cast<float>(norm_eps.value),
            .norm_group = inner_heads * inner_head_dim / groups};
  }
};

class Block {
 public:
  Block(const Scope& scope, const Mamba2Config& c, int layer)
      : norm_(scope / "norm", c.norm()), mixer_(scope / "mixer", c.Mixer(layer)) {}
  void operator()(Forward& pass, Residual& x) const { x.Add(mixer_(pass, norm_(pass, x))); }

 private:
  NormModule norm_;
  Mamba2Mixer mixer_;
};

class Mamba2ForCausalLM final : public Model {
 public:
  using Config = Mamba2Config;

  Mamba2ForCausalLM(const Scope& scope, const Mamba2Config& c)
      : Model(scope),
        embedding_(scope / "backbone" / "embeddings", c.vocab.value, c.hidden.value),
        blocks_(scope / "backbone" / "layers", c.layers.value, c),
        norm_(scope / "backbone" / "norm_f", c.norm()),
        head_(scope / "lm_head", embedding_, c.tie_embeddings.value) {}

  Value Forward(tenon::Forward& pass) const override {
    Residual x(embedding_(pass, pass.layout().token_ids));
    RunBlocks(pass, blocks_, x);
    return head_(pass, LogitRows(pass, norm_(pass, x)));
  }

  static NameTable Names(const Mamba2Config& /*config*/, Container /*container*/) {
    NameTable names;
    names.WrapperPrefixes();
    // The authors' own checkpoints say embedding where Hugging Face says embeddings.
    names.Add("backbone.embeddings.weight", "backbone.embedding.weight");
    return names;
  }

 private:
  Embedding embedding_;
  ModuleList<Block> blocks_;
  NormModule norm_;
  LmHead head_;
};

}  // namespace

Status RegisterMamba2(Registrar& registrar) {
  registrar.Model<Mamba2ForCausalLM>("Mamba2ForCausalLM", ModelKind::kCausalLm,
                                     {.model_type = "mamba2", .base_prefix = "backbone."});
  return {};
}

}  // namespace tenon
