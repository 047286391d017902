// Whole models on caches of every dtype: the two backends see the same rows, so that their logits
// agree; against rows as computed they are as far off as the dtype is coarse.
#include <cmath>

#include "engine/runners.h"
#include "tenon/cache/kv_format.h"

namespace tenon {
namespace {

struct Case {
  const char* golden;
  const char* dtype;
  double error;  // relative, of the logits; about twice what was measured
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.golden << " " << c.dtype; }

// Two chunks of a prompt, then tokens one by one; the logits of the last.
std::vector<float> LogitsWith(const Case& c, const char* backend, const char* dtype) {
  const auto runner = test::RunnerFor(
      c.golden, {.backend = backend, .kv_dtype = dtype, .max_seq_len = 96, .prefill_chunk = 32});
  if (runner->has_encoder()) EXPECT_TRUE(runner->Encode(std::vector<int32_t>(40, 5)).ok());
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 50; ++i) prompt.push_back(3 + i * 7 % 90);
  EXPECT_TRUE(runner->Extend(prompt, WantLogits::kNone).ok());
  for (const int32_t id : {9, 40, 17})
    EXPECT_TRUE(runner->Extend(std::vector<int32_t>{id}, WantLogits::kLast).ok());
  return test::Logits(*runner);
}

double Relative(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / norm);
}

class KvDTypeTest : public testing::TestWithParam<Case> {};

TEST_P(KvDTypeTest, BackendsAgreeAndTheErrorIsTheDTypes) {
  const Case& c = GetParam();
  const std::vector<float> native = LogitsWith(c, "NATIVE", c.dtype);
  const std::vector<float> vanilla = LogitsWith(c, "VANILLA", c.dtype);
  const std::vector<float> exact = LogitsWith(c, "VANILLA", "f32");
  ASSERT_EQ(native.size(), exact.size());
  const double error = Relative(vanilla, exact);
  RecordProperty("relative_error", std::to_string(error));
  EXPECT_LT(error, c.error);
  EXPECT_GT(error, c.error / 50) << "the dtype is not used";
  // A last bit may be rounded into another code.
  const double between = Relative(native, vanilla);
  RecordProperty("relative_difference", std::to_string(between));
  EXPECT_LT(between, c.error / 10);
}

INSTANTIATE_TEST_SUITE_P(
    All, KvDTypeTest,
    testing::Values(Case{"llama_hd64", "bf16", 7e-3}, Case{"llama_hd64", "fp16", 7e-4},
                    Case{"llama_hd64", "fp8_e4m3", 0.15}, Case{"llama_hd64", "int8", 0.026},
                    Case{"llama_hd64", "nvfp4", 0.3}, Case{"deepseek_v2", "fp16", 8e-4},
                    Case{"deepseek_v2", "fp8_e4m3", 0.11}, Case{"deepseek_v2", "int8", 0.023},
                    Case{"mixtral", "int8", 0.043}, Case{"t5", "int8", 0.017}),
    [](const auto& info) { return std::string(info.param.golden) + "_" + info.param.dtype; });

}  // namespace
}  // namespace tenon
