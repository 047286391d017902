// The Qwen family's GGUF files: the goldens under the names and keys that GGUF files have for them
// (llama.cpp, gguf-py's constants.py: MODEL_TENSORS and the converter of each), written out here.
#include <gtest/gtest.h>

#include <array>
#include <deque>

#include "checkpoint/fixtures.h"
#include "plan/wish.h"
#include "support/golden.h"
#include "support/isa.h"
#include "tenon/checkpoint/writers.h"
#include "tenon/engine/model_runner.h"

namespace tenon {
namespace {

struct Case {
  const char* golden;
  const char* architecture;
  bool has_experts = false;
  bool has_shared_expert = false;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.golden; }

constexpr std::array<std::pair<std::string_view, std::string_view>, 20> kParts = {{
    {"model.layers.", "blk."},
    {"model.embed_tokens.", "token_embd."},
    {"model.norm.", "output_norm."},
    {"lm_head.", "output."},
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate.", "ffn_gate_inp."},
}};

std::string GgufName(std::string name) {
  for (const auto& [from, to] : kParts) {
    const size_t at = name.find(from);
    if (at != std::string::npos) name.replace(at, from.size(), to);
  }
  return name;
}

class Conversion {
 public:
  explicit Conversion(const Case& c)
      : case_(c),
        from_(*Checkpoint::Open(test::DataPath(std::string("goldens/") + c.golden))),
        config_(
            *ReadJsonFile(test::DataPath(std::string("goldens/") + c.golden + "/config.json"))) {}

  Status Write(const std::string& path) {
    for (const StoredTensor& tensor : from_->tensors()) {
      const std::string name(tensor.name);
      const size_t expert = name.find(".experts.");
      if (expert == std::string::npos) {
        TensorView view = *from_->MapTensor(tensor);
        // The converter drops dimensions of one.
        if (name.ends_with("shared_expert_gate.weight")) {
          view = TensorView(view.dtype(), {view.dim(1)}, view.data());
        }
        tensors_.push_back(OutputTensor::Of(GgufName(name), view));
      } else if (name.find(".experts.0.") != std::string::npos) {
        AddExperts(name, expert, tensor);
      }
    }
    return WriteGguf(path, Metadata(), tensors_);
  }

 private:
  int64_t Number(const char* key) const { return config_.Find(key)->as_int(); }

  // One tensor of all experts: "blk.1.ffn_gate_exps.weight".
  void AddExperts(const std::string& name, size_t at, const StoredTensor& first) {
    const std::string layer = name.substr(0, at);
    const std::string rest = name.substr(at + std::string_view(".experts.0").size());
    const int64_t experts = Number("num_experts");
    std::string& bytes = stacked_.emplace_back();
    for (int64_t e = 0; e < experts; ++e) {
      const StoredTensor* one = from_->FindTensor(layer + ".experts." + std::to_string(e) + rest);
      const TensorView view = *from_->MapTensor(*one);
      bytes.append(reinterpret_cast<const char*>(view.data()), static_cast<size_t>(view.bytes()));
    }
    const std::string matrix = rest.substr(1, rest.find("_proj") - 1);
    const std::string block = layer.substr(std::string_view("model.layers.").size());
    const Shape& shape = first.shape;
    tensors_.push_back(OutputTensor::Of(
        "blk." + block.substr(0, block.find('.')) + ".ffn_" + matrix + "_exps.weight",
        TensorView(first.dtype, {experts, shape.dim(0), shape.dim(1)},
                   reinterpret_cast<const std::byte*>(bytes.data()))));
  }

  GgufBuilder Metadata() const {
    const std::string prefix = std::string(case_.architecture) + ".";
    GgufBuilder metadata;
    const auto number = [&](const char* key, const char* config_key) {
      metadata.SetUint32(prefix + key, static_cast<uint32_t>(Number(config_key)));
    };
    metadata.SetString("general.architecture", case_.architecture);
    number("block_count", "num_hidden_layers");
    number("context_length", "max_position_embeddings");
    number("embedding_length", "hidden_size");
    number("feed_forward_length", "intermediate_size");
    number("attention.head_count", "num_attention_heads");
    number("attention.head_count_kv", "num_key_value_heads");
    number("vocab_size", "vocab_size");
    if (config_.Find("head_dim") != nullptr) {
      number("attention.key_length", "head_dim");
      number("attention.value_length", "head_dim");
    }
    metadata.SetFloat32(prefix + "attention.layer_norm_rms_epsilon",
                        static_cast<float>(config_.Find("rms_norm_eps")->as_double()));
    metadata.SetFloat32(prefix + "rope.freq_base",
                        static_cast<float>(config_.Find("rope_theta")->as_double()));
    if (case_.has_experts) {
      number("expert_count", "num_experts");
      number("expert_used_count", "num_experts_per_tok");
      number("expert_feed_forward_length", "moe_intermediate_size");
    }
    if (case_.has_shared_expert) {
      number("expert_shared_feed_forward_length", "shared_expert_intermediate_size");
    }
    return metadata;
  }

  Case case_;
  std::unique_ptr<Checkpoint> from_;
  Json config_;
  std::deque<std::string> stacked_;
  std::vector<OutputTensor> tensors_;
};

class QwenGguf : public testing::TestWithParam<Case> {};

TEST_P(QwenGguf, Logits) {
  const test::TempDir directory;
  const std::string path = directory / "m.gguf";
  const Status written = Conversion(GetParam()).Write(path);
  ASSERT_TRUE(written.ok()) << written.message();
  auto plan = test::PlanPath(path, {.isa = std::string(NameOf(test::TestIsa()))});
  ASSERT_TRUE(plan.ok()) << plan.message();
  auto runner = ModelRunner::Load(*std::move(plan));
  ASSERT_TRUE(runner.ok()) << runner.message();
  const test::Golden golden(test::DataPath(std::string("goldens/") + GetParam().golden));
  for (const test::GoldenPrompt& prompt : golden.prompts) {
    ASSERT_TRUE((*runner)->Reset().ok());
    ASSERT_TRUE((*runner)->Extend(prompt.input_ids, WantLogits::kAll).ok());
    ASSERT_EQ((*runner)->logits().size(), prompt.logits.size());
    EXPECT_LE(test::Compare((*runner)->logits(), prompt.logits, golden.rtol).worst, golden.atol);
  }
}

INSTANTIATE_TEST_SUITE_P(All, QwenGguf,
                         testing::Values(Case{"qwen2", "qwen2"}, Case{"qwen3", "qwen3"},
                                         Case{"qwen2_moe", "qwen2moe", true, true},
                                         Case{"qwen3_moe", "qwen3moe", true}),
                         [](const auto& info) { return std::string(info.param.golden); });

}  // namespace
}  // namespace tenon
