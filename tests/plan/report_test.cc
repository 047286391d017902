// What `tenon explain` prints: JSON whose keys are a promise, and text that says the same.
#include "tenon/plan/report.h"

#include <gtest/gtest.h>

#include "plan/edited.h"
#include "plan/wish.h"
#include "support/words.h"

namespace tenon {
namespace {

using test::ExpectWords;
using test::PlanGolden;
using test::PlanPath;

using Keys = std::vector<std::string>;

Keys KeysOf(const Json& object) {
  Keys keys;
  for (const auto& [key, value] : object.as_object()) keys.push_back(key);
  return keys;
}
const Json& At(const Json& object, std::string_view key) {
  const Json* value = object.Find(key);
  TN_CHECK(value != nullptr, "the report has this key");
  return *value;
}

class ReportTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    const bool gguf = name.ends_with(".gguf");
    auto plan = PlanPath(test::DataPath((gguf ? "goldens_gguf/" : "goldens/") + name),
                         {.memory_bytes = int64_t{1} << 30});
    ASSERT_TRUE(plan.ok()) << plan.message();
    plan_ = *std::move(plan);
    report_ = ReportJson(*plan_);
  }
  std::unique_ptr<PlannedModel> plan_;
  Json report_;
};

// A key that goes or changes its name breaks scripts: then the schema's number has to change.
TEST_P(ReportTest, SchemaOneHasTheseKeys) {
  EXPECT_EQ(At(report_, "schema"), Json(1));
  EXPECT_EQ(KeysOf(report_),
            (Keys{"schema",       "model",       "container", "architecture", "provider",
                  "kind",         "resolution",  "config",    "machine",      "kernels",
                  "threads",      "max_seq_len", "weights",   "attention",    "cache",
                  "steps",        "memory",      "options",   "decisions",    "registrations",
                  "quantisation", "parallel"}));
  EXPECT_EQ(KeysOf(At(report_, "memory")),
            (Keys{"weights_stored", "weights_held", "weights_derived", "cache", "arena", "scratch",
                  "total", "construction"}));
  EXPECT_EQ(KeysOf(At(report_, "machine")), (Keys{"cpu", "isa", "cores", "available_bytes"}));
  for (const Json& step : At(report_, "resolution").as_array()) {
    EXPECT_EQ(KeysOf(step), (Keys{"what", "outcome", "why"}));
  }
  for (const Json& step : At(report_, "steps").as_array()) {
    EXPECT_EQ(KeysOf(step), (Keys{"name", "records", "meetings", "arena_bytes", "weight_bytes",
                                  "operations", "kernels", "fused"}));
  }
  for (const Json& layer : At(report_, "attention").as_array()) {
    Keys keys = KeysOf(layer);
    keys.resize(7);
    EXPECT_EQ(keys, (Keys{"key", "path", "kind", "heads", "kv_heads", "head_dim", "backend"}));
  }
  for (const Json& decision : At(report_, "decisions").as_array()) {
    for (const char* key : {"field", "requested", "resolved", "kind", "by", "why"}) {
      EXPECT_NE(decision.Find(key), nullptr) << key << " in " << decision.Dump();
    }
  }
  for (const Json& group : At(report_, "cache").as_array()) {
    const bool paged = group.Find("pages") != nullptr;
    EXPECT_EQ(KeysOf(group),
              paged ? (Keys{"kind", "layers", "dtype", "bytes", "layout", "page_tokens", "pages",
                            "row_bytes"})
                    : (Keys{"kind", "layers", "dtype", "bytes", "slots", "slot_bytes"}));
  }
}

TEST_P(ReportTest, NumbersAgreeWithThePlan) {
  const Json& memory = At(report_, "memory");
  int64_t sum = 0;
  for (const char* part : {"weights_held", "weights_derived", "cache", "arena", "scratch"}) {
    sum += At(memory, part).as_int();
  }
  EXPECT_EQ(At(memory, "total").as_int(), sum);
  int64_t stored = 0;
  for (const auto& [dtype, bytes] : At(report_, "weights").as_object()) stored += bytes.as_int();
  EXPECT_EQ(stored, At(memory, "weights_stored").as_int());
  int64_t cache = 0;
  for (const Json& group : At(report_, "cache").as_array()) cache += At(group, "bytes").as_int();
  EXPECT_EQ(cache, At(memory, "cache").as_int());
  for (const Json& step : At(report_, "steps").as_array()) {
    int64_t records = 0;
    for (const auto& [kernel, count] : At(step, "kernels").as_object()) records += count.as_int();
    EXPECT_EQ(records, At(step, "records").as_int());
  }
  EXPECT_EQ(At(report_, "attention").as_array().size(), plan_->context->attention_layers.size());
  EXPECT_EQ(At(report_, "max_seq_len").as_int(), plan_->max_seq_len);
  EXPECT_EQ(At(At(report_, "machine"), "available_bytes").as_int(), int64_t{1} << 30);
}

TEST_P(ReportTest, IsJsonAndTheSameAgain) {
  const std::string text = report_.Dump(2);
  const auto parsed = ParseJson(text);
  ASSERT_TRUE(parsed.ok()) << parsed.message();
  EXPECT_EQ(parsed->Dump(), report_.Dump());
  const auto again = PlanPath(plan_->checkpoint->path(), {.memory_bytes = int64_t{1} << 30});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(ReportJson(**again).Dump(2), text);
}

TEST_P(ReportTest, TheTextSaysTheSame) {
  const std::string text = ReportText(*plan_);
  ExpectWords(text, {plan_->checkpoint->path(), plan_->resolution.architecture,
                     plan_->resolution.provider, "resolution", "machine", "weights", "attention",
                     "cache", "steps", "memory", "decisions", "options that were set", "--memory"});
  for (const StepSummary& step : plan_->steps) {
    ExpectWords(text, {step.name + ": " + std::to_string(step.records) + " records"});
    for (const auto& [kernel, count] : step.kernels) ExpectWords(text, {kernel});
  }
  for (const Decision& decision : plan_->context->ledger.decisions()) {
    ExpectWords(text, {decision.field, decision.resolved, decision.why});
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReportTest,
                         testing::Values("llama", "deepseek_v2", "mamba2", "lfm2", "t5", "bert",
                                         "llama_q4_0.gguf"),
                         [](const auto& info) {
                           std::string name = info.param;
                           return name.substr(0, name.find('.'));
                         });

TEST(Report, ShowsWhatNothingRead) {
  test::EditedModel model("llama");
  model.Set("mystery_key", 7);
  const auto plan = PlanPath(model.path());
  ASSERT_TRUE(plan.ok()) << plan.message();
  ExpectWords(ReportText(**plan), {"config keys that nothing read", "mystery_key"});
}

TEST(Report, ShowsADowngradeThatWasConsentedTo) {
  test::EditedModel model("llama");
  model.Add("model.extra.weight", {3});
  const auto plan = PlanPath(model.path(), {.allowed = "weights.unused"});
  ASSERT_TRUE(plan.ok()) << plan.message();
  ExpectWords(ReportText(**plan), {"weights.unused: use -> ignored", "1 tensors"});
  ExpectWords(ReportJson(**plan).Dump(), {"\"downgraded\""});
}

TEST(Report, ShowsDisplacedRegistrationsAndFusions) {
  const auto registry = MakeRegistry();
  ASSERT_TRUE(registry
                  ->AddExternal({"/p/mine.so", false,
                                 [](Registrar& registrar) -> Status {
                                   TN_ASSIGN_OR_RETURN(const auto llama,
                                                       registrar.Find("LlamaForCausalLM"));
                                   registrar.Model(*llama);
                                   return {};
                                 }})
                  .ok());
  const auto plan =
      PlanModel(test::DataPath("goldens/llama"), *test::OptionsFor({.max_seq_len = 64}), *registry);
  ASSERT_TRUE(plan.ok()) << plan.message();
  const std::string note = "LlamaForCausalLM: kept /p/mine.so, displaced llama";
  ExpectWords(ReportText(**plan), {"registration: " + note});
  const Json report = ReportJson(**plan);
  EXPECT_EQ(At(report, "registrations"), Json(Json::Array{Json(note)}));
  EXPECT_EQ(At(report, "provider"), Json("/p/mine.so"));
  // Two layers: their sums meet the next norm, the last one's the model's; and one for attention.
  for (const Json& step : At(report, "steps").as_array()) {
    EXPECT_EQ(At(At(step, "fused"), "add_norm"), Json(4));
  }
}

TEST(Report, ShowsOneRankOfAWorld) {
  const auto registry = MakeRegistry();
  auto options = test::OptionsFor({.max_seq_len = 64});
  ASSERT_TRUE(options.ok());
  options->tp.value = 2;
  options->rank.value = 1;
  const auto plan = PlanModel(test::DataPath("goldens/llama"), *options, *registry);
  ASSERT_TRUE(plan.ok()) << plan.message();
  ExpectWords(ReportText(**plan), {"rank 1 of tp 2 x pp 1"});
  EXPECT_EQ(At(At(ReportJson(**plan), "parallel"), "rank"), Json(1));
}

}  // namespace
}  // namespace tenon
