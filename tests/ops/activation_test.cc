#include "tenon/ops/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "ops/op_runner.h"

namespace tenon {
namespace {

using test::At;
using test::D;
using test::Floats;
using test::OpRunner;
using test::OverTeams;
using test::Placement;

double Silu(double x) { return x / (1 + std::exp(-x)); }

// Widths around the span by which a row is cut.
TEST(Activation, EveryOpAtEverySize) {
  for (const int64_t num_tokens : {0, 1, 3}) {
    for (const int64_t width : {1, 511, 512, 513, 1100}) {
      const Shape shape{num_tokens, width};
      const std::vector<float> a = Floats(num_tokens * width, 1, 8.0f);
      const std::vector<float> b = Floats(num_tokens * width, 2);
      for (const Placement placement :
           {Placement::kContiguous, Placement::kSlice, Placement::kPrivate}) {
        const auto results = OverTeams([&](OpRunner& run) {
          const Value x = run.Input(shape, a, placement);
          const Value up = run.Input(shape, b, Placement::kSlice);
          return std::vector{Activate(run.tape(), Activation::kSilu, x),
                             GatedActivate(run.tape(), Activation::kSilu, x, up),
                             Multiply(run.tape(), x, up), Scale(run.tape(), x, -0.5f),
                             SoftCap(run.tape(), x, 5.0f)};
        });
        for (size_t i = 0; i < a.size(); ++i) {
          const double x = D(a[i]);
          ASSERT_NEAR(D(results[0][i]), Silu(x), 2e-6);
          ASSERT_NEAR(D(results[1][i]), Silu(x) * D(b[i]), 2e-6);
          ASSERT_EQ(results[2][i], a[i] * b[i]);
          ASSERT_EQ(results[3][i], a[i] * -0.5f);
          ASSERT_NEAR(D(results[4][i]), 5 * std::tanh(x / 5), 2e-6);
        }
        for (const auto& result : results) ASSERT_EQ(result.size(), a.size());
      }
    }
  }
}

// Heads that lie beside others: an attention output's gate within the rows of q.
TEST(Activation, HeadsOfAnyStride) {
  constexpr int64_t kHeads = 3, kWidth = 5;
  for (const int64_t num_tokens : {1, 4}) {
    const std::vector<float> both = Floats(num_tokens * kHeads * 2 * kWidth, 5);
    const std::vector<float> up = Floats(num_tokens * kHeads * kWidth, 6);
    const auto results = OverTeams([&](OpRunner& run) {
      const Value heads = run.Input(Shape{num_tokens, kHeads, 2 * kWidth}, both);
      const Value x = run.Input(Shape{num_tokens, kHeads, kWidth}, up, Placement::kSlice);
      const Value gate = heads.Slice(2, kWidth, 2 * kWidth);
      return std::vector{GatedActivate(run.tape(), Activation::kSigmoid, gate, x),
                         Multiply(run.tape(), x, gate), Scale(run.tape(), gate, 2.0f)};
    });
    for (const auto& result : results) ASSERT_EQ(result.size(), up.size());
    for (size_t i = 0; i < up.size(); ++i) {
      const float gate = both[i / kWidth * 2 * kWidth + kWidth + i % kWidth];
      ASSERT_NEAR(D(results[0][i]), D(up[i]) / (1 + std::exp(-D(gate))), 1e-6);
      ASSERT_EQ(results[1][i], up[i] * gate);
      ASSERT_EQ(results[2][i], gate * 2);
    }
  }
}

// Gate and up are two slices of one fused matmul.
TEST(Activation, SlicesOfOneValue) {
  const std::vector<float> both = Floats(2 * 20, 3);
  const auto results = OverTeams([&](OpRunner& run) {
    const Value x = run.Input(Shape{2, 20}, both);
    return std::vector{
        GatedActivate(run.tape(), Activation::kRelu2, x.Slice(1, 0, 10), x.Slice(1, 10, 20))};
  });
  for (size_t i = 0; i < 20; ++i) {
    const double gate = std::fmax(0.0, D(both[i / 10 * 20 + i % 10]));
    EXPECT_NEAR(D(results[0][i]), gate * gate * D(both[i / 10 * 20 + 10 + i % 10]), 1e-6);
  }
}

// One token is done by everyone, unless the row is as long as a vocabulary.
TEST(Activation, OneTokenNeedsNoMeetingAfterIt) {
  const auto meetings = [](int64_t num_tokens, int64_t width) {
    Tape tape(test::Kernels());
    const Value x = tape.NewValue(DType::kF32, {num_tokens, width});
    Scale(tape, SoftCap(tape, x, 1.0f), 2.0f);
    tape.Seal(2);
    return tape.meetings();
  };
  EXPECT_EQ(meetings(1, 14336), 0);
  EXPECT_EQ(meetings(1, 256000), 1);
  EXPECT_EQ(meetings(2, 64), 1);
}

}  // namespace
}  // namespace tenon
