// The small real model against the reference (shared/goldens_smollm2): the GGUF against gguf_fp32,
// the Hugging Face directory against hf_bf16. Optional: says so when the model or the goldens are
// not there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "support/isa.h"
#include "support/paths.h"
#include "tenon/base/env.h"
#include "tenon/base/file.h"
#include "tenon/engine/model_runner.h"
#include "tenon/plan/options.h"
#include "tenon/zoo/zoo.h"

namespace tenon {
namespace {

constexpr const char* kPrompts[] = {"p1_plain_logbook", "p2_plain_facts", "p3_code_python",
                                    "p4_chat_default",  "p5_chat_turns",  "p6_long_600"};
constexpr double kLogitTolerance = 2e-3;
constexpr double kMargin = 0.01;  // smaller margins are honest ties

std::vector<int32_t> IdsOf(const Json& list) {
  std::vector<int32_t> ids;
  for (const Json& id : list.as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
  return ids;
}

struct Source {
  const char* variable;   // environment: where the model is
  const char* reference;  // which answers it is held to
};
void PrintTo(const Source& source, std::ostream* out) { *out << source.reference; }

class SmolLm2Test : public testing::TestWithParam<Source> {};

TEST_P(SmolLm2Test, LogitsAndGreedyTokens) {
  const auto path = GetEnv(GetParam().variable);
  const std::string folder = test::SharedPath("goldens_smollm2");
  if (!path || folder.empty()) {
    GTEST_SKIP() << GetParam().variable
                 << " or TENON_SHARED_DIR is not set: SmolLM2 was not compared";
  }
  const auto registry = MakeRegistry();
  auto options =
      EngineOptionTable().Resolve({.command_line = {{"isa", std::string(NameOf(test::TestIsa()))},
                                                    {"compute", "fp32"},
                                                    {"max-seq-len", "1024"}}});
  ASSERT_TRUE(options.ok()) << options.message();
  auto plan = PlanModel(*path, *std::move(options), *registry);
  ASSERT_TRUE(plan.ok()) << plan.message();
  auto runner = ModelRunner::Load(*std::move(plan));
  ASSERT_TRUE(runner.ok()) << runner.message();
  for (const std::string name : kPrompts) {
    SCOPED_TRACE(name);
    const Json golden = *ReadJsonFile(folder + "/" + name + ".json");
    const Json& answers = *golden.Find("refs")->Find(GetParam().reference);
    (*runner)->Reset();
    ASSERT_TRUE((*runner)->Extend(IdsOf(*golden.Find("input_ids")), WantLogits::kLast).ok());
    const std::string bytes = *ReadFile(folder + "/" + answers.Find("last_logits")->as_string());
    std::vector<float> expected(bytes.size() / 4);
    std::memcpy(expected.data(), bytes.data(), bytes.size());
    ASSERT_EQ((*runner)->logits().size(), expected.size());
    double worst = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>((*runner)->logits()[i]) -
                                       static_cast<double>(expected[i])));
    }
    EXPECT_LE(worst, kLogitTolerance);
    const std::vector<int32_t> greedy = IdsOf(*answers.Find("greedy")->Find("ids"));
    const Json::Array& margins = answers.Find("greedy")->Find("margins")->as_array();
    for (size_t step = 0; step < greedy.size(); ++step) {
      const auto logits = (*runner)->logits();
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      // The reference's token goes on even where a tie went the other way.
      if (margins[step].as_double() > kMargin) EXPECT_EQ(best, greedy[step]) << "step " << step;
      ASSERT_TRUE((*runner)->Extend({&greedy[step], 1}, WantLogits::kLast).ok());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SmolLm2Test,
                         testing::Values(Source{"TENON_TEST_MODEL", "gguf_fp32"},
                                         Source{"TENON_TEST_MODEL_HF", "hf_bf16"}));

}  // namespace
}  // namespace tenon
