// FLASHINFER's plan: every row meets each of its keys once, whatever is split or shared; the work
// is balanced; steady steps allocate nothing.
#include "tenon/attention/backends/flashinfer_plan.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>
#include <set>

#include "tenon/tensor/buffer.h"

namespace tenon::backends {
namespace {

constexpr int32_t kPage = 16;

// Requests with their rows one after the other, and page tables in which some begin alike.
struct Step {
  std::vector<StepRequest> requests;
  std::vector<int32_t> table;
  GroupPages pages;
  StepLayout layout;

  void Finish() {
    int32_t most = 1;
    for (const StepRequest& r : requests)
      most = std::max(most, static_cast<int32_t>(CeilDiv(std::max(r.kv_len, r.cross_len), kPage)));
    table.resize(requests.size() * static_cast<size_t>(most));
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
    pages = {table.data(), most, kPage};
    layout.requests = requests;
    layout.groups = {&pages, 1};
    layout.num_tokens = requests.empty() ? 0 : requests.back().end;
  }
  // The first `keys` keys of both lie in the same pages.
  void Share(size_t from, size_t to, int64_t keys) {
    const auto most = static_cast<size_t>(pages.max_pages);
    std::copy_n(table.begin() + static_cast<std::ptrdiff_t>(from * most), keys / kPage,
                table.begin() + static_cast<std::ptrdiff_t>(to * most));
  }
};

std::unique_ptr<Step> RandomStep() {
  auto step = std::make_unique<Step>();
  int32_t row = 0;
  const int prefills = *rc::gen::inRange(0, 3);
  const int others = *rc::gen::inRange(0, 30);
  for (int i = 0; i < prefills + others; ++i) {
    const bool prefill = i < prefills;
    const int32_t rows = *rc::gen::inRange(0, 4) == 0 ? *rc::gen::inRange(1, 70) : 1;
    const int32_t length = rows + *rc::gen::element(0, 1, 100, 1000, 5000, 20000);
    const int32_t cross = *rc::gen::element(0, 1, 129, 1500, 40000);
    step->requests.push_back(
        {prefill ? RequestPhase::kPrefill : RequestPhase::kDecode, row, row + rows, length, cross});
    row += rows;
  }
  step->Finish();
  for (size_t i = 1; i < step->requests.size(); ++i) {
    const auto from = static_cast<size_t>(*rc::gen::inRange(0, static_cast<int>(i)));
    const int64_t keys = *rc::gen::element(0, 16, 256, 272, 900, 4000);
    if (keys <= std::min(step->requests[from].kv_len, step->requests[i].kv_len))
      step->Share(from, i, keys);
  }
  return step;
}

int32_t RequestOf(const Step& step, int64_t row) {
  int32_t i = 0;
  while (step.requests[static_cast<size_t>(i)].end <= row) ++i;
  return i;
}

// Keys [begin, end) of a row, as some item computes them.
struct Span {
  int64_t begin, end, slot;
};

TEST(FlashInferPlan, ItemsCoverEveryKeyOnce) {
  EXPECT_TRUE(rc::check([] {
    const auto step = RandomStep();
    CacheSpec spec;
    spec.kind = *rc::gen::element(CacheKind::kPagedRows, CacheKind::kCross);
    spec.layout = *rc::gen::element(KvLayout::kNhd, KvLayout::kRow);
    const bool cross = spec.kind == CacheKind::kCross;
    if (!cross && *rc::gen::inRange(0, 3) == 0) spec.window = *rc::gen::inRange(1, 3000);
    FlashInferPlan plan(0, spec, *rc::gen::arbitrary<bool>());
    plan.Prepare(step->layout);

    std::map<int64_t, std::vector<Span>> spans;  // by row
    std::set<int64_t> slots;
    for (const FlashInferPlan::Item& item : plan.items()) {
      int64_t row_of_item = 0;
      for (const RowBlock& run : plan.runs(item)) {
        RC_ASSERT(run.rows >= 1 && run.rows <= FlashInferPlan::kTileRows);
        for (int64_t i = 0; i < run.rows; ++i, ++row_of_item) {
          const int64_t slot = item.slot < 0 ? -1 : item.slot + row_of_item;
          spans[run.row + i].push_back({item.key_begin, item.key_end, slot});
          if (slot >= 0) RC_ASSERT(slots.insert(slot).second);
        }
      }
      RC_ASSERT(row_of_item == item.rows);
      RC_ASSERT((item.slot >= 0 || item.run_count == 1));
      // What is shared lies in the same pages for all.
      for (const RowBlock& run : plan.runs(item)) {
        for (int64_t row = run.row; item.shared && row < run.row + run.rows; ++row) {
          const int32_t request = RequestOf(*step, row);
          const auto own = plan.pages().PagesOf(request);
          const auto of_item = plan.pages().PagesOf(item.request);
          RC_ASSERT(std::equal(own.begin(), own.begin() + item.key_end / kPage, of_item.begin()));
          const StepRequest& r = step->requests[static_cast<size_t>(request)];
          RC_ASSERT(item.key_end <= r.kv_len - (r.end - r.begin));
        }
      }
    }
    RC_ASSERT((slots.empty() || *slots.rbegin() < FlashInferPlan::SlotsFor(spec.layout)));
    std::map<int64_t, FlashInferPlan::Join> joins;
    for (const FlashInferPlan::Join& join : plan.joins()) {
      for (int64_t i = 0; i < join.rows; ++i) RC_ASSERT(joins.emplace(join.row + i, join).second);
    }
    for (const StepRequest& r : step->requests) {
      for (int64_t row = r.begin; row < r.end; ++row) {
        const int64_t position = r.kv_len - (r.end - row);
        const int64_t end = cross ? r.cross_len : position + 1;
        const int64_t begin =
            spec.window ? std::max<int64_t>(0, position + 1 - *spec.window) : int64_t{0};
        auto& own = spans[row];
        RC_ASSERT(!own.empty());
        if (joins.count(row) == 0) {
          RC_ASSERT((own.size() == 1u && own[0].slot < 0));
          RC_ASSERT((own[0].begin <= begin && own[0].end >= end));
          continue;
        }
        // The join's parts, in its order, are the row's spans in the order of keys.
        std::map<int64_t, Span> by_slot;
        for (const Span& span : own) by_slot[span.slot] = span;
        const FlashInferPlan::Join& join = joins[row];
        int64_t at = -1;
        for (const auto& parts : {join.shared, join.own}) {
          for (int64_t p = 0; p < parts.count; ++p) {
            const auto found = by_slot.find(parts.slot + p * parts.stride + row - join.row);
            RC_ASSERT(found != by_slot.end());
            RC_ASSERT((at < 0 ? found->second.begin <= begin : found->second.begin == at));
            at = found->second.end;
            by_slot.erase(found);
          }
        }
        RC_ASSERT((by_slot.empty() && at >= end));
      }
    }
  }));
}

// Shares part the items among them; none is heavier than the mean by more than one item, which is
// what always giving to the least loaded guarantees.
TEST(FlashInferPlan, SharesAreBalanced) {
  EXPECT_TRUE(rc::check([] {
    const auto step = RandomStep();
    CacheSpec spec;
    spec.kind = CacheKind::kPagedRows;
    FlashInferPlan plan(0, spec, true);
    plan.Prepare(step->layout);
    std::vector<int> seen(plan.items().size());
    int64_t total = 0;
    int64_t costliest = 0;
    for (const auto& item : plan.items()) {
      total += item.cost;
      costliest = std::max(costliest, item.cost);
    }
    for (int64_t s = 0; s < FlashInferPlan::kShares; ++s) {
      for (const int32_t i : plan.share(s)) ++seen[static_cast<size_t>(i)];
      RC_ASSERT(plan.CostOfShare(s) <= total / FlashInferPlan::kShares + costliest);
    }
    for (const int count : seen) RC_ASSERT(count == 1);
  }));
}

// One long sequence keeps a whole team busy; a crowd is not cut.
TEST(FlashInferPlan, OneLongSequenceIsSplit) {
  CacheSpec spec;
  spec.kind = CacheKind::kPagedRows;
  FlashInferPlan plan(0, spec, true);
  Step step;
  step.requests = {{RequestPhase::kDecode, 0, 1, 4096, 0}};
  step.Finish();
  plan.Prepare(step.layout);
  EXPECT_EQ(plan.items().size(), 32u);
  EXPECT_EQ(plan.joins().size(), 1u);
  step.requests.clear();
  for (int32_t i = 0; i < 300; ++i)
    step.requests.push_back({RequestPhase::kDecode, i, i + 1, 1000, 0});
  step.Finish();
  plan.Prepare(step.layout);
  EXPECT_EQ(plan.items().size(), 300u);
  EXPECT_TRUE(plan.joins().empty());
}

// A chunk's size follows from the sequence's own length.
TEST(FlashInferPlan, ChunkSizes) {
  EXPECT_EQ(FlashInferPlan::ChunkFor(1, std::nullopt), 128);
  EXPECT_EQ(FlashInferPlan::ChunkFor(8192, std::nullopt), 128);
  EXPECT_EQ(FlashInferPlan::ChunkFor(8193, std::nullopt), 256);
  EXPECT_EQ(FlashInferPlan::ChunkFor(100000, 1000), 128);
}

// What sequences share is read once for all of them, also when they are no neighbours in the step.
TEST(FlashInferPlan, SharedPrefixesAreAttendedOnce) {
  CacheSpec spec;
  spec.kind = CacheKind::kPagedRows;
  Step step;
  for (int32_t i = 0; i < 6; ++i)
    step.requests.push_back({RequestPhase::kDecode, i, i + 1, 1000 + 20 * i, 0});
  step.Finish();
  for (const size_t i : {2, 4}) step.Share(0, i, 900);
  for (const size_t i : {3, 5}) step.Share(1, i, 400);
  FlashInferPlan plan(0, spec, true);
  plan.Prepare(step.layout);
  ASSERT_EQ(plan.shared().groups().size(), 2u);
  std::map<std::vector<int32_t>, int64_t> keys;
  for (const auto& group : plan.shared().groups()) {
    const auto members = plan.shared().members(group);
    keys[{members.begin(), members.end()}] = group.keys;
  }
  EXPECT_EQ(keys, (std::map<std::vector<int32_t>, int64_t>{{{0, 2, 4}, 896}, {{1, 3, 5}, 384}}));
  int64_t read = 0;
  for (const auto& item : plan.items()) read += item.key_end - item.key_begin;
  EXPECT_EQ(read, 6300 - 2 * 896 - 2 * 384);

  FlashInferPlan apart(0, spec, false);
  apart.Prepare(step.layout);
  EXPECT_TRUE(apart.shared().groups().empty());
  for (const auto& item : apart.items()) EXPECT_FALSE(item.shared);
}

TEST(FlashInferPlan, WhatIsNotWorthSharing) {
  CacheSpec spec;
  spec.kind = CacheKind::kPagedRows;
  const auto groups = [&](int64_t keys, int32_t rows, const std::optional<int64_t>& window) {
    Step step;
    step.requests = {{RequestPhase::kVerify, 0, rows, 1000, 0},
                     {RequestPhase::kVerify, rows, 2 * rows, 1000, 0}};
    step.Finish();
    step.Share(0, 1, keys);
    spec.window = window;
    FlashInferPlan plan(0, spec, true);
    plan.Prepare(step.layout);
    return plan.shared().groups().size();
  };
  EXPECT_EQ(groups(256, 1, {}), 1u);
  EXPECT_EQ(groups(240, 1, {}), 0u);  // short
  EXPECT_EQ(groups(256, 16, {}), 1u);
  EXPECT_EQ(groups(256, 17, {}), 0u);  // many rows
  EXPECT_EQ(groups(256, 1, 500), 0u);  // does not see it
}

// Once a plan has seen a step of some size, preparing no larger ones allocates nothing.
TEST(FlashInferPlan, SteadyStepsReuseTheirMemory) {
  CacheSpec spec;
  spec.kind = CacheKind::kPagedRows;
  FlashInferPlan plan(0, spec, true);
  Step step;
  const auto prepare = [&](int32_t count, int32_t kv_len) {
    step.requests.clear();
    for (int32_t i = 0; i < count; ++i)
      step.requests.push_back({RequestPhase::kDecode, i, i + 1, kv_len, 0});
    step.Finish();
    step.pages.max_pages = 128;
    step.table.assign(static_cast<size_t>(count) * 128, 3);
    step.pages.pages = step.table.data();
    plan.Prepare(step.layout);
  };
  prepare(8, 2000);
  const auto* items = plan.items().data();
  const auto* joins = plan.joins().data();
  const auto* pages = plan.pages().indices().data();
  EXPECT_EQ(plan.shared().groups().size(), 1u);
  for (int32_t kv_len = 2001; kv_len < 2048; ++kv_len) {
    prepare(kv_len % 8 + 1, kv_len);
    EXPECT_EQ(plan.items().data(), items);
    EXPECT_EQ(plan.joins().data(), joins);
    EXPECT_EQ(plan.pages().indices().data(), pages);
  }
}

}  // namespace
}  // namespace tenon::backends
