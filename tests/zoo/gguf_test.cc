// Every GGUF golden whose answers lie beside it (<name>.safetensors: the reference in fp32 on the
// dequantised weights) gives the reference's logits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "support/golden.h"
#include "support/isa.h"
#include "support/paths.h"
#include "tenon/engine/model_runner.h"
#include "tenon/plan/options.h"
#include "tenon/zoo/zoo.h"

namespace tenon {
namespace {

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(test::DataPath("goldens_gguf"))) {
    if (entry.path().extension() == ".safetensors") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

template <typename To, typename From>
std::vector<To> Numbers(const Checkpoint& file, const std::string& name) {
  const StoredTensor* tensor = file.FindTensor(name);
  if (tensor == nullptr) return {};
  const TensorView view = *file.MapTensor(*tensor);
  std::vector<From> stored(static_cast<size_t>(view.shape().elements()));
  std::memcpy(stored.data(), view.data(), stored.size() * sizeof(From));
  return {stored.begin(), stored.end()};
}

class GgufGolden : public testing::TestWithParam<std::string> {};

TEST_P(GgufGolden, Logits) {
  const std::string path = test::DataPath("goldens_gguf/" + GetParam());
  const auto answers = Checkpoint::Open(path + ".safetensors");
  ASSERT_TRUE(answers.ok()) << answers.message();
  const auto registry = MakeRegistry();
  auto options = EngineOptionTable().Resolve(
      {.command_line = {{"isa", std::string(NameOf(test::TestIsa()))}, {"compute", "fp32"}}});
  ASSERT_TRUE(options.ok()) << options.message();
  auto plan = PlanModel(path + ".gguf", *std::move(options), *registry);
  ASSERT_TRUE(plan.ok()) << plan.message();
  auto runner = ModelRunner::Load(*std::move(plan));
  ASSERT_TRUE(runner.ok()) << runner.message();
  int compared = 0;
  for (;; ++compared) {
    const auto ids = Numbers<int32_t, int64_t>(**answers, "ids_" + std::to_string(compared));
    if (ids.empty()) break;
    const auto logits = Numbers<float, float>(**answers, "logits_" + std::to_string(compared));
    (*runner)->Reset();
    const Status status = (*runner)->Extend(ids, WantLogits::kAll);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ((*runner)->logits().size(), logits.size());
    const test::Difference d = test::Compare((*runner)->logits(), logits, 2e-4);
    EXPECT_LE(d.worst, 2e-4) << "prompt " << compared << " at " << d.index << ": "
                             << (*runner)->logits()[d.index] << " against " << logits[d.index];
  }
  EXPECT_GE(compared, 2);
}

INSTANTIATE_TEST_SUITE_P(All, GgufGolden, testing::ValuesIn(Names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tenon
