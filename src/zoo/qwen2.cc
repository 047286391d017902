// Qwen 1.5, 2 and 2.5 (Hugging Face modeling_qwen2.py): Llama's block with biases on q, k and v,
// and windows on the upper layers where the config turns them on.
#include "tenon/registry/registry.h"
#include "tenon/zoo/qwen.h"

namespace tenon {
namespace {

struct Qwen2Config : QwenConfig {
  Qwen2Config(ConfigReader& reader, Container container) {
    ReadCommon(reader, container, {.kv_heads = {"num_key_value_heads", 32}});
    ReadRope(reader, *this, {.theta = 10000});
    ReadWindows(reader, [](int64_t layer, int64_t border) { return layer >= border; });
  }

  SelfAttentionOptions Attention(int layer) const {
    return {.spec = Spec(layer), .hidden = hidden.value, .qkv_bias = true};
  }
};

class Qwen2ForCausalLM final : public QwenModel<Qwen2Config, QwenBlock<Qwen2Config, QwenDenseMlp>> {
 public:
  using QwenModel::QwenModel;

  static NameTable Names(const Qwen2Config& /*config*/, Container container) {
    return QwenNames(container, {{"self_attn.q_proj.bias", "attn_q.bias"},
                                 {"self_attn.k_proj.bias", "attn_k.bias"},
                                 {"self_attn.v_proj.bias", "attn_v.bias"}});
  }
};

constexpr auto kGgufKeys = GgufDecoderKeys(kGgufIntermediate, kGgufPartialRotary);

}  // namespace

Status RegisterQwen2(Registrar& registrar) {
  registrar.Model<Qwen2ForCausalLM>("Qwen2ForCausalLM", ModelKind::kCausalLm,
                                    {.model_type = "qwen2",
                                     .gguf_keys = kGgufKeys,
                                     .skippable = {"*.rotary_emb.inv_freq"},
                                     .base_prefix = "model."});
  registrar.Gguf("qwen2", [](const GgufMetadata&) { return std::string("Qwen2ForCausalLM"); });
  return {};
}

}  // namespace tenon
