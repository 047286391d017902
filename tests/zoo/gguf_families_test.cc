// GGUF files of families without a golden file: goldens, written under the names, keys and layouts
// that GGUF files have for them (gguf-py's constants.py and llama.cpp's converters), give what
// their Hugging Face directories give. What no metadata says is left at its default on both sides.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <functional>
#include <numbers>

#include "checkpoint/fixtures.h"
#include "plan/edited.h"
#include "plan/wish.h"
#include "support/golden.h"
#include "support/isa.h"
#include "support/words.h"
#include "tenon/checkpoint/writers.h"
#include "tenon/engine/model_runner.h"
#include "tenon/numeric/decode.h"

namespace tenon {
namespace {

using test::EditedModel;

// A matrix or stack of them.
struct Tensor {
  Shape shape;
  std::vector<float> data;
};

// One file in the making.
class GgufFile {
 public:
  GgufFile(const std::string& architecture, const Json& config)
      : prefix_(architecture + "."), config_(config) {
    metadata.SetString("general.architecture", architecture);
    Number("block_count", "num_hidden_layers");
    Number("context_length", "max_position_embeddings");
    Number("embedding_length", "hidden_size");
    Number("attention.head_count", "num_attention_heads");
    Number("attention.head_count_kv", "num_key_value_heads");
    Number("attention.key_length", "head_dim");
    Number("attention.value_length", "head_dim");
    Number("vocab_size", "vocab_size");
    Real("attention.layer_norm_rms_epsilon", "rms_norm_eps");
    Real("rope.freq_base", "rope_theta");
  }
  void Number(const char* key, const char* config_key) {
    metadata.SetUint32(prefix_ + key, static_cast<uint32_t>(config_.Find(config_key)->as_int()));
  }
  void Real(const char* key, const char* config_key) {
    metadata.SetFloat32(prefix_ + key, static_cast<float>(config_.Find(config_key)->as_double()));
  }
  void Add(const std::string& name, Tensor tensor) {
    std::vector<float>& data = data_.emplace_back(std::move(tensor.data));
    AddView(name, TensorView(DType::kF32, tensor.shape, reinterpret_cast<std::byte*>(data.data())));
  }
  void AddView(const std::string& name, const TensorView& view) {
    tensors_.push_back(OutputTensor::Of(name, view));
  }
  Status Write(const std::string& path) const { return WriteGguf(path, metadata, tensors_); }

  GgufBuilder metadata;
  std::string prefix() const { return prefix_; }

 private:
  std::string prefix_;
  const Json& config_;
  std::deque<std::vector<float>> data_;
  std::vector<OutputTensor> tensors_;
};

// [experts, a, b] -> [experts, b, a]
Tensor Transposed(const Tensor& t) {
  const int64_t experts = t.shape.dim(0), a = t.shape.dim(1), b = t.shape.dim(2);
  Tensor out{{experts, b, a}, {}};
  for (int64_t e = 0; e < experts; ++e) {
    for (int64_t j = 0; j < b; ++j) {
      for (int64_t i = 0; i < a; ++i) {
        out.data.push_back(t.data[static_cast<size_t>((e * a + i) * b + j)]);
      }
    }
  }
  return out;
}

// Of [experts, rows, ...] the rows for which keep(row) holds.
Tensor Rows(const Tensor& t, const std::function<bool(int64_t)>& keep) {
  const int64_t experts = t.shape.dim(0), rows = t.shape.dim(1);
  const int64_t width = t.shape.elements() / experts / rows;
  Tensor out;
  for (int64_t r = 0; r < experts * rows; ++r) {
    if (!keep(r % rows)) continue;
    const auto from = t.data.begin() + r * width;
    out.data.insert(out.data.end(), from, from + width);
  }
  const int64_t kept = static_cast<int64_t>(out.data.size()) / experts / width;
  out.shape = t.shape.rank() == 3 ? Shape{experts, kept, width} : Shape{experts, kept};
  return out;
}

struct Case {
  const char* golden;
  const char* architecture;
  // Fewer keys than the golden, and the others that have to be alike.
  void (*edit)(EditedModel& model);
  void (*keys)(GgufFile& file, const Json& config);
  // Names after "model.layers.N." and "blk.N.", by parts.
  std::vector<std::pair<std::string, std::string>> names;
  // Puts a tensor of another layout; false: it has the same. `layer`: "blk.N.".
  bool (*put)(GgufFile& file, const std::string& layer, const std::string& name,
              const Tensor& tensor) = nullptr;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.golden; }

std::string Renamed(const Case& c, std::string name) {
  const std::pair<std::string, std::string> common[] = {
      {"model.layers.", "blk."},          {"model.embed_tokens.", "token_embd."},
      {"model.norm.", "output_norm."},    {"lm_head.", "output."},
      {"input_layernorm", "attn_norm"},   {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},     {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"}};
  const auto replace = [&](const auto& pairs) {
    for (const auto& [from, to] : pairs) {
      const size_t at = name.find(from);
      if (at != std::string::npos) name.replace(at, from.size(), to);
    }
  };
  replace(common);
  replace(c.names);
  return name;
}

Status WriteAsGguf(const Case& c, const Json& config, const std::string& path) {
  GgufFile file(c.architecture, config);
  c.keys(file, config);
  const auto from = test::OpenOrDie(test::DataPath(std::string("goldens/") + c.golden));
  for (const StoredTensor& stored : from->tensors()) {
    const TensorView view = *from->MapTensor(stored);
    Tensor tensor{view.shape(), std::vector<float>(static_cast<size_t>(view.shape().elements()))};
    DecoderOf(view.dtype())(view.data(), view.shape().elements(), tensor.data.data());
    const std::string name(stored.name);
    const std::string layer = "blk." + name.substr(std::min(name.size(), size_t{13}), 1) + ".";
    if (c.put == nullptr || !c.put(file, layer, name, tensor)) {
      file.Add(Renamed(c, name), std::move(tensor));
    }
  }
  return file.Write(path);
}

// --- the families

const std::vector<std::pair<std::string, std::string>> kMlp = {
    {"mlp.gate_proj", "ffn_gate"}, {"mlp.up_proj", "ffn_up"}, {"mlp.down_proj", "ffn_down"}};

std::vector<std::pair<std::string, std::string>> With(
    std::vector<std::pair<std::string, std::string>> names,
    const std::vector<std::pair<std::string, std::string>>& more) {
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

// Gemma's norms are stored as 1 + w.
bool PutShiftedNorm(GgufFile& file, const std::string& layer, const std::string& name,
                    const Tensor& tensor);

Case Gemma() {
  return {.golden = "gemma",
          .architecture = "gemma",
          .edit = [](EditedModel&) {},
          .keys = [](GgufFile& f,
                     const Json&) { f.Number("feed_forward_length", "intermediate_size"); },
          .names = With(kMlp, {{"post_attention_layernorm", "ffn_norm"}}),
          .put = PutShiftedNorm};
}

Case Gemma2() {
  return {.golden = "gemma2",
          .architecture = "gemma2",
          .edit = [](EditedModel& m) { m.Set("query_pre_attn_scalar", 20); },  // head_dim
          .keys =
              [](GgufFile& f, const Json&) {
                f.Number("feed_forward_length", "intermediate_size");
                f.Number("attention.sliding_window", "sliding_window");
                f.Real("attn_logit_softcapping", "attn_logit_softcapping");
                f.Real("final_logit_softcapping", "final_logit_softcapping");
              },
          .names = With(kMlp, {{"post_attention_layernorm", "post_attention_norm"},
                               {"pre_feedforward_layernorm", "ffn_norm"},
                               {"post_feedforward_layernorm", "post_ffw_norm"}}),
          .put = PutShiftedNorm};
}

bool PutShiftedNorm(GgufFile& file, const std::string& /*layer*/, const std::string& name,
                    const Tensor& tensor) {
  if (!name.ends_with("norm.weight")) return false;
  Tensor shifted = tensor;
  for (float& w : shifted.data) w += 1;
  file.Add(Renamed(file.prefix() == "gemma." ? Gemma() : Gemma2(), name), std::move(shifted));
  return true;
}

Case GptOss() {
  return {.golden = "gpt_oss",
          .architecture = "gpt-oss",
          .edit =
              [](EditedModel& m) {
                m.Unset("swiglu_limit").Unset("layer_types");  // windows in every other layer
              },
          .keys =
              [](GgufFile& f, const Json& config) {
                f.Number("expert_feed_forward_length", "intermediate_size");
                f.Number("attention.sliding_window", "sliding_window");
                f.Number("expert_count", "num_local_experts");
                f.Number("expert_used_count", "num_experts_per_tok");
                const Json& rope = *config.Find("rope_scaling");
                const auto real = [&](const char* key, const char* from) {
                  f.metadata.SetFloat32(f.prefix() + "rope.scaling." + key,
                                        static_cast<float>(rope.Find(from)->as_double()));
                };
                f.metadata.SetString(f.prefix() + "rope.scaling.type", "yarn");
                real("factor", "factor");
                real("yarn_beta_fast", "beta_fast");
                real("yarn_beta_slow", "beta_slow");
                f.metadata.SetUint32(
                    f.prefix() + "rope.scaling.original_context_length",
                    static_cast<uint32_t>(rope.Find("original_max_position_embeddings")->as_int()));
              },
          .names = {{"post_attention_layernorm", "post_attention_norm"},
                    {"self_attn.sinks", "attn_sinks.weight"},
                    {"mlp.router", "ffn_gate_inp"}},
          .put =
              [](GgufFile& file, const std::string& layer, const std::string& name,
                 const Tensor& tensor) {
                if (name.find(".experts.") == std::string::npos) return false;
                const bool is_bias = name.ends_with("_bias");
                const std::string kind = is_bias ? "_exps.bias" : "_exps.weight";
                const Tensor rows = is_bias ? tensor : Transposed(tensor);
                if (name.find("gate_up_proj") == std::string::npos) {
                  file.Add(layer + "ffn_down" + kind, rows);
                  return true;
                }
                file.Add(layer + "ffn_gate" + kind,
                         Rows(rows, [](int64_t r) { return r % 2 == 0; }));
                file.Add(layer + "ffn_up" + kind, Rows(rows, [](int64_t r) { return r % 2 == 1; }));
                return true;
              }};
}

// The divisors that the converter computes of llama3's scaling.
Tensor Divisors(const Json& config) {
  const Json& rope = *config.Find("rope_scaling");
  const auto number = [&](const char* key) { return rope.Find(key)->as_double(); };
  const auto dim = static_cast<double>(config.Find("head_dim")->as_int());
  const double length = number("original_max_position_embeddings");
  const double low = number("low_freq_factor"), high = number("high_freq_factor");
  Tensor out;
  for (double i = 0; i < dim; i += 2) {
    const double wave =
        2 * std::numbers::pi * std::pow(config.Find("rope_theta")->as_double(), i / dim);
    const double smooth = (length / wave - low) / (high - low);
    const double divisor = wave < length / high  ? 1
                           : wave > length / low ? number("factor")
                                                 : 1 / ((1 - smooth) / number("factor") + smooth);
    out.data.push_back(static_cast<float>(divisor));
  }
  out.shape = {static_cast<int64_t>(out.data.size())};
  return out;
}

Case Llama4() {
  return {.golden = "llama4_text",
          .architecture = "llama4",
          .edit =
              [](EditedModel& m) {
                m.Unset("attention_chunk_size").Unset("floor_scale").Unset("attn_scale");
              },
          .keys =
              [](GgufFile& f, const Json& config) {
                f.Number("feed_forward_length", "intermediate_size_mlp");
                f.Number("expert_feed_forward_length", "intermediate_size");
                f.Number("expert_count", "num_local_experts");
                f.Number("expert_used_count", "num_experts_per_tok");
                f.Number("interleave_moe_layer_step", "interleave_moe_layer_step");
                f.Add("rope_freqs.weight", Divisors(config));
              },
          .names = {{"post_attention_layernorm", "ffn_norm"},
                    {"feed_forward.gate_proj", "ffn_gate"},
                    {"feed_forward.up_proj", "ffn_up"},
                    {"feed_forward.down_proj", "ffn_down"},
                    {"feed_forward.router", "ffn_gate_inp"},
                    {"feed_forward.shared_expert.gate_proj", "ffn_gate_shexp"},
                    {"feed_forward.shared_expert.up_proj", "ffn_up_shexp"},
                    {"feed_forward.shared_expert.down_proj", "ffn_down_shexp"}},
          .put =
              [](GgufFile& file, const std::string& layer, const std::string& name,
                 const Tensor& tensor) {
                if (name.find(".experts.") == std::string::npos) return false;
                const Tensor rows = Transposed(tensor);
                if (name.ends_with("down_proj")) {
                  file.Add(layer + "ffn_down_exps.weight", rows);
                  return true;
                }
                const int64_t half = rows.shape.dim(1) / 2;
                file.Add(layer + "ffn_gate_exps.weight",
                         Rows(rows, [=](int64_t r) { return r < half; }));
                file.Add(layer + "ffn_up_exps.weight",
                         Rows(rows, [=](int64_t r) { return r >= half; }));
                return true;
              }};
}

Result<std::unique_ptr<ModelRunner>> Load(const std::string& path) {
  TN_ASSIGN_OR_RETURN(auto plan,
                      test::PlanPath(path, {.isa = std::string(NameOf(test::TestIsa()))}));
  return ModelRunner::Load(std::move(plan));
}

class GgufFamily : public testing::TestWithParam<Case> {};

TEST_P(GgufFamily, IsTheModelOfTheDirectory) {
  const Case& c = GetParam();
  EditedModel model(c.golden);
  c.edit(model);
  test::TempDir directory;
  const Status written = WriteAsGguf(c, model.config(), directory / "m.gguf");
  ASSERT_TRUE(written.ok()) << written.message();
  const auto expected = Load(model.path());
  ASSERT_TRUE(expected.ok()) << expected.message();
  const auto got = Load(directory / "m.gguf");
  ASSERT_TRUE(got.ok()) << got.message();
  const test::Golden golden(test::DataPath(std::string("goldens/") + c.golden));
  for (const test::GoldenPrompt& prompt : golden.prompts) {
    for (const auto& runner : {got->get(), expected->get()}) {
      runner->Reset();
      ASSERT_TRUE(runner->Extend(prompt.input_ids, WantLogits::kAll).ok());
    }
    ASSERT_EQ((*got)->logits().size(), prompt.logits.size());
    EXPECT_LE(test::Compare((*got)->logits(), (*expected)->logits(), 1e-5).worst, 1e-5);
  }
}

// Where the numbers are part of the config, they are refused like one.
TEST(GgufRopeTensors, OfAnotherTypeAreRefused) {
  EditedModel model("llama4_text");
  GgufFile file("llama4", model.config());
  const std::vector<uint16_t> halves(8, 0x3C00);
  const TensorView view(DType::kF16, {8},
                        reinterpret_cast<std::byte*>(const_cast<uint16_t*>(halves.data())));
  file.AddView("rope_freqs.weight", view);
  test::TempDir directory;
  ASSERT_TRUE(file.Write(directory / "m.gguf").ok());
  const auto plan = test::PlanPath(directory / "m.gguf");
  ASSERT_FALSE(plan.ok());
  test::ExpectWords(plan.message(), {"rope_freqs.weight: f16 of [8]", "allowed: f32", "fix:"});
}

INSTANTIATE_TEST_SUITE_P(All, GgufFamily, testing::Values(Gemma(), Gemma2(), GptOss(), Llama4()),
                         [](const auto& info) { return std::string(info.param.golden); });

}  // namespace
}  // namespace tenon
