// Every golden directory whose architecture is served reproduces the reference's logits and greedy
// tokens: whole, in chunks, token by token; with every attention backend that has its features.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "checkpoint/fixtures.h"
#include "support/golden.h"
#include "support/isa.h"
#include "support/paths.h"
#include "tenon/engine/model_runner.h"
#include "tenon/plan/options.h"
#include "tenon/zoo/zoo.h"

namespace tenon {
namespace {

struct Case {
  std::string name;
  std::string backend;
  int64_t threads = 1;
  std::string jit = "off";
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name << " on " << c.backend << (c.jit == "off" ? "" : ", compiled");
}

// Served: by what the static index says.
std::vector<std::string> ServedGoldens() {
  std::vector<std::string> names;
  const auto registry = MakeRegistry();
  for (const auto& entry : std::filesystem::directory_iterator(test::DataPath("goldens"))) {
    const auto config = ReadJsonFile(entry.path() / "config.json");
    if (!config.ok()) continue;
    const std::string architecture = config->Find("architectures")->as_array()[0].as_string();
    const ArchitectureRow* row = registry->FindRow(architecture);
    if (row != nullptr && registry->IsServed(*row)) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Chunked attention is what FLASHINFER has not.
bool HasChunks(const std::string& name) {
  const auto config = ReadJsonFile(test::DataPath("goldens/" + name) + "/config.json");
  for (const char* part : {"", "text_config"}) {
    const Json* fields = *part == 0 ? &*config : config->Find(part);
    const Json* chunk = fields == nullptr ? nullptr : fields->Find("attention_chunk_size");
    if (chunk != nullptr && !chunk->is_null()) return true;
  }
  return false;
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::string& name : ServedGoldens()) {
    if (!HasChunks(name)) cases.push_back({name, "FLASHINFER", 2});
    cases.push_back({name, "NATIVE", 2});
    cases.push_back({name, "VANILLA", 1});
  }
  // Rows of heads alone, with windows and soft-caps, with sinks.
  for (const char* name : {"llama_hd64", "gemma2", "gpt_oss_hd64"})
    cases.push_back({name, "FLASHINFER", 2, "require"});
  return cases;
}

Result<std::unique_ptr<ModelRunner>> Load(const Case& c, int64_t prefill_chunk) {
  const auto registry = MakeRegistry();
  // Not into the user's.
  static const test::TempDir cache;
  ::setenv("XDG_CACHE_HOME", cache.path().c_str(), 1);
  TN_ASSIGN_OR_RETURN(EngineOptions options,
                      EngineOptionTable().Resolve(
                          {.command_line = {{"isa", std::string(NameOf(test::TestIsa()))},
                                            {"compute", "fp32"},
                                            {"attn-backend", c.backend},
                                            {"attn-jit", c.jit},
                                            {"threads", std::to_string(c.threads)},
                                            {"prefill-chunk", std::to_string(prefill_chunk)},
                                            // Small, so that a chunked prefill crosses it.
                                            {"mla-context-chunk", "16"}}}));
  TN_ASSIGN_OR_RETURN(
      auto plan, PlanModel(test::DataPath("goldens/" + c.name), std::move(options), *registry));
  return ModelRunner::Load(std::move(plan));
}

class GoldenTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    golden_ = std::make_unique<test::Golden>(test::DataPath("goldens/" + GetParam().name));
  }
  // Rotations that depend on the total length differ, also in the reference, once the cache is
  // used.
  bool LengthDependent() const {
    return golden_->HasFeature("rope_dynamic_ntk") || golden_->HasFeature("rope_longrope");
  }
  void Start(ModelRunner& runner, const test::GoldenPrompt& prompt) {
    runner.Reset();
    if (runner.has_encoder()) {
      const Status status = runner.Encode(prompt.input_ids);
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }
  static std::span<const int32_t> Ids(const ModelRunner& runner, const test::GoldenPrompt& prompt) {
    return runner.has_encoder() ? prompt.decoder_input_ids : prompt.input_ids;
  }
  void ExpectLogits(std::span<const float> logits, const test::GoldenPrompt& prompt,
                    const char* how) {
    ASSERT_EQ(logits.size(), prompt.logits.size()) << how;
    const test::Difference d = test::Compare(logits, prompt.logits, golden_->rtol);
    EXPECT_LE(d.worst, golden_->atol) << how << ": " << logits[d.index] << " against "
                                      << prompt.logits[d.index] << " at " << d.index;
  }
  std::unique_ptr<test::Golden> golden_;
};

TEST_P(GoldenTest, WholePrompts) {
  auto runner = Load(GetParam(), 512);
  ASSERT_TRUE(runner.ok()) << runner.message();
  for (const test::GoldenPrompt& prompt : golden_->prompts) {
    Start(**runner, prompt);
    const Status status = (*runner)->Extend(Ids(**runner, prompt), WantLogits::kAll);
    ASSERT_TRUE(status.ok()) << status.message();
    ExpectLogits((*runner)->logits(), prompt, "whole");
  }
}

TEST_P(GoldenTest, ChunksAndSingleTokens) {
  auto chunked = Load(GetParam(), 7);
  ASSERT_TRUE(chunked.ok()) << chunked.message();
  if ((*chunked)->plan().kind() == ModelKind::kEncoder) return;  // sees its input at once
  for (const test::GoldenPrompt& prompt : golden_->prompts) {
    const std::span<const int32_t> ids = Ids(**chunked, prompt);
    Start(**chunked, prompt);
    ASSERT_TRUE((*chunked)->Extend(ids, WantLogits::kAll).ok());
    ExpectLogits((*chunked)->logits(), prompt, "chunks of 7");
    if (LengthDependent()) continue;
    Start(**chunked, prompt);
    std::vector<float> logits;
    for (const int32_t id : ids) {
      ASSERT_TRUE((*chunked)->Extend(std::span(&id, 1), WantLogits::kLast).ok());
      logits.insert(logits.end(), (*chunked)->logits().begin(), (*chunked)->logits().end());
    }
    ExpectLogits(logits, prompt, "token by token");
  }
}

TEST_P(GoldenTest, Greedy) {
  auto runner = Load(GetParam(), 512);
  ASSERT_TRUE(runner.ok()) << runner.message();
  for (const test::GoldenPrompt& prompt : golden_->prompts) {
    if (prompt.greedy.empty()) continue;
    Start(**runner, prompt);
    const std::span<const int32_t> ids = Ids(**runner, prompt);
    std::vector<int32_t> sequence(ids.begin(), ids.end());
    ASSERT_TRUE((*runner)->Extend(sequence, WantLogits::kLast).ok());
    for (size_t step = 0; step < prompt.greedy.size(); ++step) {
      if (prompt.greedy_margin[step] <= 1e-3f) break;
      const auto logits = (*runner)->logits();
      const auto best =
          static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      ASSERT_EQ(best, prompt.greedy[step]) << "step " << step;
      sequence.push_back(best);
      if (LengthDependent()) {  // recompute, as the reference does
        (*runner)->Reset();
        ASSERT_TRUE((*runner)->Extend(sequence, WantLogits::kLast).ok());
      } else {
        ASSERT_TRUE((*runner)->Extend(std::span(&sequence.back(), 1), WantLogits::kLast).ok());
      }
    }
  }
}

TEST_P(GoldenTest, HiddenStates) {
  auto runner = Load(GetParam(), 512);
  ASSERT_TRUE(runner.ok()) << runner.message();
  const test::GoldenPrompt& prompt = golden_->prompts[1];
  (*runner)->set_taps(true);
  Start(**runner, prompt);
  ASSERT_TRUE((*runner)->Extend(Ids(**runner, prompt), WantLogits::kLast).ok());
  int compared = 0;
  for (const auto& [name, tap] : (*runner)->taps()) {
    const std::vector<float> expected = golden_->Floats("p1." + name);
    if (expected.empty()) continue;
    ASSERT_EQ(tap.rows.size(), expected.size()) << name;
    EXPECT_LE(test::Compare(tap.rows, expected, 1e-3).worst, 1e-3) << name;
    ++compared;
  }
  EXPECT_GE(compared, 2);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTest, testing::ValuesIn(Cases()), [](const auto& info) {
  return info.param.name + "_" + info.param.backend + (info.param.jit == "off" ? "" : "_compiled");
});

TEST(Goldens, TheListIsNotEmpty) { EXPECT_GE(ServedGoldens().size(), 18u); }

}  // namespace
}  // namespace tenon
