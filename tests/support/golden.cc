#include "support/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tenon/base/json.h"
#include "tenon/numeric/decode.h"

namespace tenon::test {

Golden::Golden(const std::string& directory) {
  auto file = Checkpoint::Open(directory + "/golden.safetensors");
  auto json = ReadJsonFile(directory + "/golden.json");
  if (!file.ok() || !json.ok()) {
    ADD_FAILURE() << file.message() << json.message();
    return;
  }
  file_ = *std::move(file);
  const Json& fp32 = *json->Find("tolerance")->Find("fp32");
  atol = fp32.Find("atol")->as_double();
  rtol = fp32.Find("rtol")->as_double();
  for (const Json& feature : json->Find("features")->as_array())
    features_.push_back(feature.as_string());
  for (int i = 0;; ++i) {
    const std::string prefix = "p" + std::to_string(i) + ".";
    if (file_->FindTensor(prefix + "input_ids") == nullptr) break;
    prompts.push_back({Ints(prefix + "input_ids"), Ints(prefix + "decoder_input_ids"),
                       Floats(prefix + "logits"), Ints(prefix + "greedy"),
                       Floats(prefix + "greedy_margin")});
  }
  EXPECT_FALSE(prompts.empty()) << directory;
}

bool Golden::HasFeature(const std::string& feature) const {
  return std::find(features_.begin(), features_.end(), feature) != features_.end();
}

std::vector<float> Golden::Floats(const std::string& name) const {
  const StoredTensor* tensor = file_->FindTensor(name);
  if (tensor == nullptr) return {};
  const TensorView view = *file_->MapTensor(*tensor);
  std::vector<float> values(static_cast<size_t>(view.shape().elements()));
  DecoderOf(view.dtype())(view.data(), view.shape().elements(), values.data());
  return values;
}

std::vector<int32_t> Golden::Ints(const std::string& name) const {
  const StoredTensor* tensor = file_->FindTensor(name);
  if (tensor == nullptr) return {};
  const TensorView view = *file_->MapTensor(*tensor);
  EXPECT_EQ(view.dtype(), DType::kI32) << name;
  std::vector<int32_t> values(static_cast<size_t>(view.shape().elements()));
  std::memcpy(values.data(), view.data(), values.size() * 4);
  return values;
}

Difference Compare(std::span<const float> a, std::span<const float> b, double rtol) {
  Difference difference;
  difference.worst = -1;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double excess = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])) -
                          rtol * std::abs(static_cast<double>(b[i]));
    if (!(excess <= difference.worst)) difference = {excess, i};  // NaN counts as worst
  }
  return difference;
}

}  // namespace tenon::test
