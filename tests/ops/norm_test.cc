#include "tenon/ops/norm.h"

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

constexpr Placement kPlacements[] = {Placement::kContiguous, Placement::kSlice,
                                     Placement::kPrivate};

// rows of `width`, normed in double.
std::vector<double> Normed(const NormWeights& w, const std::vector<double>& x, size_t width) {
  std::vector<double> y(x.size());
  for (size_t row = 0; row < x.size(); row += width) {
    double mean = 0;
    double square = 0;
    for (size_t i = 0; i < width; ++i) mean += x[row + i] / static_cast<double>(width);
    if (w.kind == NormKind::kRms) mean = 0;
    for (size_t i = 0; i < width; ++i) {
      square += (x[row + i] - mean) * (x[row + i] - mean) / static_cast<double>(width);
    }
    for (size_t i = 0; i < width; ++i) {
      double v = (x[row + i] - mean) / std::sqrt(square + D(w.eps));
      if (w.weight != nullptr) v *= D(w.weight[i]) + D(w.weight_offset);
      if (w.bias != nullptr) v += D(w.bias[i]);
      y[row + i] = v;
    }
  }
  return y;
}

void ExpectNear(const std::vector<float>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(D(got[i]), expected[i], 4e-6 * (1 + std::abs(expected[i]))) << i;
  }
}

std::vector<double> Doubles(const std::vector<float>& x) { return {x.begin(), x.end()}; }

struct OwnWeights {
  std::vector<float> weight, bias;
  NormWeights refs;
};
OwnWeights Weights(NormKind kind, int64_t width) {
  OwnWeights own{Floats(width, 11), Floats(width, 12), {}};
  own.refs.kind = kind;
  own.refs.weight = own.weight.data();
  own.refs.bias = own.bias.data();
  own.refs.eps = 0.01f;
  own.refs.weight_offset = 1;
  return own;
}

TEST(Norm, RowsOfAnyPlacement) {
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
    for (const int64_t num_tokens : {0, 1, 2, 9}) {
      for (const int64_t width : {1, 33, 64}) {
        const OwnWeights w = Weights(kind, width);
        const std::vector<float> x = Floats(num_tokens * width, 1, 3.0f);
        for (const Placement placement : kPlacements) {
          const auto results = OverTeams([&](OpRunner& run) {
            return std::vector{
                Norm(run.tape(), w.refs, run.Input(Shape{num_tokens, width}, x, placement))};
          });
          ExpectNear(results[0], Normed(w.refs, Doubles(x), At(width)));
        }
      }
    }
  }
}

// Per-head norms of q inside a fused qkv.
TEST(Norm, HeadsOutOfPlaceAndInPlace) {
  for (const int64_t num_tokens : {1, 4}) {
    const OwnWeights w = Weights(NormKind::kRms, 8);
    const Shape shape{num_tokens, 5, 8};
    const std::vector<float> x = Floats(shape.elements(), 1, 3.0f);
    for (const Placement placement : kPlacements) {
      const auto results = OverTeams([&](OpRunner& run) {
        const Value in_place = run.Input(shape, x, placement);
        NormInPlace(run.tape(), w.refs, in_place);
        return std::vector{in_place, Norm(run.tape(), w.refs, run.Input(shape, x, placement))};
      });
      ExpectNear(results[0], Normed(w.refs, Doubles(x), 8));
      EXPECT_EQ(results[0], results[1]);
    }
  }
}

TEST(Norm, WeightsAreReadWhenTheTapeRuns) {
  OwnWeights w = Weights(NormKind::kRms, 4);
  const std::vector<float> x = Floats(4, 1);
  NormWeights refs;
  refs.eps = 0.01f;
  OpRunner run;
  const Value y = Norm(run.tape(), refs, run.Input(Shape{1, 4}, x));
  refs.weight = w.weight.data();  // null while recording, as on meta
  const auto results = run.Run({y});
  ExpectNear(results[0], Normed(refs, Doubles(x), 4));
}

TEST(AddNorm, SumAndNorm) {
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
    const OwnWeights w = Weights(kind, 40);
    for (const int64_t num_tokens : {0, 1, 7}) {
      for (size_t count = 0; count <= kMaxAddends; ++count) {
        const Shape shape{num_tokens, 40};
        const std::vector<float> x = Floats(num_tokens * 40, 1);
        std::vector<std::vector<float>> addends;
        for (size_t i = 0; i < count; ++i) {
          addends.push_back(Floats(num_tokens * 40, static_cast<uint32_t>(i + 2)));
        }
        const auto results = OverTeams([&](OpRunner& run) {
          std::vector<Value> values;
          for (size_t i = 0; i < count; ++i) {
            values.push_back(run.Input(shape, addends[i], kPlacements[i % 3]));
          }
          const NormedSum sum =
              AddNorm(run.tape(), w.refs, run.Input(shape, x, Placement::kSlice), values);
          const Value plain = Add(run.tape(), run.Input(shape, x), values);
          return std::vector{sum.sum, sum.normed, plain};
        });
        std::vector<double> expected = Doubles(x);
        for (const auto& addend : addends) {
          for (size_t i = 0; i < expected.size(); ++i) expected[i] += D(addend[i]);
        }
        ExpectNear(results[0], expected);
        ExpectNear(results[1], Normed(w.refs, expected, 40));
        EXPECT_EQ(results[2], results[0]);
      }
    }
  }
}

TEST(AddNorm, NanStaysInItsRow) {
  const OwnWeights w = Weights(NormKind::kLayer, 16);
  std::vector<float> x = Floats(3 * 16, 1);
  const std::vector<float> addend = Floats(3 * 16, 2);
  const auto run_it = [&] {
    return OverTeams([&](OpRunner& run) {
      const Value values[] = {run.Input(Shape{3, 16}, addend)};
      return std::vector{AddNorm(run.tape(), w.refs, run.Input(Shape{3, 16}, x), values).normed};
    })[0];
  };
  const std::vector<float> clean = run_it();
  x[16 + 5] = NAN;
  const std::vector<float> y = run_it();
  for (size_t i = 0; i < y.size(); ++i) {
    if (i / 16 == 1) {
      EXPECT_TRUE(std::isnan(y[i]));
    } else {
      EXPECT_EQ(y[i], clean[i]);
    }
  }
}

// A prompt's product packs its input right after the norm: one record does both. With a record in
// between there are two; the numbers are the same.
TEST(AddNorm, IsTakenInByTheProductsPacking) {
  constexpr int64_t kCols = 64;
  const test::Weights w = test::RandomWeights(DType::kBF16, 96, kCols, 1);
  MatrixRef ref = test::RefTo(w);
  ref.compute = Compute::kBf16;
  const OwnWeights norm = Weights(NormKind::kRms, kCols);
  for (const int64_t num_tokens : {9, 33, 150}) {
    const Shape shape{num_tokens, kCols};
    bool packs = false;
    const auto run_it = [&](bool apart, int threads, int64_t& rows_inside) {
      OpRunner run(threads);
      const std::vector<Value> addends = {run.Input(shape, Floats(shape.elements(), 3))};
      const Value x = run.Input(shape, Floats(shape.elements(), 2));
      const NormedSum normed = AddNorm(run.tape(), norm.refs, x, addends);
      if (apart) run.Input(shape, Floats(shape.elements(), 4));
      const Value y = Matmul(run.tape(), std::span(&ref, 1), normed.normed);
      auto results = run.Run({normed.sum, y});
      rows_inside = 0;
      for (const Tape::Record& record : run.tape().records()) {
        rows_inside += record.rows_inside;
        packs |= std::string_view(record.op) == "pack";
      }
      return results;
    };
    for (const int threads : {1, 2, 3}) {
      int64_t together = 0;
      int64_t apart = 0;
      EXPECT_TRUE(
          OpRunner::SameBits(run_it(false, threads, together), run_it(true, threads, apart)))
          << num_tokens;
      EXPECT_EQ(apart, 0);
      EXPECT_EQ(together > 0, packs);
    }
  }
}

TEST(GatedNorm, GroupsOfColumns) {
  for (const int64_t num_tokens : {0, 1, 5}) {
    for (const int64_t group : {4, 12, 24}) {
      OwnWeights w = Weights(NormKind::kRms, 24);
      w.refs.weight_offset = 0;
      const Shape shape{num_tokens, 24};
      const std::vector<float> x = Floats(num_tokens * 24, 1);
      const std::vector<float> gate = Floats(num_tokens * 24, 2, 4.0f);
      const auto results = OverTeams([&](OpRunner& run) {
        return std::vector{GatedNorm(run.tape(), w.refs, run.Input(shape, x, Placement::kSlice),
                                     run.Input(shape, gate, Placement::kSlice), group)};
      });
      std::vector<double> gated;
      for (size_t i = 0; i < x.size(); ++i) {
        gated.push_back(D(x[i]) * D(gate[i]) / (1 + std::exp(-D(gate[i]))));
      }
      NormWeights plain;
      plain.eps = 0.01f;
      std::vector<double> expected = Normed(plain, gated, At(group));
      for (size_t i = 0; i < expected.size(); ++i) {
        expected[i] = expected[i] * D(w.weight[i % 24]) + D(w.bias[i % 24]);
      }
      ExpectNear(results[0], expected);
    }
  }
}

}  // namespace
}  // namespace tenon
