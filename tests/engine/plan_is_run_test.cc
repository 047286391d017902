// What the plan says is what runs: for goldens of every kind, the kernels of a planned step and how
// often each comes, against what the runner counted.
#include <gtest/gtest.h>

#include "engine/runners.h"

namespace tenon {
namespace {

using Counts = std::map<std::string, int64_t>;

struct Case {
  const char* golden;
  const char* backend;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.golden << " on " << c.backend; }

class PlanIsRunTest : public testing::TestWithParam<Case> {
 protected:
  static const StepSummary& StepNamed(const PlannedModel& plan, std::string_view prefix) {
    for (const StepSummary& step : plan.steps) {
      if (step.name.starts_with(prefix)) return step;
    }
    ADD_FAILURE() << "no step " << prefix;
    return plan.steps.at(0);
  }
  static Counts CountsOf(const StepSummary& step) {
    Counts counts;
    int64_t records = 0;
    for (const auto& [kernel, count] : step.kernels) {
      EXPECT_TRUE(counts.emplace(kernel, count).second) << kernel << " twice";
      records += count;
    }
    EXPECT_EQ(records, step.records);
    return counts;
  }
  // What ran since `before`.
  static Counts Since(const ModelRunner& runner, const Counts& before) {
    Counts counts;
    for (const auto& [kernel, count] : runner.steps().dispatched()) {
      const auto it = before.find(kernel);
      const int64_t more = count - (it == before.end() ? 0 : it->second);
      if (more != 0) counts[kernel] = more;
    }
    return counts;
  }
};

TEST_P(PlanIsRunTest, KernelsAndCounts) {
  constexpr int64_t kRows = 6;
  const auto runner =
      test::RunnerFor(GetParam().golden,
                      {.backend = GetParam().backend, .max_seq_len = 40, .prefill_chunk = kRows});
  const PlannedModel& plan = runner->plan();
  const bool encoder_only = plan.kind() == ModelKind::kEncoder;
  // An encoder's only step is the whole context.
  const std::vector<int32_t> ids(encoder_only ? 40 : kRows, 5);
  Counts before;
  if (runner->has_encoder()) {
    ASSERT_TRUE(runner->Encode(std::vector<int32_t>(40, 5)).ok());
    EXPECT_EQ(Since(*runner, before), CountsOf(StepNamed(plan, "encode")));
    before = runner->steps().dispatched();
  }
  if (!encoder_only) {
    // Prefills are planned where they need most: after other tokens.
    ASSERT_TRUE(runner->Extend(std::vector<int32_t>(3 * kRows, 6), WantLogits::kNone).ok());
    before = runner->steps().dispatched();
  }
  ASSERT_TRUE(runner->Extend(ids, encoder_only ? WantLogits::kAll : WantLogits::kLast).ok());
  EXPECT_EQ(Since(*runner, before), CountsOf(StepNamed(plan, "prefill")));
  if (encoder_only) return;
  before = runner->steps().dispatched();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(runner->Extend(std::vector<int32_t>{7}, WantLogits::kLast).ok());
  }
  Counts three = CountsOf(StepNamed(plan, "decode"));
  for (auto& [kernel, count] : three) count *= 3;
  EXPECT_EQ(Since(*runner, before), three);
}

INSTANTIATE_TEST_SUITE_P(
    All, PlanIsRunTest,
    testing::Values(Case{"llama", "NATIVE"}, Case{"llama", "VANILLA"}, Case{"llama", "FLASHINFER"},
                    Case{"deepseek_v2", "FLASHINFER"}, Case{"llama_bias", "auto"},
                    Case{"llama_rope_dynamic", "auto"}, Case{"mixtral", "auto"},
                    Case{"deepseek_v2", "auto"}, Case{"deepseek_v2_lite", "auto"},
                    Case{"mamba2", "auto"}, Case{"lfm2", "auto"}, Case{"t5", "auto"},
                    Case{"t5_v1_1", "auto"}, Case{"bert", "auto"}),
    [](const auto& info) { return std::string(info.param.golden) + "_" + info.param.backend; });

}  // namespace
}  // namespace tenon
