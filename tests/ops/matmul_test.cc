#include "tenon/ops/matmul.h"

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

struct Segment {
  Weights weights;
  std::vector<float> bias;  // empty: none
};

void ExpectProduct(const std::vector<Segment>& segments, const std::vector<float>& x,
                   int64_t num_tokens, const std::vector<float>& y) {
  const int64_t cols = segments[0].weights.cols;
  size_t at = 0;
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (const Segment& segment : segments) {
      for (int64_t r = 0; r < segment.weights.rows; ++r) {
        double expected = segment.bias.empty() ? 0.0 : D(segment.bias[At(r)]);
        double magnitude = std::abs(expected);
        for (int64_t c = 0; c < cols; ++c) {
          const double product = segment.weights.At(r, c) * D(x[At(t * cols + c)]);
          expected += product;
          magnitude += std::abs(product);
        }
        ASSERT_NEAR(D(y[at++]), expected, 1e-6 * magnitude + 1e-30);
      }
    }
  }
  ASSERT_EQ(at, y.size());
}

void Check(const std::vector<Segment>& segments, int64_t num_tokens, Placement placement) {
  const int64_t cols = segments[0].weights.cols;
  std::vector<MatrixRef> refs;
  for (const Segment& s : segments) {
    refs.push_back(RefTo(s.weights, s.bias.empty() ? nullptr : s.bias.data()));
  }
  const std::vector<float> x = Floats(num_tokens * cols, 77);
  const auto results = OverTeams([&](OpRunner& run) {
    return std::vector{Matmul(run.tape(), refs, run.Input(Shape{num_tokens, cols}, x, placement))};
  });
  ExpectProduct(segments, x, num_tokens, results[0]);
}

TEST(Matmul, EveryDType) {
  for (const DType dtype : test::kFloatDTypes) {
    for (const int64_t num_tokens : {0, 1, 5}) {
      Check({{RandomWeights(dtype, 37, 512, 1, 1), Floats(37, 2)}}, num_tokens, Placement::kSlice);
    }
  }
}

TEST(Matmul, SegmentsOfDifferentDTypes) {
  for (const int64_t num_tokens : {1, 3}) {
    for (const Placement placement :
         {Placement::kContiguous, Placement::kSlice, Placement::kPrivate}) {
      Check({{RandomWeights(DType::kQ4_1, 70, 256, 1), {}},
             {RandomWeights(DType::kQ4_1, 1, 256, 2), Floats(1, 5)},
             {RandomWeights(DType::kQ6_K, 33, 256, 3), Floats(33, 6)},
             {RandomWeights(DType::kQ4_1, 2, 256, 4), {}}},
            num_tokens, placement);
    }
  }
}

TEST(Matmul, OddSizes) {
  for (const int64_t rows : {0, 1, 2, 300}) {
    for (const int64_t cols : {1, 63, 131}) {
      Check({{RandomWeights(DType::kBF16, rows, cols, 1), Floats(rows, 2)}}, 2, Placement::kSlice);
    }
  }
}

// The plan prints these; each record has one dtype, so the name is true of all its rows. Segments
// of one result need no meeting between them.
TEST(Matmul, RecordsNameTheirKernel) {
  const Weights a = RandomWeights(DType::kQ4_1, 4, 256, 1);
  const Weights b = RandomWeights(DType::kQ6_K, 4, 256, 2);
  const std::vector<MatrixRef> refs = {RefTo(a), RefTo(a), RefTo(b)};
  OpRunner run;
  Matmul(run.tape(), refs, run.Input(Shape{1, 256}, Floats(256, 1)));
  run.Run({});
  const auto records = run.tape().records();
  ASSERT_EQ(records.size(), 3u);  // the input's too
  EXPECT_STREQ(records[1].op, "matmul");
  // Of the table's own instruction set, or of one that it builds on.
  EXPECT_TRUE(std::string_view(records[1].kernel).ends_with("/matmul_q4_1")) << records[1].kernel;
  EXPECT_TRUE(std::string_view(records[2].kernel).ends_with("/matmul_q6_k")) << records[2].kernel;
  EXPECT_EQ(run.tape().meetings(), 1);
}

TEST(Matmul, NanStaysInItsRow) {
  const Weights w = RandomWeights(DType::kQ8_0, 10, 64, 1);
  const std::vector<MatrixRef> refs = {RefTo(w)};
  std::vector<float> x = Floats(3 * 64, 2);
  const auto product = [&] {
    return OverTeams([&](OpRunner& run) {
      return std::vector{Matmul(run.tape(), refs, run.Input(Shape{3, 64}, x))};
    })[0];
  };
  const std::vector<float> clean = product();
  x[64] = NAN;
  const std::vector<float> y = product();
  for (size_t i = 0; i < y.size(); ++i) {
    if (i / 10 == 1) {
      EXPECT_TRUE(std::isnan(y[i]));
    } else {
      EXPECT_EQ(y[i], clean[i]);
    }
  }
}

// The embedding of id i is row i of the decoded table.
TEST(Embed, EveryDType) {
  for (const DType dtype : test::kFloatDTypes) {
    for (const size_t count : {0u, 1u, 4u}) {
      const Weights table = RandomWeights(dtype, 9, 256, 3, 1);
      const MatrixRef ref = RefTo(table);
      const std::vector<int32_t> all = {8, 0, 3, 3};
      const std::vector<int32_t> ids(all.begin(), all.begin() + static_cast<int64_t>(count));
      for (const float scale : {1.0f, 2.5f}) {
        const auto results = OverTeams([&](OpRunner& run) {
          return std::vector{
              Embed(run.tape(), ref, ids.data(), static_cast<int64_t>(count), scale)};
        });
        ASSERT_EQ(results[0].size(), count * 256);
        for (size_t i = 0; i < results[0].size(); ++i) {
          const float stored = table.decoded[At(ids[i / 256]) * 256 + i % 256];
          ASSERT_EQ(results[0][i], scale * stored);
        }
      }
    }
  }
}

// Ids are read when the tape runs, not when it is recorded.
TEST(Embed, ReadsIdsAtRunTime) {
  const Weights table = RandomWeights(DType::kF32, 5, 3, 3);
  const MatrixRef ref = RefTo(table);
  std::vector<int32_t> ids = {1, 1};
  OpRunner run(2);
  const Value y = Embed(run.tape(), ref, ids.data(), 2);
  ids = {4, 2};
  const auto results = run.Run({y});
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(results[0][i], table.decoded[At(ids[i / 3]) * 3 + i % 3]);
  }
}

TEST(GatherRows, PicksRows) {
  for (const Placement placement : {Placement::kContiguous, Placement::kSlice}) {
    for (const int64_t count : {0, 1, 3}) {
      const std::vector<float> x = Floats(4 * 7, 1);
      const std::vector<int32_t> rows = {3, 0, 3};
      const auto results = OverTeams([&](OpRunner& run) {
        return std::vector{
            GatherRows(run.tape(), run.Input(Shape{4, 7}, x, placement), rows.data(), count)};
      });
      ASSERT_EQ(results[0].size(), At(count * 7));
      for (size_t i = 0; i < results[0].size(); ++i) {
        EXPECT_EQ(results[0][i], x[At(rows[i / 7]) * 7 + i % 7]);
      }
    }
  }
}

TEST(KernelChoice, BestTableAtOrBelow) {
  for (const Isa isa : {Isa::kReference, Isa::kBaseline, Isa::kAvx2, Isa::kAvx512,
                        Isa::kAvx512Bf16Vnni, Isa::kAmx}) {
    if (isa > DetectMachine().isa) continue;  // its code cannot run here
    EXPECT_EQ(NameOf(KernelsFor(isa)), NameOf(isa));
  }
}

}  // namespace
}  // namespace tenon
