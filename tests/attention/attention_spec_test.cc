#include "tenon/attention/attention_spec.h"

#include <gtest/gtest.h>

namespace tenon {
namespace {

// T5's own sizes; expected values from the formula in exact integer arithmetic (bucket boundaries
// are where (distance / exact)^(buckets - exact) reaches a power of max_distance / exact).
TEST(RelativeBias, BucketsOfT5) {
  const RelativeBias both = {nullptr, 32, 128, true};
  const RelativeBias before = {nullptr, 32, 128, false};
  struct Row {
    int64_t ahead;
    int32_t both;
    int32_t before;
  };
  const Row rows[] = {{-200, 15, 31}, {-128, 15, 31}, {-127, 15, 31}, {-91, 15, 29}, {-64, 14, 26},
                      {-63, 13, 26},  {-32, 12, 21},  {-31, 11, 21},  {-16, 10, 16}, {-15, 9, 15},
                      {-9, 8, 9},     {-8, 8, 8},     {-7, 7, 7},     {-1, 1, 1},    {0, 0, 0},
                      {1, 17, 0},     {7, 23, 0},     {8, 24, 0},     {11, 24, 0},   {12, 25, 0},
                      {16, 26, 0},    {23, 27, 0},    {32, 28, 0},    {64, 30, 0},   {100, 31, 0},
                      {127, 31, 0},   {128, 31, 0},   {1000, 31, 0}};
  for (const Row& row : rows) {
    EXPECT_EQ(BucketOf(both, row.ahead), row.both) << row.ahead;
    EXPECT_EQ(BucketOf(before, row.ahead), row.before) << row.ahead;
  }
}

TEST(AttentionSpec, CachedWidth) {
  AttentionSpec spec;
  spec.heads = 8;
  spec.kv_heads = 2;
  spec.head_dim = 24;
  spec.v_head_dim = 16;
  EXPECT_EQ(spec.CachedWidth(), 80);
  spec.mla = MlaGeometry{0, 512, 128, 64, 128};
  EXPECT_EQ(spec.CachedWidth(), 576);
}

}  // namespace
}  // namespace tenon
