#include "tenon/ops/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
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

struct Frequencies {
  std::vector<float> inv_freq = {1.0f, 0.1f, 0.01f, 0.5f, 0.05f, 0.005f};  // two regimes of three
  std::vector<float> factor = {1.0f, 1.2f};
  RopeFrequencyTable table{inv_freq.data(), factor.data(), 6};
  std::vector<int32_t> positions = {7, 0, 131072, 33};
  std::vector<int32_t> regimes = {0, 1, 1, 0};

  // Pair j of token t as cos + i sin.
  std::complex<double> Turn(size_t t, size_t j, bool with_regimes) const {
    const size_t regime = with_regimes ? At(regimes[t]) : 0;
    const float angle = static_cast<float>(positions[t]) * inv_freq[regime * 3 + j];
    return D(factor[regime]) * std::complex<double>(std::cos(D(angle)), std::sin(D(angle)));
  }
};

TEST(RopeAngles, RegimesAndSizes) {
  const Frequencies f;
  for (const bool with_regimes : {false, true}) {
    for (const int64_t num_tokens : {0, 1, 4}) {
      const auto results = OverTeams([&](OpRunner& run) {
        return std::vector{RopeAngles(run.tape(), f.table, f.positions.data(),
                                      with_regimes ? f.regimes.data() : nullptr, num_tokens)};
      });
      ASSERT_EQ(results[0].size(), At(num_tokens * 6));
      for (size_t t = 0; t < At(num_tokens); ++t) {
        for (size_t j = 0; j < 3; ++j) {
          const std::complex<double> turn = f.Turn(t, j, with_regimes);
          EXPECT_NEAR(D(results[0][t * 6 + j]), turn.real(), 2e-7);
          EXPECT_NEAR(D(results[0][t * 6 + 3 + j]), turn.imag(), 2e-7);
        }
      }
    }
  }
}

void ExpectRotated(const Frequencies& f, RopePairing pairing, const Shape& shape,
                   const std::vector<float>& x, const std::vector<float>& y) {
  const size_t heads = shape.rank() == 3 ? At(shape.dim(1)) : 1;
  const size_t width = At(shape.dim(-1));
  ASSERT_EQ(y.size(), x.size());
  for (size_t row = 0; row < x.size() / width; ++row) {
    for (size_t j = 0; j < 3; ++j) {
      const bool half = pairing == RopePairing::kHalf;
      const size_t a = row * width + (half ? j : 2 * j);
      const size_t b = row * width + (half ? j + 3 : 2 * j + 1);
      const std::complex<double> expected =
          std::complex<double>(D(x[a]), D(x[b])) * f.Turn(row / heads, j, true);
      ASSERT_NEAR(D(y[a]), expected.real(), 5e-7);
      ASSERT_NEAR(D(y[b]), expected.imag(), 5e-7);
    }
    for (size_t i = 6; i < width; ++i) ASSERT_EQ(y[row * width + i], x[row * width + i]);
  }
}

// In place, as a copy, of heads and of single rows (MLA's rotary part), partly and fully rotary.
TEST(Rope, EveryForm) {
  const Frequencies f;
  for (const RopePairing pairing : {RopePairing::kHalf, RopePairing::kInterleaved}) {
    for (const int64_t num_tokens : {0, 1, 4}) {
      for (const Shape& shape : {Shape{num_tokens, 5, 6}, Shape{num_tokens, 2, 11},
                                 Shape{num_tokens, 6}, Shape{num_tokens, 9}}) {
        const std::vector<float> x = Floats(shape.elements(), 3);
        for (const Placement placement :
             {Placement::kContiguous, Placement::kSlice, Placement::kPrivate}) {
          const auto results = OverTeams([&](OpRunner& run) {
            const Value angles =
                RopeAngles(run.tape(), f.table, f.positions.data(), f.regimes.data(), num_tokens);
            const Value in_place = run.Input(shape, x, placement);
            Rope(run.tape(), in_place, angles, pairing);
            return std::vector{
                in_place, Rotated(run.tape(), run.Input(shape, x, placement), angles, pairing)};
          });
          ExpectRotated(f, pairing, shape, x, results[0]);
          EXPECT_EQ(results[1], results[0]);
        }
      }
    }
  }
}

// q and k are slices of one buffer that do not touch: no meeting between their rotations.
TEST(Rope, SlicesOfOneValueNeedNoMeeting) {
  for (const int64_t num_tokens : {1, 8}) {
    const Frequencies f;
    Tape tape(test::Kernels());
    const Value qkv = tape.NewValue(DType::kF32, {num_tokens, 6 * 6});
    const Value angles = tape.NewValue(DType::kF32, {num_tokens, 6});
    Rope(tape, qkv.Slice(1, 0, 24).SplitLast(4, 6), angles, RopePairing::kHalf);
    Rope(tape, qkv.Slice(1, 24, 30).SplitLast(1, 6), angles, RopePairing::kHalf);
    tape.Seal(2);
    EXPECT_EQ(tape.meetings(), 0);
  }
}

}  // namespace
}  // namespace tenon
