#include "tenon/cache/cache_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

CacheSpec Paged(int layer, int64_t row_bytes) {
  CacheSpec spec;
  spec.kind = CacheKind::kPagedRows;
  spec.layer = layer;
  spec.row_bytes = row_bytes;
  return spec;
}

// A hybrid model: two full layers, a windowed one, one that reads layer 0's rows through layer 3, a
// state, a cross layer.
std::vector<CacheSpec> Hybrid() {
  std::vector<CacheSpec> specs = {Paged(0, 768), Paged(1, 768), Paged(2, 768)};
  specs[2].window = 128;
  CacheSpec shared;
  shared.kind = CacheKind::kSharedWith;
  shared.layer = 3;
  shared.shared_with = 0;
  specs.push_back(shared);
  shared.layer = 4;
  shared.shared_with = 3;
  specs.push_back(shared);
  CacheSpec state;
  state.kind = CacheKind::kState;
  state.layer = 5;
  state.state_bytes = 100;
  specs.push_back(state);
  CacheSpec cross = Paged(6, 4096);
  cross.kind = CacheKind::kCross;
  specs.push_back(cross);
  specs.push_back(CacheSpec{});
  return specs;
}

// 64 KiB divided by the bytes of a row, rounded up to a power of two of 16..256.
TEST(CachePlan, PageRule) {
  EXPECT_EQ(PageTokensFor(1), 256);
  EXPECT_EQ(PageTokensFor(255), 256);
  EXPECT_EQ(PageTokensFor(256), 256);  // 256 * 256 = 64 KiB
  EXPECT_EQ(PageTokensFor(511), 256);  // 128 * 511 < 64 KiB
  EXPECT_EQ(PageTokensFor(512), 128);
  EXPECT_EQ(PageTokensFor(768), 128);  // SmolLM2-135M in bf16: 96 KiB
  EXPECT_EQ(PageTokensFor(1152), 64);  // DeepSeek's latents in bf16: 72 KiB
  EXPECT_EQ(PageTokensFor(4096), 16);  // Llama-3-8B in bf16
  EXPECT_EQ(PageTokensFor(1 << 20), 16);
}

TEST(CachePlan, GroupsAndBytes) {
  const std::vector<CacheSpec> specs = Hybrid();
  const auto plan = PlanCache(
      specs, {.tokens = 1000, .cross_tokens = 17, .max_sequences = 3, .max_snapshots = 2});
  ASSERT_TRUE(plan.ok()) << plan.message();
  ASSERT_EQ(plan->groups.size(), 4u);
  EXPECT_THAT(plan->groups[0].members, ElementsAre(0, 1));
  EXPECT_THAT(plan->groups[1].members, ElementsAre(2));
  EXPECT_THAT(plan->groups[2].members, ElementsAre(5));
  EXPECT_THAT(plan->groups[3].members, ElementsAre(6));
  // 128 tokens of 768 bytes; ceil(1000 / 128) + 2 pages; six numbers per page, tables of 3
  // sequences.
  EXPECT_EQ(plan->groups[0].page_tokens, 128);
  EXPECT_EQ(plan->groups[0].pages, 10);
  EXPECT_EQ(plan->groups[0].bytes, 2 * 10 * 128 * 768 + 10 * 24 + 3 * (10 * 4 + 16));
  EXPECT_EQ(plan->groups[2].slots, 5);
  EXPECT_EQ(plan->groups[2].bytes, 5 * 128);  // 100 bytes, aligned
  EXPECT_EQ(plan->groups[3].page_tokens, 16);
  EXPECT_EQ(plan->groups[3].pages, 4);
  EXPECT_EQ(plan->bytes, plan->groups[0].bytes + plan->groups[1].bytes + plan->groups[2].bytes +
                             plan->groups[3].bytes);
  EXPECT_EQ(plan->BytesPerToken(), 3 * 768);
  EXPECT_TRUE(plan->HasStates());
  EXPECT_EQ(OwnerOf(specs, 4), 0u);
}

TEST(CachePlan, PageSizesAskedFor) {
  std::vector<CacheSpec> specs = {Paged(0, 768), Paged(1, 768)};
  specs[1].page_tokens = 16;  // its kernels were selected for it: a group of its own
  const auto plan = PlanCache(specs, {.tokens = 64, .page_tokens = 32});
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->groups.size(), 2u);
  EXPECT_EQ(plan->groups[0].page_tokens, 32);
  EXPECT_EQ(plan->groups[1].page_tokens, 16);
}

TEST(CachePlan, WhatCannotBe) {
  const auto message = [](std::vector<CacheSpec> specs, const CacheSizing& sizing) {
    const auto plan = PlanCache(specs, sizing);
    EXPECT_FALSE(plan.ok());
    return plan.ok() ? std::string() : std::string(NameOf(plan.code())) + " " + plan.message();
  };
  const CacheSizing sizing = {.tokens = 64};
  for (const int32_t tokens : {-16, 1, 8, 24, 512}) {
    EXPECT_THAT(message({Paged(0, 8)}, {.tokens = 64, .page_tokens = tokens}),
                HasSubstr("page_tokens = " + std::to_string(tokens) +
                          ", allowed: a power of two of 16..256"));
  }
  EXPECT_THAT(message({Paged(7, 0)}, sizing), HasSubstr("layer 7 (paged rows): row_bytes = 0"));
  EXPECT_THAT(message({Paged(0, 8)}, {.tokens = -1}), HasSubstr("tokens = -1"));
  EXPECT_THAT(message({Paged(0, 8)}, {.max_sequences = 0}), HasSubstr("max_sequences = 0"));
  CacheSpec shared;
  shared.kind = CacheKind::kSharedWith;
  for (const int target : {-1, 0, 5}) {  // nothing, itself, past the end
    shared.shared_with = target;
    EXPECT_THAT(message({shared}, sizing), HasSubstr("shared_with = " + std::to_string(target)));
  }
  shared.shared_with = 1;
  CacheSpec state;
  state.kind = CacheKind::kState;
  state.state_bytes = 4;
  EXPECT_THAT(message({shared, state}, sizing), HasSubstr("only paged rows can be shared"));
  state.state_bytes = -4;
  EXPECT_THAT(message({state}, sizing), HasSubstr("state_bytes = -4"));
  // Sizes that do not fit 64 bits, or page ids that do not fit 32.
  EXPECT_THAT(message({Paged(0, int64_t{1} << 40)}, {.tokens = int64_t{1} << 34}),
              HasSubstr("beyond any memory"));
  EXPECT_THAT(message({Paged(0, 1 << 16)}, {.tokens = int64_t{1} << 36}),
              HasSubstr("4294967296 pages of 16 tokens"));
}

}  // namespace
}  // namespace tenon
