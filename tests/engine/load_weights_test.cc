// Packed weights against rows in place: the same model whichever way its weights are held, and the
// memory that the plan counts. Machines without packed forms have nothing to test here.
#include "tenon/engine/load_weights.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/runners.h"
#include "tenon/ops/kernel_choice.h"
#include "tenon/ops/pack_weights.h"

namespace tenon {
namespace {

bool MachinePacks() { return CanPack(KernelsFor(DetectMachine().isa), DType::kBF16); }

std::vector<float> LogitsOf(const std::string& golden, const std::string& weights) {
  const auto runner =
      test::RunnerFor(golden, {.compute = "auto", .weights = weights, .threads = 2});
  const bool packs = weights == "packed";
  EXPECT_EQ(PackedTotalOf(*runner->plan().context).matrices > 0, packs);
  std::vector<float> logits;
  const std::vector<int32_t> ids = {5, 9, 200, 31, 7, 7, 90, 12, 13, 14, 15, 16};
  if (runner->has_encoder()) TN_CHECK(runner->Encode(ids).ok(), "ids of the model");
  TN_CHECK(runner->Extend(ids, WantLogits::kAll).ok(), "ids of the model");
  const auto append = [&] {
    const auto now = runner->logits();
    logits.insert(logits.end(), now.begin(), now.end());
  };
  append();
  if (runner->plan().kind() == ModelKind::kEncoder) return logits;
  for (const int32_t id : {3, 77}) {
    TN_CHECK(runner->Extend({&id, 1}, WantLogits::kLast).ok(), "an id of the model");
    append();
  }
  return logits;
}

class LoadWeightsTest : public testing::TestWithParam<const char*> {};

TEST_P(LoadWeightsTest, PackedIsTheSameModel) {
  if (!MachinePacks()) return;
  const std::vector<float> rows = LogitsOf(GetParam(), "in-place");
  const std::vector<float> packed = LogitsOf(GetParam(), "packed");
  ASSERT_EQ(packed.size(), rows.size());
  double top = 0;
  double squares = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const double difference = static_cast<double>(packed[i]) - static_cast<double>(rows[i]);
    top = std::max(top, std::abs(static_cast<double>(rows[i])));
    squares += difference * difference;
  }
  // Sums in another order now and then round an activation to the next bf16.
  EXPECT_LT(std::sqrt(squares / static_cast<double>(rows.size())), 1e-3 * top);
}

INSTANTIATE_TEST_SUITE_P(All, LoadWeightsTest,
                         testing::Values("llama", "mixtral", "deepseek_v2", "mamba2", "lfm2", "t5",
                                         "bert"));

}  // namespace
}  // namespace tenon
