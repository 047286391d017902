// Qwen 3 (Hugging Face modeling_qwen3.py): Llama's block with norms of q and k per head, and
// windows on the upper layers where the config turns them on.
#include "tenon/registry/registry.h"
#include "tenon/zoo/qwen.h"

namespace tenon {
namespace {

struct Qwen3Config : QwenConfig {
  bool attention_bias = false;

  Qwen3Config(ConfigReader& reader, Container container) {
    ReadCommon(reader, container,
               {.kv_heads = {"num_key_value_heads", 32}, .head_dim = {"head_dim", 128}});
    ReadRope(reader, *this, {.theta = 10000});
    ReadWindows(reader, [](int64_t layer, int64_t border) { return layer >= border; });
    attention_bias = reader.Bool("attention_bias", false).value;
  }

  SelfAttentionOptions Attention(int layer) const {
    SelfAttentionOptions options;
    options.spec = Spec(layer);
    options.hidden = hidden.value;
    options.qkv_bias = options.o_bias = attention_bias;
    options.head_norm =
        NormOptions{.width = options.spec.head_dim, .eps = static_cast<float>(norm_eps.value)};
    return options;
  }
};

class Qwen3ForCausalLM final : public QwenModel<Qwen3Config, QwenBlock<Qwen3Config, QwenDenseMlp>> {
 public:
  using QwenModel::QwenModel;

  static NameTable Names(const Qwen3Config& /*config*/, Container container) {
    return QwenNames(container, {{"self_attn.q_norm.weight", "attn_q_norm.weight"},
                                 {"self_attn.k_norm.weight", "attn_k_norm.weight"}});
  }
};

constexpr auto kGgufKeys = GgufDecoderKeys(kGgufIntermediate, kGgufPartialRotary);

}  // namespace

Status RegisterQwen3(Registrar& registrar) {
  registrar.Model<Qwen3ForCausalLM>(
      "Qwen3ForCausalLM", ModelKind::kCausalLm,
      {.model_type = "qwen3", .gguf_keys = kGgufKeys, .base_prefix = "model."});
  registrar.Gguf("qwen3", [](const GgufMetadata&) { return std::string("Qwen3ForCausalLM"); });
  return {};
}

}  // namespace tenon
