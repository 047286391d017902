// Folding and finishing attention states, of every table against the reference's loops.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/random_data.h"

namespace tenon {
namespace {

using test::At;
using test::D;
using test::Floats;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Sums, then maximum and total; nothing seen: a total of 0.
std::vector<float> State(int64_t width, uint32_t seed, float maximum, float total) {
  std::vector<float> state = Floats(width, seed);
  if (total == 0) state.assign(At(width), 0.0f);
  state.push_back(maximum);
  state.push_back(total);
  return state;
}

void ExpectNear(const std::vector<float>& got, const std::vector<float>& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (got[i] == expected[i]) continue;  // infinities too
    ASSERT_NEAR(D(got[i]), D(expected[i]), 1e-6 * (1 + std::abs(D(expected[i])))) << "at " << i;
  }
}

constexpr std::pair<float, float> kStates[] = {
    {0.5f, 3.0f}, {9.0f, 1.0f}, {-120.0f, 40.0f}, {-kInfinity, 0.0f}};

TEST(AttentionState, FoldsLikeTheReference) {
  const AttentionKernels reference = ReferenceAttentionKernels();
  for (const int64_t width : {1, 15, 16, 33, 64, 128}) {
    for (const auto& [a, a_total] : kStates) {
      for (const auto& [b, b_total] : kStates) {
        SCOPED_TRACE(testing::Message() << width << " columns, maxima " << a << " and " << b);
        std::vector<float> expected = State(width, 1, a, a_total);
        std::vector<float> got = expected;
        const std::vector<float> part = State(width, 2, b, b_total);
        reference.fold(expected.data(), part.data(), width);
        test::Kernels().attention.fold(got.data(), part.data(), width);
        ExpectNear(got, expected);
      }
    }
  }
}

TEST(AttentionState, FinishesLikeTheReference) {
  const AttentionKernels reference = ReferenceAttentionKernels();
  const float sinks[] = {-kInfinity, -3.0f, 0.5f, 30.0f};
  for (const int64_t width : {1, 15, 16, 33, 64, 128}) {
    for (const auto& [maximum, total] : kStates) {
      const std::vector<float> state = State(width, 1, maximum, total);
      for (int i = -1; i < 4; ++i) {
        const float* sink = i < 0 ? nullptr : sinks + i;
        SCOPED_TRACE(testing::Message() << width << " columns, maximum " << maximum << ", sink "
                                        << (sink == nullptr ? NAN : *sink));
        std::vector<float> expected(At(width + 2));
        std::vector<float> got(At(width + 2));
        reference.finish(state.data(), sink, width, expected.data(), expected.data() + width);
        test::Kernels().attention.finish(state.data(), sink, width, got.data(), got.data() + width);
        ExpectNear(got, expected);
      }
    }
  }
}

}  // namespace
}  // namespace tenon
