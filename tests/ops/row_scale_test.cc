#include "tenon/ops/row_scale.h"

#include <gtest/gtest.h>

#include <cmath>
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

TEST(ScaleRows, EveryHeadOfATokenByItsFactor) {
  for (const int64_t num_tokens : {0, 1, 2, 67}) {
    for (const int64_t width : {1, 17, 70}) {
      constexpr int64_t kHeads = 3;
      const std::vector<float> x = Floats(num_tokens * kHeads * width, 1);
      const std::vector<float> factors = Floats(num_tokens, 2);
      for (const Placement placement :
           {Placement::kContiguous, Placement::kSlice, Placement::kPrivate}) {
        const auto results = OverTeams([&](OpRunner& run) {
          const Value by = run.Input(Shape{num_tokens, 1}, factors, placement);
          const Value heads = run.Input(Shape{num_tokens, kHeads, width}, x, placement);
          const Value rows = run.Input(Shape{num_tokens, kHeads * width}, x, Placement::kSlice);
          return std::vector{ScaleRows(run.tape(), heads, by), ScaleRows(run.tape(), rows, by)};
        });
        for (const auto& result : results) ASSERT_EQ(result.size(), x.size());
        for (size_t i = 0; i < x.size(); ++i) {
          const float expected = x[i] * factors[i / At(kHeads * width)];
          ASSERT_EQ(results[0][i], expected);
          ASSERT_EQ(results[1][i], expected);
        }
      }
    }
  }
}

TEST(PositionTemperature, StepsAtEveryInterval) {
  const std::vector<int32_t> positions = {0, 1, 15, 16, 31, 32, 47, 48, 16383, 2000000000};
  for (const size_t count : {size_t{0}, size_t{1}, positions.size()}) {
    for (const int64_t offset : {0, 1}) {
      const PositionTemperature temperature = {.beta = 0.1f, .interval = 16, .offset = offset};
      const auto results = OverTeams([&](OpRunner& run) {
        return std::vector{
            TemperatureOf(run.tape(), temperature, positions.data(), static_cast<int64_t>(count))};
      });
      ASSERT_EQ(results[0].size(), count);
      for (size_t i = 0; i < count; ++i) {
        const double intervals = std::floor((positions[i] + static_cast<double>(offset)) / 16);
        const double expected = 1 + D(0.1f) * std::log(1 + intervals);
        ASSERT_NEAR(D(results[0][i]), expected, 1e-6 * expected) << positions[i];
      }
    }
  }
}

}  // namespace
}  // namespace tenon
