#include "tenon/ops/per_head.h"

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
using test::RandomWeights;
using test::RefTo;
using test::Weights;

// Each head by its own matrix; the extra columns come from a copy.
TEST(MatmulPerHead, WithExtraColumns) {
  for (const DType dtype : {DType::kF32, DType::kQ8_0}) {
    for (const int64_t num_tokens : {0, 1, 5}) {
      for (const int64_t rows : {1, 32, 70}) {
        std::vector<Weights> weights;
        std::vector<MatrixRef> refs;
        for (uint32_t h = 0; h < 3; ++h) weights.push_back(RandomWeights(dtype, rows, 32, h));
        for (const Weights& w : weights) refs.push_back(RefTo(w));
        const std::vector<float> x = Floats(num_tokens * 3 * 32, 5);
        const std::vector<float> tail = Floats(num_tokens * 3 * 2, 6);
        const auto results = OverTeams([&](OpRunner& run) {
          const Value y = MatmulPerHead(
              run.tape(), refs, run.Input(Shape{num_tokens, 3, 32}, x, Placement::kSlice), 2);
          CopyInto(run.tape(), run.Input(Shape{num_tokens, 3, 2}, tail, Placement::kSlice),
                   y.Slice(2, rows, rows + 2));
          return std::vector{y};
        });
        ASSERT_EQ(results[0].size(), At(num_tokens * 3 * (rows + 2)));
        for (int64_t th = 0; th < num_tokens * 3; ++th) {
          const float* y = results[0].data() + th * (rows + 2);
          for (int64_t r = 0; r < rows; ++r) {
            double expected = 0;
            for (int64_t c = 0; c < 32; ++c) {
              expected += weights[At(th % 3)].At(r, c) * D(x[At(th * 32 + c)]);
            }
            ASSERT_NEAR(D(y[r]), expected, 1e-5);
          }
          EXPECT_EQ(y[rows], tail[At(th * 2)]);
          EXPECT_EQ(y[rows + 1], tail[At(th * 2 + 1)]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tenon
