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
    std::vector<QwenGgufName> rows = QwenExpertNames();
    rows.push_back({"self_attn.q_proj.bias", "attn_q.bias"});
    rows.push_back({"self_attn.k_proj.bias", "attn_k.bias"});
    rows.push_back({"self_attn.v_proj.bias", "attn_v.bias"});
    rows.push_back({"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"});
    rows.push_back({"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"});
    rows.push_back({"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight"});
    rows.push_back({"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight"});
    return QwenNames(container, rows);
  }
};

constexpr GgufKeyRow kGgufKeys[] = {
    {"vocab_size", "{arch}.vocab_size"},
    {"vocab_size", "tokenizer.ggml.tokens.length"},
    {"hidden_size", "{arch}.embedding_length"},
    {"num_hidden_layers", "{arch}.block_count"},
    {"intermediate_size", "{arch}.feed_forward_length"},
    {"num_attention_heads", "{arch}.attention.head_count"},
    {"num_key_value_heads", "{arch}.attention.head_count_kv"},
    {"head_dim", "{arch}.attention.key_length"},
    {"partial_rotary_factor", "{arch}.rope.dimension_count", GgufPartialRotary},
    {"max_position_embeddings", "{arch}.context_length"},
    {"rms_norm_eps", "{arch}.attention.layer_norm_rms_epsilon"},
    {"rope_theta", "{arch}.rope.freq_base"},
    {"num_experts", "{arch}.expert_count"},
    {"num_experts_per_tok", "{arch}.expert_used_count"},
    {"moe_intermediate_size", "{arch}.expert_feed_forward_length"},
    {"shared_expert_intermediate_size", "{arch}.expert_shared_feed_forward_length"},
    {"bos_token_id", "tokenizer.ggml.bos_token_id"},
    {"eos_token_id", "tokenizer.ggml.eos_token_id"},
};

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
