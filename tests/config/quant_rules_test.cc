// What each producer's settings come to, and what is refused.
#include "tenon/config/quant_rules.h"

#include <gtest/gtest.h>

#include <functional>

#include "config/test_json.h"
#include "support/paths.h"

namespace tenon {
namespace {

using test::Contains;
using test::J;
using Match = QuantKey::Match;

QuantConfig ConfigOf(std::string_view settings) {
  Json config;
  config.Set("quantization_config", J(settings));
  ConfigReader reader(config);
  QuantConfig quant = ReadQuantConfig(reader, nullptr);
  EXPECT_TRUE(reader.ok()) << reader.status().message();
  return quant;
}

// DeepSeek's, by its model card: 128 x 128, w = code * weight_scale_inv.
QuantScheme Fp8Blocks() {
  return {.method = "fp8",
          .codes = DType::kF8E4M3,
          .block_rows = 128,
          .block_cols = 128,
          .input = InputFormat::kFp8PerBlock,
          .scale_names = {"weight_scale_inv", "weight_scale"},
          .input_scale_names = {"input_scale", "activation_scale"}};
}

QuantRules RulesOf(std::string_view settings) {
  Result<QuantRules> rules = ReadQuantRules(ConfigOf(settings));
  EXPECT_TRUE(rules.ok()) << rules.message();
  return rules.ok() ? *std::move(rules) : QuantRules{};
}

std::string RefusalOf(std::string_view settings) {
  const Result<QuantRules> rules = ReadQuantRules(ConfigOf(settings));
  EXPECT_FALSE(rules.ok()) << settings;
  if (rules.ok()) return "";
  EXPECT_EQ(rules.code(), StatusCode::kRefused);
  return rules.message();
}

// Compressed-tensors with one group for all linears; `weights`, `input`: members to add.
std::string Group(std::string_view format, std::string_view weights, std::string_view input,
                  std::string_view more = "") {
  return R"({"quant_method": "compressed-tensors", "format": ")" + std::string(format) +
         R"(", "config_groups": {"group_0": {"targets": ["Linear"], "weights": {)" +
         std::string(weights) + R"(}, "input_activations": )" + std::string(input) + "}}" +
         std::string(more) + "}";
}
constexpr const char* kIntWeights =
    R"("num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel")";
constexpr const char* kIntInput =
    R"({"num_bits": 8, "type": "int", "symmetric": true, "strategy": "token", "dynamic": true})";

TEST(QuantRules, NoneIsPlain) {
  const Result<QuantRules> rules = ReadQuantRules({});
  ASSERT_TRUE(rules.ok());
  EXPECT_TRUE(rules->global.is_plain());
  EXPECT_EQ(rules->method, QuantMethod::kNone);
}

TEST(QuantRules, Fp8Blocks) {
  const QuantRules rules = RulesOf(
      R"({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
          "weight_block_size": [128, 128], "scale_fmt": "ue8m0",
          "modules_to_not_convert": ["lm_head", "mlp.gate"], "kv_cache_scheme": null})");
  EXPECT_EQ(rules.global, Fp8Blocks());
  ASSERT_EQ(rules.excludes.size(), 2u);
  EXPECT_EQ(rules.excludes[1].text, "mlp.gate");
  EXPECT_EQ(rules.excludes[1].match, Match::kParts);
  EXPECT_EQ(rules.kv_algorithm, "");
}

TEST(QuantRules, AbsentOrNullListsAreNotEmptyOnes) {
  for (const char* list : {"", R"(, "modules_to_not_convert": null)"}) {
    const QuantRules rules = RulesOf(std::string(R"({"quant_method": "fp8")") + list + "}");
    ASSERT_EQ(rules.excludes.size(), 1u) << list;
    EXPECT_EQ(rules.excludes[0].text, "lm_head");
    EXPECT_TRUE(rules.excludes[0].is_default);
  }
  EXPECT_TRUE(RulesOf(R"({"quant_method": "fp8", "ignored_layers": []})").excludes.empty());
}

TEST(QuantRules, Fp8PerTensor) {
  const QuantRules fixed = RulesOf(
      R"({"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"],
          "kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor"}})");
  EXPECT_EQ(fixed.global.block_rows, 0);
  EXPECT_EQ(fixed.global.block_cols, 0);
  EXPECT_EQ(fixed.global.input, InputFormat::kFp8Static);
  EXPECT_EQ(fixed.kv_algorithm, "FP8");
  EXPECT_EQ(RulesOf(R"({"quant_method": "fp8"})").global.input, InputFormat::kFp8PerTensor);
}

TEST(QuantRules, CompressedTensors) {
  const QuantRules int8 = RulesOf(
      Group("int-quantized", kIntWeights, kIntInput, R"(, "ignore": ["lm_head", "re:.*gate$"])"));
  EXPECT_EQ(int8.global.method, "int8");
  EXPECT_EQ(int8.global.codes, DType::kI8);
  EXPECT_EQ(int8.global.block_rows, 1);
  EXPECT_EQ(int8.global.block_cols, 0);
  EXPECT_EQ(int8.global.input, InputFormat::kInt8PerToken);
  ASSERT_EQ(int8.excludes.size(), 2u);
  EXPECT_EQ(int8.excludes[0].match, Match::kName);
  EXPECT_EQ(int8.excludes[1].match, Match::kRegex);

  const QuantRules blocks = RulesOf(Group(
      "float-quantized",
      R"("num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128])",
      R"({"num_bits": 8, "type": "float", "strategy": "group", "group_size": 128, "dynamic": true})"));
  EXPECT_EQ(blocks.global, Fp8Blocks());
  const QuantRules tensor =
      RulesOf(Group("naive-quantized", R"("num_bits": 8, "type": "float", "strategy": "tensor")",
                    R"({"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": false})"));
  EXPECT_EQ(tensor.global.block_rows, 0);
  EXPECT_EQ(tensor.global.input, InputFormat::kFp8Static);
  const QuantRules weights_only = RulesOf(Group("int-quantized", kIntWeights, "null"));
  EXPECT_EQ(weights_only.global.input, InputFormat::kNone);
}

TEST(QuantRules, GroupsForSomeLayers) {
  const QuantRules rules = RulesOf(R"({"quant_method": "compressed-tensors",
      "format": "float-quantized", "config_groups": {
        "a": {"targets": ["re:.*down_proj$", "model.layers.0.mlp.up_proj"],
              "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}},
        "b": {"targets": ["Linear"],
              "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"}}}})");
  ASSERT_EQ(rules.layers.size(), 2u);
  EXPECT_EQ(rules.layers[0].key.match, Match::kRegex);
  EXPECT_EQ(rules.layers[1].key.match, Match::kName);
  EXPECT_EQ(rules.layers[1].scheme.block_rows, 1);
  EXPECT_EQ(rules.global.block_rows, 0);
  EXPECT_FALSE(rules.global.is_plain());
}

TEST(QuantRules, ModelOptFile) {
  const Json file = J(R"({"producer": {"name": "modelopt", "version": "0.33"},
      "quantization": {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": "FP8",
        "exclude_modules": ["lm_head", "*router*"],
        "quantized_layers": {"model.layers.0.mlp.up_proj": {"quant_algo": "FP8"},
                             "model.layers.1.mlp.up_proj": {"quant_algo": "FP8_PB_WO"}}}})");
  ConfigReader reader(J("{}"));
  const Result<QuantRules> rules = ReadQuantRules(ReadQuantConfig(reader, &file));
  ASSERT_TRUE(rules.ok()) << rules.message();
  EXPECT_TRUE(rules->global.is_plain());
  ASSERT_EQ(rules->layers.size(), 2u);
  EXPECT_EQ(rules->layers[0].key.text, "model.layers.0.mlp.up_proj");
  EXPECT_EQ(rules->layers[0].scheme.block_rows, 0);
  EXPECT_EQ(rules->layers[1].scheme.block_rows, 128);
  EXPECT_EQ(rules->excludes[1].match, Match::kGlob);
  EXPECT_EQ(rules->kv_algorithm, "FP8");
  EXPECT_EQ(rules->origin.Text(), "hf_quant_config.json");
}

TEST(QuantRules, ModelOptInline) {
  const QuantRules rules = RulesOf(R"({"quant_method": "modelopt",
      "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN", "ignore": ["lm_head"], "config_groups": {"g": {}},
      "kv_cache_scheme": {"num_bits": 8, "type": "float"}})");
  EXPECT_EQ(rules.global.block_rows, 1);
  EXPECT_EQ(rules.global.input, InputFormat::kFp8PerToken);
  EXPECT_EQ(rules.kv_algorithm, "FP8");
  // The cache alone.
  const QuantRules cache =
      RulesOf(R"({"quant_method": "modelopt", "quant_algo": null, "kv_cache_quant_algo": "FP8"})");
  EXPECT_TRUE(cache.global.is_plain());
  EXPECT_EQ(cache.kv_algorithm, "FP8");
}

TEST(QuantRules, ARefusalSaysWhatWhoAndWhatToDo) {
  EXPECT_EQ(RefusalOf(R"({"quant_method": "fp8", "weight_block_size": [64, 64]})"),
            "quantisation fp8: weight_block_size = [64,64], supports null, [128,128]; set by "
            "config.json: quantization_config: weight_block_size; fix: use the checkpoint as it "
            "was before quantisation, or a GGUF file of it");
}

TEST(QuantRules, WhatIsRefused) {
  const auto int_weights = [](std::string_view more) {
    return Group("int-quantized", std::string(kIntWeights) + std::string(more), kIntInput);
  };
  const auto float_weights = [](std::string_view weights) {
    return Group("float-quantized", weights, "null");
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"quant_method": "fp8", "fmt": "e5m2"})", "fmt = \"e5m2\""},
      {R"({"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "static"})",
       "activation_scheme = \"static\", supports \"dynamic\" with blocks"},
      {R"({"quant_method": "fp8", "ignored_layers": "lm_head"})", "ignored_layers"},
      {Group("pack-quantized", kIntWeights, kIntInput), "format = \"pack-quantized\""},
      {Group("float-quantized", kIntWeights, kIntInput), "supports \"int-quantized\""},
      {int_weights(R"(, "actorder": "group")"), "actorder = \"group\""},
      {int_weights(R"(, "group_size": 128)"), "group_size = 128, supports null"},
      {int_weights(R"(, "symmetric": false)"), "symmetric = false, supports true"},
      {int_weights(R"(, "num_bits": 4)"), "num_bits = 4, supports 8"},
      {int_weights(R"(, "codebook": 3)"), "weights.codebook is not known"},
      {float_weights(R"("num_bits": 8, "type": "float", "strategy": "group")"),
       "strategy = \"group\""},
      {float_weights(R"("num_bits": 8, "type": "float", "strategy": "block",
                        "block_structure": [64, 64])"),
       "block_structure = [64,64]"},
      {float_weights(R"("num_bits": 4, "type": "float", "strategy": "channel")"), "num_bits = 4"},
      {Group("int-quantized", kIntWeights,
             R"({"num_bits": 8, "type": "int", "strategy": "tensor", "dynamic": false})"),
       "dynamic = false, supports true"},
      {Group("int-quantized", kIntWeights, kIntInput, R"(, "sparsity_config": {"format": "x"})"),
       "sparsity_config"},
      {R"({"quant_method": "compressed-tensors", "config_groups": {}})", "config_groups = "},
      {R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})",
       "quant_algo = \"NVFP4\", supports FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, "
       "MIXED_PRECISION"},
      {R"({"quant_method": "modelopt", "quant_algo": "FP8", "pre_quant_scale": true})",
       "pre_quant_scale = true"},
      {R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"})", "quantized_layers"},
      {R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
           "quantized_layers": {"a.b": {"quant_algo": "W4A16_AWQ"}}})",
       "quantized_layers.a.b.quant_algo"},
      {R"({"quant_method": "modelopt", "config_groups": {"g": {}}})", "quant_algo = null"},
  };
  for (const auto& [settings, words] : cases) {
    const std::string refusal = RefusalOf(settings);
    EXPECT_TRUE(Contains(refusal, words)) << settings << "\n" << refusal;
  }
}

TEST(QuantRules, AllProblemsAtOnce) {
  const std::string refusal =
      RefusalOf(R"({"quant_method": "fp8", "fmt": "e5m2", "weight_block_size": [1, 2]})");
  EXPECT_TRUE(Contains(refusal, "fmt") && Contains(refusal, "weight_block_size")) << refusal;
}

TEST(QuantRules, SettingsWithoutMeaningAreKept) {
  EXPECT_EQ(RulesOf(R"({"quant_method": "fp8", "colour": 3})").unread,
            std::vector<std::string>{"colour"});
}

// `value` with one of its inner values replaced, for each of them.
void ForEachDamage(const Json& value, const Json& with, const std::function<void(Json)>& visit) {
  visit(with);
  if (value.is_object()) {
    for (const auto& [key, member] : value.as_object()) {
      ForEachDamage(member, with, [&, k = key](Json damaged) {
        Json copy = value;
        copy.Set(k, std::move(damaged));
        visit(std::move(copy));
      });
    }
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.as_array().size(); ++i) {
      ForEachDamage(value.as_array()[i], with, [&](Json damaged) {
        Json copy = value;
        copy.as_array()[i] = std::move(damaged);
        visit(std::move(copy));
      });
    }
  }
}

TEST(QuantRules, DamagedSettingsAreReadOrRefused) {
  const std::vector<Json> wholes = {
      J(R"({"quant_method": "fp8", "weight_block_size": [128, 128], "ignored_layers": ["a"],
            "kv_cache_scheme": {"num_bits": 8, "type": "float"}})"),
      J(Group("int-quantized", kIntWeights, kIntInput, R"(, "ignore": ["re:a.*"])")),
      J(R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "exclude_modules": ["*"],
            "quantized_layers": {"a": {"quant_algo": "FP8"}}, "kv_cache_quant_algo": "FP8"})")};
  int tried = 0;
  for (const Json& whole : wholes) {
    ASSERT_TRUE(ReadQuantRules(ConfigOf(whole.Dump())).ok());
    for (const Json& with :
         {Json(), Json(true), Json(-1), Json(1e300), Json(""), Json("x"), Json(Json::Array{}),
          Json(Json::Array{Json(), 7}), Json(Json::Object{}), Json(Json::Object{{"", Json(3)}})}) {
      ForEachDamage(whole, with, [&](Json damaged) {
        Json config;
        config.Set("quantization_config", std::move(damaged));
        ConfigReader reader(config);
        const QuantConfig quant = ReadQuantConfig(reader, nullptr);
        if (!reader.ok()) return;
        const Result<QuantRules> rules = ReadQuantRules(quant);
        if (!rules.ok()) EXPECT_EQ(rules.code(), StatusCode::kRefused) << rules.message();
        ++tried;
      });
    }
  }
  EXPECT_GT(tried, 200);
}

// The settings that the producers' own tools wrote.
TEST(QuantRules, RealFiles) {
  const std::string shared = test::SharedPath("goldens_quant_hf");
  if (shared.empty()) GTEST_SKIP() << "no shared files";
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"fp8_block_128", "fp8, a scale per 128x128, inputs fp8 per 128 columns"},
      {"fp8_block_128_ue8m0", "fp8, a scale per 128x128, inputs fp8 per 128 columns"},
      {"fp8_tensor_static", "fp8, a scale per tensor, inputs fp8 with a stored scale"},
      {"ct_fp8_channel", "fp8, a scale per row, inputs fp8 per token"},
      {"ct_fp8_tensor", "fp8, a scale per tensor, inputs fp8 with a stored scale"},
      {"ct_int8_w8a8", "int8, a scale per row, inputs int8 per token"},
      {"mxfp4_gptoss", "mxfp4, a scale per 1x32, inputs as computed"},
      {"ct_mxfp4", "refused"},
      {"ct_nvfp4", "refused"},
      {"ct_pack_int4_g128", "refused"},
      {"ct_pack_int4_g32_asym", "refused"},
      {"ct_pack_int8_channel", "refused"},
      {"modelopt_nvfp4", "refused"},
  };
  for (const auto& [name, expected] : cases) {
    const Result<Json> golden = ReadJsonFile(shared + "/" + name + ".json");
    ASSERT_TRUE(golden.ok()) << golden.message();
    const Result<QuantRules> rules =
        ReadQuantRules(ConfigOf(golden->Find("quantization_config")->Dump()));
    EXPECT_EQ(rules.ok() ? rules->global.Text() : "refused", expected) << name;
    if (rules.ok()) EXPECT_TRUE(rules->unread.empty()) << name << ": " << rules->unread[0];
  }
}

}  // namespace
}  // namespace tenon
