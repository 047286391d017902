// Quantised checkpoints give the logits of the same models with the numbers that the codes stand
// for. Disabled until products read the scales of a MatrixRef.
#include "plan/quantised.h"

#include "engine/runners.h"

namespace tenon {
namespace {

using test::Coded;
using test::QuantisedModel;
using test::SettingsOf;

// Of the first 33 tokens of a made-up text, in one prefill and one decode.
std::vector<float> LogitsOf(const std::string& path) {
  auto plan = test::PlanPath(path, {.compute = "fp32"});
  EXPECT_TRUE(plan.ok()) << plan.message();
  if (!plan.ok()) return {};
  auto runner = ModelRunner::Load(*std::move(plan));
  EXPECT_TRUE(runner.ok()) << runner.message();
  if (!runner.ok()) return {};
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 33; ++i)
    ids.push_back((i * 37 + 11) % static_cast<int32_t>((*runner)->vocab()));
  std::vector<float> logits;
  const Status status = (*runner)->Extend(ids, WantLogits::kLast);
  EXPECT_TRUE(status.ok()) << status.message();
  const std::vector<float> prefill = test::Logits(**runner);
  EXPECT_TRUE((*runner)->Extend(std::vector<int32_t>{5}, WantLogits::kLast).ok());
  const std::vector<float> decode = test::Logits(**runner);
  logits.insert(logits.end(), prefill.begin(), prefill.end());
  logits.insert(logits.end(), decode.begin(), decode.end());
  return logits;
}

void ExpectTheSame(QuantisedModel& model, std::string_view settings) {
  const std::vector<float> coded = LogitsOf(model.path(SettingsOf(settings)));
  const std::vector<float> numbers = LogitsOf(model.plain_path());
  ASSERT_EQ(coded.size(), numbers.size());
  ASSERT_FALSE(coded.empty());
  for (size_t i = 0; i < coded.size(); ++i) {
    ASSERT_NEAR(coded[i], numbers[i], 2e-4 + 2e-4 * std::abs(numbers[i])) << i;
  }
}

// Blocks in the first layer but for k, rows of int8 in the second one's feed-forward, rows of fp8
// in its attention.
TEST(Quantised, FormatsSideBySide) {
  QuantisedModel model("llama_hd128", [](std::string_view name) {
    if (!test::IsProjection(name) || name.find("0.self_attn.k_proj") != name.npos) {
      return Coded::kNo;
    }
    if (name.find("layers.0.") != name.npos) return Coded::kFp8Blocks;
    return name.find(".mlp.") != name.npos ? Coded::kInt8Rows : Coded::kFp8Rows;
  });
  ExpectTheSame(model, R"({"quant_method": "compressed-tensors", "format": "mixed-precision",
      "ignore": ["lm_head", "model.layers.0.self_attn.k_proj"],
      "config_groups": {
        "a": {"format": "float-quantized", "targets": ["re:model\\.layers\\.0\\."],
              "weights": {"num_bits": 8, "type": "float", "strategy": "block",
                          "block_structure": [128, 128]},
              "input_activations": {"num_bits": 8, "type": "float", "strategy": "group",
                                    "group_size": 128, "dynamic": true}},
        "b": {"format": "int-quantized", "targets": ["re:.*\\.1\\.mlp"],
              "weights": {"num_bits": 8, "type": "int", "strategy": "channel"},
              "input_activations": {"num_bits": 8, "type": "int", "strategy": "token",
                                    "dynamic": true}},
        "c": {"format": "float-quantized", "targets": ["Linear"],
              "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}}})");
}

TEST(Quantised, LatentAttentionAndExperts) {
  QuantisedModel model("deepseek_v2_lite_mla576", [](std::string_view name) {
    return test::IsProjection(name) || name.ends_with("_with_mqa.weight") ? Coded::kFp8Blocks
                                                                          : Coded::kNo;
  });
  ExpectTheSame(model, R"({"quant_method": "fp8", "weight_block_size": [128, 128]})");
}

}  // namespace
}  // namespace tenon
