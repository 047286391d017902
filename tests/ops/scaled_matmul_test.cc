// Ops on weights that are codes with scales beside them: what goes through which kernel, and that
// every way gives the product.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/scaled_weights.h"
#include "ops/op_runner.h"
#include "tenon/ops/activation.h"
#include "tenon/ops/gated_feed_forward.h"
#include "tenon/ops/moe.h"

namespace tenon {
namespace {

using test::At;
using test::D;
using test::Floats;
using test::OpRunner;
using test::OverTeams;
using test::Placement;
using test::RandomScaled;
using test::ScaledWeights;
using test::Weights;

MatrixRef RefTo(const ScaledWeights& w, const float* bias = nullptr) {
  MatrixRef ref = test::RefTo(w.codes, bias);
  ref.scales = w.grid;
  return ref;
}
MatrixRef Narrow(MatrixRef ref, InputRounding input = InputRounding::kNone) {
  ref.compute = Compute::kBf16;
  ref.input = input;
  return ref;
}
constexpr InputRounding kInt8 = InputRounding::kInt8PerToken;

bool HasNarrow() { return HasNarrowMatmuls(test::Kernels()); }

// A sum may be off by `relative` of its magnitudes, and by half a step of int8 per product.
struct Tolerance {
  double relative = 0;
  bool int8_steps = false;
};
// fp32: as in the test of the kernels. Else activations, or panels too, are rounded to bf16: 2^-9
// each.
Tolerance ToleranceOf(const MatrixRef& ref) {
  if (ref.compute == Compute::kFp32 || !HasNarrow()) return {2e-6, false};
  return {0x1p-8, ref.input == kInt8};
}

// Column r of y [num_tokens, stride] is the product with row r of the weight.
void ExpectProduct(const ScaledWeights& w, const MatrixRef& ref, const std::vector<float>& x,
                   const float* y, int64_t stride) {
  const Tolerance tolerance = ToleranceOf(ref);
  const int64_t cols = ref.cols;
  for (int64_t t = 0; t < static_cast<int64_t>(x.size()) / cols; ++t) {
    double top = 0;
    for (int64_t c = 0; c < cols; ++c) top = std::max(top, std::abs(D(x[At(t * cols + c)])));
    for (int64_t r = 0; r < ref.rows; ++r) {
      double expected = ref.bias == nullptr ? 0.0 : D(ref.bias[r]);
      double magnitude = std::abs(expected);
      double weights = 0;
      for (int64_t c = 0; c < cols; ++c) {
        const double product = w.At(r, c) * D(x[At(t * cols + c)]);
        expected += product;
        magnitude += std::abs(product);
        weights += std::abs(w.At(r, c));
      }
      const double steps = tolerance.int8_steps ? weights * top / 254 : 0;
      ASSERT_NEAR(D(y[t * stride + r]), expected, tolerance.relative * magnitude + steps + 1e-9)
          << NameOf(ref.dtype) << " token " << t << " row " << r;
    }
  }
}

// Weights of all kinds with one width, and how they are multiplied.
struct Segments {
  explicit Segments(Compute compute) {
    weights.push_back(RandomScaled(DType::kF8E4M3, 200, kCols, test::kBlocks, 1));
    weights.push_back(RandomScaled(DType::kF8E4M3, 33, kCols, test::kPerChannel, 2));
    weights.push_back(RandomScaled(DType::kI8, 70, kCols, test::kPerChannel, 3));
    weights.push_back(RandomScaled(DType::kI8, 9, kCols, test::kPerTensor, 4));
    weights.push_back(RandomScaled(DType::kI8, 5, kCols, test::kPerTensor, 5));
    weights.push_back(RandomScaled(DType::kI8, 130, kCols, test::kBlocks, 6));
    for (const ScaledWeights& w : weights) {
      refs.push_back(RefTo(w, bias.data()));
      refs.back().compute = compute;
      rows += w.codes.rows;
    }
    for (const size_t i : {2u, 3u, 5u}) refs[i].input = kInt8;
  }

  static constexpr int64_t kCols = 300;
  std::vector<float> bias = Floats(200, 9);
  std::vector<ScaledWeights> weights;
  std::vector<MatrixRef> refs;
  int64_t rows = 0;
};

TEST(ScaledMatmulOp, SegmentsOfAllKinds) {
  for (const Compute compute : {Compute::kFp32, Compute::kBf16}) {
    const Segments s(compute);
    for (const int64_t num_tokens : {0, 1, 3, 8, 9, 40}) {
      for (const Placement placement : {Placement::kContiguous, Placement::kSlice}) {
        SCOPED_TRACE(testing::Message() << NameOf(compute) << ", " << num_tokens << " tokens");
        const std::vector<float> x = Floats(num_tokens * s.kCols, 77);
        const std::vector<float> y = OverTeams([&](OpRunner& run) {
          return std::vector{
              Matmul(run.tape(), s.refs, run.Input(Shape{num_tokens, s.kCols}, x, placement))};
        })[0];
        ASSERT_EQ(y.size(), At(num_tokens * s.rows));
        if (num_tokens == 0) continue;
        int64_t first = 0;
        for (size_t i = 0; i < s.refs.size(); ++i) {
          ExpectProduct(s.weights[i], s.refs[i], x, y.data() + first, s.rows);
          first += s.refs[i].rows;
        }
      }
    }
  }
}

// The kernels of the matmuls, without the instruction set.
std::vector<std::string> KernelsOf(std::span<const MatrixRef> refs, int64_t num_tokens) {
  OpRunner run;
  const Shape shape{num_tokens, refs[0].cols};
  Matmul(run.tape(), refs, run.Input(shape, Floats(shape.elements(), 1)));
  run.Run({});
  std::vector<std::string> names;
  for (const Tape::Record& record : run.tape().records()) {
    const std::string_view kernel = record.kernel;
    if (std::string_view(record.op) == "matmul") {
      names.emplace_back(kernel.substr(kernel.find('/') + 1));
    }
  }
  return names;
}

using Names = std::vector<std::string>;

TEST(ScaledMatmulOp, Fp32NeverRoundsActivations) {
  const Segments s(Compute::kFp32);
  for (const int64_t num_tokens : {1, 40}) {
    EXPECT_EQ(KernelsOf(s.refs, num_tokens), (Names{"matmul_f8_e4m3_scaled", "matmul_i8_scaled"}));
  }
}

TEST(ScaledMatmulOp, RunsOfOneKernelShareARecord) {
  if (!HasNarrow()) GTEST_SKIP() << "no such kernels in this table";
  const Segments s(Compute::kBf16);
  EXPECT_EQ(KernelsOf(s.refs, 1),
            (Names{"rows_f8_e4m3_scaled", "rows_i8_per_token", "matmul_i8_scaled"}));
  const Names many = KernelsOf(s.refs, 40);
  ASSERT_EQ(many.size(), 3u);
  EXPECT_TRUE(many[0].ends_with("s_f8_e4m3_scaled")) << many[0];  // panels_ or tiles_
  EXPECT_EQ(many[1], "rows_i8_per_token");
  EXPECT_TRUE(many[2].ends_with("s_i8_scaled")) << many[2];
}

// One value of a row to many tokens: what it is rounded to depends on its own row alone.
TEST(ScaledMatmulOp, Int8TokensDoNotDependOnTheirBatch) {
  const ScaledWeights w = RandomScaled(DType::kI8, 77, 200, test::kPerChannel, 1);
  const std::vector<MatrixRef> refs = {Narrow(RefTo(w), kInt8)};
  const std::vector<float> x = Floats(20 * 200, 2);
  const auto product = [&](int64_t first, int64_t count) {
    const std::vector<float> part(x.begin() + first * 200, x.begin() + (first + count) * 200);
    return OverTeams([&](OpRunner& run) {
      return std::vector{Matmul(run.tape(), refs, run.Input(Shape{count, 200}, part))};
    })[0];
  };
  const std::vector<float> all = product(0, 20);
  for (const int64_t t : {0, 7, 19}) {
    const std::vector<float> one = product(t, 1);
    for (int64_t r = 0; r < 77; ++r) EXPECT_EQ(one[At(r)], all[At(t * 77 + r)]);
  }
}

TEST(ScaledMatmulOp, WeightBytesCountScales) {
  const ScaledWeights blocks = RandomScaled(DType::kF8E4M3, 200, 300, test::kBlocks, 1);
  const ScaledWeights channels = RandomScaled(DType::kI8, 10, 300, test::kPerChannel, 1);
  const MatrixRef refs[] = {RefTo(blocks), RefTo(channels)};
  EXPECT_EQ(WeightBytes({refs, 1}), 200 * 303 + 4 * 2 * 3);
  EXPECT_EQ(WeightBytes(refs), 200 * 303 + 4 * 2 * 3 + 10 * 303 + 4 * 10);
}

TEST(ScaledMatmulOpDeathTest, OurOwnMistakes) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const ScaledWeights w = RandomScaled(DType::kI8, 4, 64, test::kPerChannel, 1);
  const Weights plain = test::RandomWeights(DType::kF32, 4, 64, 1);
  const auto multiply = [](const MatrixRef& ref) {
    OpRunner run;
    Matmul(run.tape(), {&ref, 1}, run.Input(Shape{1, 64}, Floats(64, 1)));
  };
  MatrixRef bare = RefTo(w);
  bare.scales = {};
  EXPECT_DEATH(multiply(bare), "int8 codes have scales");
  MatrixRef scaled = test::RefTo(plain);
  scaled.scales = w.grid;
  EXPECT_DEATH(multiply(scaled), "scales of codes");
  MatrixRef uneven = RefTo(w);
  uneven.scales.cols = 20;
  EXPECT_DEATH(multiply(uneven), "whole steps");
}

// --- other ops that multiply

// gate, up, down
void ExpectGated(const std::vector<MatrixRef>& refs, int64_t num_tokens) {
  const std::span<const MatrixRef, 2> gate_up(refs.data(), 2);
  const std::span<const MatrixRef, 1> down(refs.data() + 2, 1);
  const int64_t rows = refs[0].rows;
  const std::vector<float> x = Floats(num_tokens * refs[0].cols, 3);
  const auto results = OverTeams([&](OpRunner& run) {
    const Value input = run.Input(Shape{num_tokens, refs[0].cols}, x);
    const Value both = Matmul(run.tape(), gate_up, input);
    const Value gated = GatedActivate(run.tape(), Activation::kSilu, both.Slice(1, 0, rows),
                                      both.Slice(1, rows, 2 * rows));
    return std::vector{GatedFeedForward(run.tape(), Activation::kSilu, {gate_up, down}, input),
                       Matmul(run.tape(), down, gated)};
  });
  ASSERT_EQ(results[0].size(), results[1].size());
  for (size_t i = 0; i < results[0].size(); ++i) {
    // What differs in an activation's last bit may be rounded to the next bf16 or int8.
    const float tolerance = refs[2].input == kInt8 ? 4e-3f : 2e-4f;
    ASSERT_NEAR(results[0][i], results[1][i], tolerance * (1 + std::abs(results[1][i])))
        << "at " << i;
  }
}

TEST(ScaledGatedFeedForward, IsTheProductsAndTheActivation) {
  for (const DType dtype : test::kCodeDTypes) {
    for (const test::GridShape& grid : {test::kPerChannel, test::kBlocks}) {
      const ScaledWeights gate = RandomScaled(dtype, 300, 160, grid, 1);
      const ScaledWeights up = RandomScaled(dtype, 300, 160, grid, 2);
      const ScaledWeights down = RandomScaled(dtype, 70, 300, grid, 4);
      const std::vector<float> bias = Floats(300, 5);
      const std::vector<MatrixRef> exact = {RefTo(gate, bias.data()), RefTo(up),
                                            RefTo(down, bias.data())};
      for (const int64_t num_tokens : {0, 1, 3, 9, 40, 200}) {
        SCOPED_TRACE(testing::Message()
                     << NameOf(dtype) << ", " << grid.rows << ", " << num_tokens << " tokens");
        ExpectGated(exact, num_tokens);
        for (const InputRounding input : {InputRounding::kNone, kInt8}) {
          ExpectGated({Narrow(exact[0], input), Narrow(exact[1], input), Narrow(exact[2], input)},
                      num_tokens);
          ExpectGated({Narrow(exact[0]), Narrow(exact[1]), Narrow(exact[2], input)}, num_tokens);
        }
      }
    }
  }
}

// The same numbers as fp32.
Weights Widened(const ScaledWeights& w) {
  Weights wide = test::RandomWeights(DType::kF32, w.codes.rows, w.codes.cols, 1);
  for (int64_t r = 0; r < wide.rows; ++r) {
    for (int64_t c = 0; c < wide.cols; ++c) {
      const float value = w.CodeOf(r, c) * w.ScaleOf(r, c);
      std::memcpy(wide.bytes.data() + r * wide.row_bytes + 4 * c, &value, sizeof value);
    }
  }
  return wide;
}

TEST(ScaledMoe, IsThatOfTheWidenedWeights) {
  constexpr int64_t kHidden = 160, kIntermediate = 200, kTokens = 11;
  constexpr uint32_t kExperts = 4;
  for (const DType dtype : test::kCodeDTypes) {
    std::vector<ScaledWeights> scaled;
    std::vector<Weights> widened;
    for (uint32_t e = 0; e < kExperts; ++e) {
      scaled.push_back(RandomScaled(dtype, kIntermediate, kHidden, test::kBlocks, 10 * e));
      scaled.push_back(RandomScaled(dtype, kIntermediate, kHidden, test::kPerChannel, 10 * e + 2));
      scaled.push_back(RandomScaled(dtype, kHidden, kIntermediate, test::kBlocks, 10 * e + 4));
    }
    std::vector<MatrixRef> refs[2][3];
    for (const ScaledWeights& w : scaled) widened.push_back(Widened(w));
    for (size_t i = 0; i < scaled.size(); ++i) {
      refs[0][i % 3].push_back(Narrow(RefTo(scaled[i]), kInt8));
      refs[1][i % 3].push_back(test::RefTo(widened[i]));
    }
    const ExpertWeights experts[] = {{refs[0][0], refs[0][1], refs[0][2]},
                                     {refs[1][0], refs[1][1], refs[1][2]}};
    RoutingSpec spec;
    spec.experts = kExperts;
    spec.top_k = 2;
    const std::vector<float> logits = Floats(kTokens * kExperts, 7, 3.0f);
    const std::vector<float> x = Floats(kTokens * kHidden, 8);
    const auto results = OverTeams([&](OpRunner& run) {
      const Routing routing = Route(run.tape(), spec, run.Input(Shape{kTokens, kExperts}, logits));
      const Value input = run.Input(Shape{kTokens, kHidden}, x);
      return std::vector{ApplyExperts(run.tape(), experts[0], routing, input),
                         ApplyExperts(run.tape(), experts[1], routing, input)};
    });
    for (size_t i = 0; i < results[1].size(); ++i) {
      ASSERT_NEAR(results[0][i], results[1][i], 1e-5f * (1 + std::abs(results[1][i])));
    }
  }
}

}  // namespace
}  // namespace tenon
