// Qwen 1.5 and 2 with experts (Hugging Face modeling_qwen2_moe.py): Qwen 2's attention; on the
// layers that have them experts chosen by softmax, beside a shared one behind a gate of its own.
#include "tenon/registry/registry.h"
#include "tenon/zoo/qwen.h"

namespace tenon {
namespace {

struct Qwen2MoeConfig : QwenConfig {
  bool qkv_bias = true;
  QwenExperts experts;

  Qwen2MoeConfig(ConfigReader& reader, Container container) {
    ReadCommon(reader, container, {.kv_heads = {"num_key_value_heads", 16}});
    ReadRope(reader, *this, {.theta = 10000});
    ReadWindows(reader,
                [](int64_t layer, int64_t border) { return layer % 2 == 0 && layer < border; });
    qkv_bias = reader.Bool("qkv_bias", true).value;
    experts.Read(reader, *this, {.count = 60, .per_token = 4, .intermediate = 1408});
    experts.shared_intermediate = reader.Int("shared_expert_intermediate_size", 5632).value;
  }

  SelfAttentionOptions Attention(int layer) const {
    return {.spec = Spec(layer), .hidden = hidden.value, .qkv_bias = qkv_bias};
  }
};

class Qwen2MoeForCausalLM final
    : public QwenModel<Qwen2MoeConfig, QwenBlock<Qwen2MoeConfig, QwenSparseMlp<Qwen2MoeConfig>>> {
 public:
  using QwenModel::QwenModel;

  static NameTable Names(const Qwen2MoeConfig& /*config*/, Container container) {
    std::vector<GgufName> rows = QwenExpertNames();
    rows.push_back({"self_attn.q_proj.bias", "attn_q.bias"});
    rows.push_back({"self_attn.k_proj.bias", "attn_k.bias"});
    rows.push_back({"self_attn.v_proj.bias", "attn_v.bias"});
    rows.push_back({"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"});
    rows.push_back({"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"});
    rows.push_back({"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight"});
    rows.push_back({"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight"});
    return QwenNames(container, std::move(rows));
  }
};

constexpr auto kGgufKeys = GgufDecoderKeys(
    kGgufIntermediate, kGgufPartialRotary, GgufKeyRow{"num_experts", "{arch}.expert_count"},
    GgufKeyRow{"num_experts_per_tok", "{arch}.expert_used_count"},
    GgufKeyRow{"moe_intermediate_size", "{arch}.expert_feed_forward_length"},
    GgufKeyRow{"shared_expert_intermediate_size", "{arch}.expert_shared_feed_forward_length"});

}  // namespace

Status RegisterQwen2Moe(Registrar& registrar) {
  registrar.Model<Qwen2MoeForCausalLM>(
      "Qwen2MoeForCausalLM", ModelKind::kCausalLm,
      {.model_type = "qwen2_moe", .gguf_keys = kGgufKeys, .base_prefix = "model."});
  registrar.Gguf("qwen2moe",
                 [](const GgufMetadata&) { return std::string("Qwen2MoeForCausalLM"); });
  return {};
}

}  // namespace tenon
