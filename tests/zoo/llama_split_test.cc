// The target for small Llamas is the family's model in other words: the same logits, whole, in
// chunks and token by token, with fewer meetings; and it refuses what it cannot serve.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "checkpoint/fixtures.h"
#include "support/paths.h"
#include "support/words.h"
#include "tenon/checkpoint/writers.h"
#include "tenon/engine/model_runner.h"
#include "tenon/numeric/codecs.h"
#include "tenon/ops/kernel_choice.h"
#include "tenon/plan/options.h"
#include "tenon/zoo/zoo.h"

namespace tenon {
namespace {

// The golden llama with MLPs of another width, whose numbers are made up.
class WideLlama {
 public:
  explicit WideLlama(int64_t width) {
    const auto source = test::OpenOrDie(test::DataPath("goldens/llama_hd64"));
    Json config = *source->config();
    config.Set("intermediate_size", width);
    directory_.Write("config.json", config.Dump());
    std::vector<OutputTensor> tensors;
    std::deque<std::vector<uint16_t>> numbers;
    uint32_t seed = 1;
    for (const StoredTensor& tensor : source->tensors()) {
      const std::string name(tensor.name);
      const TensorView stored = *source->MapTensor(tensor);
      if (name.find(".mlp.") == std::string::npos) {
        tensors.push_back(OutputTensor::Of(name, stored));
        continue;
      }
      const int64_t hidden = config.Find("hidden_size")->as_int();
      const bool is_down = name.find("down") != std::string::npos;
      std::vector<uint16_t>& data = numbers.emplace_back(static_cast<size_t>(width * hidden));
      for (uint16_t& number : data) {
        seed = seed * 1664525 + 1013904223;
        number = FloatToBf16(static_cast<float>(seed >> 8) / (1 << 24) * 0.2f - 0.1f);
      }
      tensors.push_back(OutputTensor::Of(
          name, TensorView(DType::kBF16, is_down ? Shape{hidden, width} : Shape{width, hidden},
                           reinterpret_cast<std::byte*>(data.data()))));
    }
    TN_CHECK(WriteSafetensors(directory_ / "model.safetensors", tensors).ok(), "written");
  }
  std::string path() const { return directory_.path(); }

 private:
  test::TempDir directory_;
};

Result<std::unique_ptr<PlannedModel>> Plan(const std::string& path,
                                           std::vector<OptionSetting> settings) {
  const auto registry = MakeRegistry();
  settings.push_back({"max-seq-len", "64"});
  TN_ASSIGN_OR_RETURN(EngineOptions options,
                      EngineOptionTable().Resolve({.command_line = std::move(settings)}));
  return PlanModel(path, std::move(options), *registry);
}

bool MachinePacksBf16() { return DetectMachine().isa >= Isa::kAvx512Bf16Vnni; }

// All rows of a prompt in two chunks, then four tokens.
std::vector<float> LogitsOf(std::unique_ptr<PlannedModel> plan) {
  auto runner = ModelRunner::Load(std::move(plan));
  TN_CHECK(runner.ok(), runner.message().c_str());
  std::vector<float> logits;
  const auto extend = [&](std::vector<int32_t> ids) {
    TN_CHECK((*runner)->Extend(ids, WantLogits::kAll).ok(), "ids of the model");
    const auto now = (*runner)->logits();
    logits.insert(logits.end(), now.begin(), now.end());
  };
  extend({5, 9, 17, 31, 7, 7, 90, 12, 13, 14, 15, 16});
  extend({3, 4, 6});
  for (const int32_t id : {8, 1, 77, 2}) extend({id});
  return logits;
}

TEST(LlamaSplit, IsTheSameModelWithFewerMeetings) {
  if (!MachinePacksBf16()) GTEST_SKIP() << "no bf16 kernels here";
  const WideLlama model(256);
  for (const char* threads : {"2", "4"}) {
    const auto plan_for = [&](const char* mode) {
      return Plan(model.path(), {{"weights", "packed"}, {"target", mode}, {"threads", threads}});
    };
    auto family = plan_for("off");
    auto target = plan_for("require");
    ASSERT_TRUE(family.ok()) << family.message();
    ASSERT_TRUE(target.ok()) << target.message();
    ASSERT_NE((*target)->resolution.target, nullptr);
    EXPECT_EQ((*target)->resolution.target->name, "llama-split-mlp");
    EXPECT_EQ((*target)->memory.weights_stored, (*family)->memory.weights_stored);
    const int64_t layers = (*family)->config->layers.value;
    EXPECT_EQ((*target)->steps.back().meetings, (*family)->steps.back().meetings - layers);
    const std::vector<float> want = LogitsOf(*std::move(family));
    const std::vector<float> got = LogitsOf(*std::move(target));
    ASSERT_EQ(got.size(), want.size());
    double squares = 0;
    double top = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const double d = static_cast<double>(got[i]) - static_cast<double>(want[i]);
      squares += d * d;
      top = std::max(top, std::abs(static_cast<double>(want[i])));
    }
    // Sums in another order now and then round an activation to the next bf16.
    EXPECT_LT(std::sqrt(squares / static_cast<double>(want.size())), 1e-3 * top) << threads;
  }
}

// What it does not serve: recorded where the choice is automatic, an error where it is required.
TEST(LlamaSplit, RefusesWhatItCannotServe) {
  const WideLlama model(256);
  const auto refused = [&](std::vector<OptionSetting> settings, std::string_view criterion) {
    settings.push_back({"target", "require"});
    const auto required = Plan(model.path(), settings);
    ASSERT_FALSE(required.ok()) << criterion;
    EXPECT_EQ(required.code(), StatusCode::kRefused);
    test::ExpectWords(required.message(), {"target = require", "llama-split-mlp", criterion,
                                           "no match", "--target auto"});
    settings.back().value = "auto";
    const auto automatic = Plan(model.path(), settings);
    ASSERT_TRUE(automatic.ok()) << automatic.message();
    EXPECT_EQ((*automatic)->resolution.target, nullptr);
    test::ExpectWords((*automatic)->resolution.trace.back().why, {"not chosen", criterion});
  };
  refused({{"compute", "fp32"}, {"threads", "2"}}, "compute = fp32, wants bf16");
  refused({{"weights", "in-place"}, {"threads", "2"}}, "in place, wants packed");
  if (!MachinePacksBf16()) return;
  refused({{"weights", "packed"}, {"threads", "3"}}, "threads = 3, wants 2 or 4");
}

// NoTarget, at construction: a width that parts do not divide.
TEST(LlamaSplit, AnswersNoTargetForOddWidths) {
  if (!MachinePacksBf16()) GTEST_SKIP() << "no bf16 kernels here";
  const WideLlama model(192);
  const auto automatic = Plan(model.path(), {{"weights", "packed"}, {"threads", "2"}});
  ASSERT_TRUE(automatic.ok()) << automatic.message();
  EXPECT_EQ((*automatic)->resolution.target, nullptr);
  EXPECT_EQ((*automatic)->resolution.trace.back().outcome, "built-in");
  test::ExpectWords((*automatic)->resolution.trace.back().why,
                    {"'llama-split-mlp' refuses", "layer 0 has an MLP of width 192"});
  const auto required =
      Plan(model.path(), {{"weights", "packed"}, {"threads", "2"}, {"target", "require"}});
  ASSERT_FALSE(required.ok());
  test::ExpectWords(required.message(), {"target = require", "'llama-split-mlp' refuses"});
}

}  // namespace
}  // namespace tenon
