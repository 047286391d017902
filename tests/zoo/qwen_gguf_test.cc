// The Qwen family's GGUF files: the goldens under the names and keys that GGUF files have for them
// (gguf-py's constants.py and llama.cpp's converter), written out here, give what their Hugging
// Face directories give.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <map>

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
  int sparse_layer = -1;  // the one with experts, which GGUF files have in all: kept alone
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

// A golden, or the one layer of it that has experts, as a file of either container.
class Model {
 public:
  explicit Model(const Case& c)
      : case_(c), from_(test::OpenOrDie(test::DataPath(std::string("goldens/") + c.golden))) {
    config_ = *from_->config();
    if (c.sparse_layer >= 0) {
      config_.Set("num_hidden_layers", 1);
      config_.Set("decoder_sparse_step", 1);
      config_.Set("mlp_only_layers", Json::Array{});
    }
    const std::string kept = "model.layers." + std::to_string(c.sparse_layer) + ".";
    for (const StoredTensor& tensor : from_->tensors()) {
      std::string name(tensor.name);
      if (c.sparse_layer >= 0 && name.starts_with("model.layers.")) {
        if (!name.starts_with(kept)) continue;
        name.replace(0, kept.size(), "model.layers.0.");
      }
      views_.emplace(std::move(name), *from_->MapTensor(tensor));
    }
  }

  Status WriteDirectory(test::TempDir& directory) const {
    directory.Write("config.json", config_.Dump());
    std::vector<OutputTensor> tensors;
    for (const auto& [name, view] : views_) tensors.push_back(OutputTensor::Of(name, view));
    return WriteSafetensors(directory / "model.safetensors", tensors);
  }

  Status WriteGguf(const std::string& path) {
    std::vector<OutputTensor> tensors;
    for (const auto& [name, view] : views_) {
      if (name.find(".experts.") == std::string::npos) {
        // The converter drops dimensions of one.
        const bool is_row = name.ends_with("shared_expert_gate.weight");
        const TensorView squeezed(view.dtype(), {view.dim(-1)}, view.data());
        tensors.push_back(OutputTensor::Of(GgufName(name), is_row ? squeezed : view));
      } else if (name.find(".experts.0.") != std::string::npos) {
        tensors.push_back(Stacked(name));
      }
    }
    return tenon::WriteGguf(path, Metadata(), tensors);
  }

 private:
  int64_t Number(const char* key) const { return config_.Find(key)->as_int(); }

  // The matrices of all experts in one tensor. first:
  // "model.layers.0.mlp.experts.0.up_proj.weight".
  OutputTensor Stacked(const std::string& first) {
    const size_t at = first.find(".0.", first.find(".experts."));
    const int64_t experts = Number("num_experts");
    std::string& bytes = stacked_.emplace_back();
    for (int64_t e = 0; e < experts; ++e) {
      std::string name = first;
      name.replace(at, 3, "." + std::to_string(e) + ".");
      const TensorView& view = views_.at(name);
      bytes.append(reinterpret_cast<const char*>(view.data()), static_cast<size_t>(view.bytes()));
    }
    const std::string matrix = first.substr(at + 3, first.find("_proj") - at - 3);
    const TensorView& view = views_.at(first);
    return OutputTensor::Of("blk.0.ffn_" + matrix + "_exps.weight",
                            TensorView(view.dtype(), {experts, view.dim(0), view.dim(1)},
                                       reinterpret_cast<std::byte*>(bytes.data())));
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
    if (case_.sparse_layer >= 0) {
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
  std::map<std::string, TensorView> views_;
  std::deque<std::string> stacked_;
};

Result<std::unique_ptr<ModelRunner>> Load(const std::string& path) {
  TN_ASSIGN_OR_RETURN(auto plan,
                      test::PlanPath(path, {.isa = std::string(NameOf(test::TestIsa()))}));
  return ModelRunner::Load(std::move(plan));
}

class QwenGguf : public testing::TestWithParam<Case> {};

TEST_P(QwenGguf, IsTheModelOfTheDirectory) {
  Model model(GetParam());
  test::TempDir directory;
  ASSERT_TRUE(model.WriteDirectory(directory).ok());
  const Status written = model.WriteGguf(directory / "m.gguf");
  ASSERT_TRUE(written.ok()) << written.message();
  const auto expected = Load(directory.path());
  ASSERT_TRUE(expected.ok()) << expected.message();
  const auto got = Load(directory / "m.gguf");
  ASSERT_TRUE(got.ok()) << got.message();
  const test::Golden golden(test::DataPath(std::string("goldens/") + GetParam().golden));
  for (const test::GoldenPrompt& prompt : golden.prompts) {
    for (const auto& runner : {got->get(), expected->get()}) {
      runner->Reset();
      ASSERT_TRUE(runner->Extend(prompt.input_ids, WantLogits::kAll).ok());
    }
    ASSERT_EQ((*got)->logits().size(), prompt.logits.size());
    EXPECT_LE(test::Compare((*got)->logits(), (*expected)->logits(), 1e-6).worst, 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(All, QwenGguf,
                         testing::Values(Case{"qwen2", "qwen2"}, Case{"qwen3", "qwen3"},
                                         Case{"qwen2_moe", "qwen2moe", 1, true},
                                         Case{"qwen3_moe", "qwen3moe", 0}),
                         [](const auto& info) { return std::string(info.param.golden); });

}  // namespace
}  // namespace tenon
