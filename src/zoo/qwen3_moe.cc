// Qwen 3 with experts (Hugging Face modeling_qwen3_moe.py): Qwen 3's attention, whose window is
// every layer's or none's; on the layers that have them experts chosen by softmax.
#include "tenon/registry/registry.h"
#include "tenon/zoo/qwen.h"

namespace tenon {
namespace {

struct Qwen3MoeConfig : QwenConfig {
  bool attention_bias = false;
  QwenExperts experts;

  Qwen3MoeConfig(ConfigReader& reader, Container container) {
    ReadCommon(reader, container, {.kv_heads = {"num_key_value_heads", 4}});
    ReadRope(reader, *this, {.theta = 10000});
    ReadWindows(reader, [](int64_t /*layer*/, int64_t /*border*/) { return true; });
    attention_bias = reader.Bool("attention_bias", false).value;
    // GGUF files do not say it: their weights are always divided by their sum.
    experts.Read(reader, *this,
                 {.count = 128,
                  .per_token = 8,
                  .intermediate = 768,
                  .renormalise = container == Container::kGguf});
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

class Qwen3MoeForCausalLM final
    : public QwenModel<Qwen3MoeConfig, QwenBlock<Qwen3MoeConfig, QwenSparseMlp<Qwen3MoeConfig>>> {
 public:
  using QwenModel::QwenModel;

  static NameTable Names(const Qwen3MoeConfig& /*config*/, Container container) {
    std::vector<GgufName> rows = QwenExpertNames();
    rows.push_back({"self_attn.q_norm.weight", "attn_q_norm.weight"});
    rows.push_back({"self_attn.k_norm.weight", "attn_k_norm.weight"});
    return QwenNames(container, std::move(rows));
  }
};

constexpr auto kGgufKeys = GgufDecoderKeys(
    kGgufIntermediate, kGgufPartialRotary, GgufKeyRow{"num_experts", "{arch}.expert_count"},
    GgufKeyRow{"num_experts_per_tok", "{arch}.expert_used_count"},
    GgufKeyRow{"moe_intermediate_size", "{arch}.expert_feed_forward_length"});

}  // namespace

Status RegisterQwen3Moe(Registrar& registrar) {
  registrar.Model<Qwen3MoeForCausalLM>(
      "Qwen3MoeForCausalLM", ModelKind::kCausalLm,
      {.model_type = "qwen3_moe", .gguf_keys = kGgufKeys, .base_prefix = "model."});
  registrar.Gguf("qwen3moe",
                 [](const GgufMetadata&) { return std::string("Qwen3MoeForCausalLM"); });
  return {};
}

}  // namespace tenon
