// Products of real checkpoint layouts with fp32 activations (goldens_quant_hf: golden.y = x times
// the dequantised weight, by the decoders of the projects that the layouts come from).
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "ops/op_runner.h"
#include "support/paths.h"
#include "tenon/checkpoint/checkpoint.h"

namespace tenon {
namespace {

using test::At;
using test::D;
using test::OpRunner;
using test::OverTeams;

struct Scheme {
  const char* name;
  const char* scales;
  int64_t rows, cols;  // of a scale; 0: all of them
};
constexpr Scheme kSchemes[] = {
    {"ct_int8_w8a8", "linear.weight_scale", 1, 0},
    {"ct_fp8_channel", "linear.weight_scale", 1, 0},
    {"ct_fp8_tensor", "linear.weight_scale", 0, 0},
    {"fp8_block_128", "linear.weight_scale_inv", 128, 128},
    {"fp8_block_128_exact", "linear.weight_scale_inv", 128, 128},
    {"fp8_block_128_ragged", "linear.weight_scale_inv", 128, 128},
};

TensorView Tensor(const Checkpoint& checkpoint, const char* name) {
  const StoredTensor* tensor = checkpoint.FindTensor(name);
  TN_CHECK(tensor != nullptr, name);
  return *checkpoint.MapTensor(*tensor);
}
// Widened to fp32, as whoever holds the weight does.
std::vector<float> Floats(const Checkpoint& checkpoint, const char* name) {
  const TensorView view = Tensor(checkpoint, name);
  std::vector<float> values(At(view.shape().elements()));
  DecoderOf(view.dtype())(view.data(), view.shape().elements(), values.data());
  return values;
}

// The checkpoint's weight with its scales as fp32.
struct Golden {
  explicit Golden(const Scheme& scheme)
      : file(*Checkpoint::Open(
            test::DataPath("goldens_quant_hf/" + std::string(scheme.name) + ".safetensors"))),
        scales(Floats(*file, scheme.scales)),
        dequant(Floats(*file, "golden.dequant")) {
    const TensorView view = Tensor(*file, "linear.weight");
    weight.data = view.data();
    weight.dtype = view.dtype();
    weight.rows = view.dim(0);
    weight.cols = view.dim(1);
    weight.row_bytes = view.row_bytes();
    weight.scales.data = scales.data();
    weight.scales.rows = scheme.rows > 0 ? scheme.rows : weight.rows;
    weight.scales.cols = scheme.cols > 0 ? scheme.cols : weight.cols;
    weight.scales.stride = CeilDiv(weight.cols, weight.scales.cols);
    weight.input = InputRounding::kInt8PerToken;  // which fp32 compute leaves aside
  }
  // y [num_tokens, rows] of x [num_tokens, cols].
  std::vector<float> Product(const std::vector<float>& x) const {
    const Shape shape{static_cast<int64_t>(x.size()) / weight.cols, weight.cols};
    return OverTeams([&](OpRunner& run) {
      return std::vector{Matmul(run.tape(), {&weight, 1}, run.Input(shape, x))};
    })[0];
  }

  std::unique_ptr<Checkpoint> file;
  std::vector<float> scales;
  std::vector<float> dequant;  // [rows, cols]
  MatrixRef weight;
};

class ScaledGoldenTest : public testing::TestWithParam<Scheme> {};

TEST_P(ScaledGoldenTest, Product) {
  const Golden golden(GetParam());
  const auto [rows, cols] = std::pair(golden.weight.rows, golden.weight.cols);
  const std::vector<float> x = Floats(*golden.file, "golden.x");
  const std::vector<float> expected = Floats(*golden.file, "golden.y");
  const std::vector<float> y = golden.Product(x);
  ASSERT_EQ(y.size(), expected.size());
  for (size_t i = 0; i < y.size(); ++i) {
    const float* row = golden.dequant.data() + static_cast<int64_t>(i) % rows * cols;
    const float* token = x.data() + static_cast<int64_t>(i) / rows * cols;
    double magnitude = 0;
    for (int64_t c = 0; c < cols; ++c) magnitude += std::abs(D(row[c]) * D(token[c]));
    // Both sides are fp32 sums of 384 numbers at most, each in its own order.
    ASSERT_NEAR(D(y[i]), D(expected[i]), 3e-6 * magnitude) << "at " << i;
  }
}

// One-hot inputs give the dequantised weight itself, bit for bit.
TEST_P(ScaledGoldenTest, Weight) {
  const Golden golden(GetParam());
  const auto [rows, cols] = std::pair(golden.weight.rows, golden.weight.cols);
  std::vector<float> x(At(cols * cols));
  for (int64_t c = 0; c < cols; ++c) x[At(c * cols + c)] = 1;
  const std::vector<float> y = golden.Product(x);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      ASSERT_EQ(y[At(c * rows + r)], golden.dequant[At(r * cols + c)]) << r << ", " << c;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schemes, ScaledGoldenTest, testing::ValuesIn(kSchemes),
                         [](const auto& scheme) { return std::string(scheme.param.name); });

}  // namespace
}  // namespace tenon
