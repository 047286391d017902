// Quantised checkpoints on the way to a plan: what is counted, recorded and refused.
#include "plan/quantised.h"

#include <gtest/gtest.h>

#include "plan/edited.h"
#include "plan/wish.h"
#include "support/words.h"
#include "tenon/modules/attention.h"
#include "tenon/plan/report.h"

namespace tenon {
namespace {

using test::Coded;
using test::ExpectWords;
using test::PlanPath;
using test::QuantisedModel;
using test::SettingsOf;

constexpr const char* kGolden = "llama_hd128";
constexpr const char* kBlocks = R"({"quant_method": "fp8", "weight_block_size": [128, 128]})";

Coded Projections(std::string_view name) {
  return test::IsProjection(name) ? Coded::kFp8Blocks : Coded::kNo;
}
Coded AllButTheKeys(std::string_view name) {
  return name.find("0.self_attn.k_proj") == std::string_view::npos ? Projections(name) : Coded::kNo;
}
Json Excluding(const char* list) {
  return SettingsOf(std::string(R"({"quant_method": "fp8", "weight_block_size": [128, 128],
                                    "ignored_layers": )") +
                    list + "}");
}

std::string ErrorOf(const std::string& path) {
  const auto plan = PlanPath(path);
  EXPECT_FALSE(plan.ok());
  if (plan.ok()) return "";
  EXPECT_EQ(plan.code(), StatusCode::kRefused) << plan.message();
  return plan.message();
}

std::vector<std::string> Quantised(const PlannedModel& plan) {
  std::vector<std::string> lines;
  for (const Decision& d : plan.context->ledger.decisions()) {
    if (d.field == "quantisation") lines.push_back(d.requested + " -> " + d.resolved + " " + d.why);
  }
  return lines;
}

TEST(QuantisedPlan, CountsCodesAndScales) {
  QuantisedModel model(kGolden, Projections);
  const auto plan = PlanPath(model.path(SettingsOf(kBlocks)));
  ASSERT_TRUE(plan.ok()) << plan.message();
  int64_t codes = 0;
  int64_t sum = 0;
  for (Module* module : (*plan)->context->modules) {
    for (const Parameter& p : module->parameters()) {
      sum += p.held_bytes();
      const bool is_scale = p.path().ends_with("_scale_inv");
      if (is_scale || p.stored_dtype() == DType::kF8E4M3) codes += p.stored_bytes();
    }
  }
  EXPECT_EQ(codes, model.coded_bytes());
  EXPECT_EQ((*plan)->memory.weights_held, sum);
  // The same from the configuration alone, but for dtypes of what is not quantised.
  QuantisedModel bare(kGolden, Projections);
  const auto without = PlanPath(bare.path(SettingsOf(kBlocks), false));
  ASSERT_TRUE(without.ok()) << without.message();
  EXPECT_EQ((*without)->memory.weights_held, sum);
}

TEST(QuantisedPlan, SaysWhichSchemeWhichLayersHave) {
  QuantisedModel model(kGolden, AllButTheKeys);
  const auto plan = PlanPath(model.path(Excluding(R"(["model.layers.0.self_attn.k_proj"])")));
  ASSERT_TRUE(plan.ok()) << plan.message();
  const std::vector<std::string> lines = Quantised(**plan);
  ASSERT_EQ(lines.size(), 9u) << "seven projections, the excluded one, the head";
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  ExpectWords(all, {"model.layers.{}.self_attn.k_proj -> plain excluded; 1 matrices",
                    "model.layers.{}.self_attn.k_proj -> fp8, a scale per 128x128, inputs fp8 per "
                    "128 columns the scheme for all layers; 1 matrices",
                    "model.layers.{}.mlp.up_proj -> fp8, a scale per 128x128, inputs fp8 per 128 "
                    "columns the scheme for all layers; 2 matrices",
                    "lm_head -> plain the file has no scales for it; 1 matrices"});
  ExpectWords(ReportText(**plan), {"model.layers.{}.mlp.up_proj"});
}

TEST(QuantisedPlan, MissingAndUnusedScales) {
  QuantisedModel missing(kGolden, Projections);
  missing.Drop("model.layers.1.mlp.up_proj.weight_scale_inv");
  const std::string text = ErrorOf(missing.path(SettingsOf(kBlocks)));
  ExpectWords(text, {"model.layers.1.mlp.up_proj.weight: its scales are missing",
                     "weight_scale_inv or weight_scale"});
  EXPECT_EQ(text.find("problems"), std::string::npos) << text;

  QuantisedModel excluded(kGolden, Projections);
  ExpectWords(ErrorOf(excluded.path(Excluding(R"(["model.layers.1.mlp.up_proj"])"))),
              {"model.layers.1.mlp.up_proj.weight: stored as f8_e4m3", "unquantised", "fix:"});

  test::EditedModel unused("llama");
  unused.Add("model.layers.0.mlp.up_proj.weight_scale_inv", {1, 1});
  ExpectWords(ErrorOf(unused.path()),
              {"up_proj.weight_scale_inv: the model does not use this tensor", "fix:"});
}

TEST(QuantisedPlan, WithoutSettingsCodesAreRefused) {
  QuantisedModel model(kGolden, Projections);
  ExpectWords(ErrorOf(model.path(nullptr)),
              {"model.layers.0.self_attn.q_proj.weight: stored as f8_e4m3", "quantization_config"});
}

TEST(QuantisedPlan, AKeyThatMeansNothingIsAnError) {
  QuantisedModel model(kGolden, Projections);
  ExpectWords(ErrorOf(model.path(Excluding(R"(["model.layers.7.mlp.up_proj"])"))),
              {"exclude 'model.layers.7.mlp.up_proj' matches no module; nearest: model.layers."});
}

TEST(QuantisedPlan, LatentAttentionAndExperts) {
  QuantisedModel model("deepseek_v2_lite_mla576", [](std::string_view name) {
    return test::IsProjection(name) || name.ends_with("_with_mqa.weight") ? Coded::kFp8Blocks
                                                                          : Coded::kNo;
  });
  const auto plan = PlanPath(model.path(SettingsOf(kBlocks)));
  ASSERT_TRUE(plan.ok()) << plan.message();
  std::string all;
  for (const std::string& line : Quantised(**plan)) all += line + "\n";
  ExpectWords(all, {"model.layers.{}.self_attn.kv_b_proj -> fp8",
                    "model.layers.{}.mlp.experts.{}.up_proj -> fp8",
                    "model.layers.{}.mlp.gate -> plain the file has no scales for it"});
}

TEST(QuantisedPlan, TheCacheFollowsTheCheckpointsAlgorithm) {
  for (const auto& [scheme, dtype, name] :
       {std::tuple{R"({"num_bits": 8, "type": "float"})", DType::kF8E4M3, "fp8_e4m3"},
        {R"({"num_bits": 8, "type": "int"})", DType::kI8, "int8"}}) {
    QuantisedModel model(kGolden, Projections);
    Json settings = SettingsOf(kBlocks);
    settings.Set("kv_cache_scheme", SettingsOf(scheme));
    const std::string path = model.path(settings);
    for (const char* wanted : {"auto", name}) {
      const auto plan = PlanPath(path, {.kv_dtype = wanted});
      ASSERT_TRUE(plan.ok()) << plan.message();
      for (const auto& [key, core] : (*plan)->context->attention_layers)
        EXPECT_EQ(core->spec().kv_dtype, dtype) << key;
    }
    const auto plan = PlanPath(path);
    std::string line;
    for (const Decision& d : (*plan)->context->ledger.decisions()) {
      if (d.field == "kv_dtype") line += d.requested + " -> " + d.resolved + ", " + d.why;
    }
    EXPECT_EQ(line, std::string("auto -> ") + name + ", the checkpoint's cache is made for " +
                        (*plan)->quant.kv_algorithm);
    // Two who say different things, both named.
    const auto other = PlanPath(path, {.kv_dtype = "bf16"});
    ASSERT_FALSE(other.ok());
    EXPECT_EQ(other.code(), StatusCode::kUsage);
    ExpectWords(other.message(),
                {"kv-dtype = bf16 (set by --kv-dtype)",
                 "cache is made for " + (*plan)->quant.kv_algorithm + " (set by config.json",
                 std::string("fix: --kv-dtype ") + name + ", or auto"});
  }
}

TEST(QuantisedPlan, AnAlgorithmOfNoFormatOfOursIsLeft) {
  QuantisedModel model(kGolden, Projections);
  Json settings = SettingsOf(kBlocks);
  settings.Set("kv_cache_scheme", SettingsOf(R"({"num_bits": 4, "type": "int"})"));
  const std::string path = model.path(settings);
  const auto plan = PlanPath(path);
  ASSERT_TRUE(plan.ok()) << plan.message();
  EXPECT_EQ((*plan)->context->options.kv_dtype.value, DType::kF32) << "as computed";
  ASSERT_TRUE(PlanPath(path, {.kv_dtype = "int8"}).ok());
}

}  // namespace
}  // namespace tenon
