#include "tenon/cache/cache_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>

#include "cache/cache_fixture.h"

namespace tenon {
namespace {

using test::Get;
using test::Put;
using testing::HasSubstr;

// Two full layers, a windowed one with other pages, a reader of layer 0's rows, two states, a cross
// layer.
std::vector<CacheSpec> Specs(bool with_states) {
  std::vector<CacheSpec> specs(5);
  specs[0] = {.kind = CacheKind::kPagedRows, .layer = 0, .row_bytes = 8, .page_tokens = 16};
  specs[1] = {.kind = CacheKind::kPagedRows, .layer = 1, .row_bytes = 8, .page_tokens = 16};
  specs[2] = {
      .kind = CacheKind::kPagedRows, .layer = 2, .row_bytes = 24, .window = 8, .page_tokens = 32};
  specs[3] = {.kind = CacheKind::kSharedWith, .layer = 3, .shared_with = 0};
  specs[4] = {.kind = CacheKind::kCross, .layer = 4, .row_bytes = 16, .page_tokens = 16};
  if (with_states) {
    specs.push_back({.kind = CacheKind::kState, .layer = 5, .state_bytes = 8});
    specs.push_back({.kind = CacheKind::kState, .layer = 6, .state_bytes = 200});
  }
  return specs;
}

struct Fixture : test::CacheFixture {
  Fixture(bool with_states, const CacheSizing& sizing) : CacheFixture(Specs(with_states), sizing) {}
};

constexpr CacheSizing kSizing = {
    .tokens = 100, .cross_tokens = 40, .max_sequences = 4, .max_snapshots = 3};

TEST(CacheManager, AllocatesWhatIsPlanned) {
  const Fixture f(true, kSizing);
  const auto plan = PlanCache(f.specs, kSizing);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(f.manager->bytes(), plan->bytes);
  EXPECT_EQ(f.manager->plan().bytes, plan->bytes);
  // By hand: page bytes 16 * 8, 32 * 24, 16 * 16; pages ceil(100/16)+3, ceil(100/32)+3,
  // ceil(40/16)+3; per page six numbers of 4 bytes, per sequence two of 8 and a table with 4 bytes
  // per page; 7 slots of 64 and of 256 bytes.
  const auto lists = [](int64_t pages) { return pages * 24 + 4 * (pages * 4 + 16); };
  EXPECT_EQ(plan->bytes, (2 * 10 * 128 + lists(10)) + (7 * 768 + lists(7)) + (6 * 256 + lists(6)) +
                             7 * (64 + 256));
}

TEST(CacheManager, SharedLayersReadTheOwnersRows) {
  const Fixture f(false, kSizing);
  EXPECT_EQ(f.caches[3].base, f.caches[0].base);
  EXPECT_EQ(f.caches[3].group, f.caches[0].group);
  EXPECT_EQ(f.caches[3].page_bytes, f.caches[0].page_bytes);
  EXPECT_NE(f.caches[1].base, f.caches[0].base);
  EXPECT_EQ(f.caches[1].group, f.caches[0].group);
}

TEST(CacheManager, AnySpreadOfThePlannedTokensFits) {
  const Fixture f(false, kSizing);
  for (const int64_t rows : {97, 1, 1, 1}) {
    const auto s = f.manager->Admit();
    ASSERT_TRUE(s.ok());
    EXPECT_TRUE(f.manager->Append(*s, rows).ok());
  }
}

TEST(CacheManager, WhatDoesNotFitChangesNothing) {
  const Fixture f(false, {.tokens = 100, .cross_tokens = 40, .max_sequences = 2});
  const int32_t s = *f.manager->Admit();
  ASSERT_TRUE(f.manager->Append(s, 20).ok());
  const int64_t free0 = f.manager->free_pages(0);
  const int64_t free1 = f.manager->free_pages(1);
  // Group 0 has 8 pages of 16, group 1 has 5 of 32: 129 rows fit neither, 108 more fit group 1
  // only.
  const Status status = f.manager->Append(s, 109);
  EXPECT_EQ(status.code(), StatusCode::kDoesNotFit);
  EXPECT_THAT(status.message(),
              HasSubstr("109 more rows need 7 pages of 16 tokens, 6 of 8 are free"));
  EXPECT_EQ(f.manager->LengthOf(s), 20);
  EXPECT_EQ(f.manager->free_pages(0), free0);
  EXPECT_EQ(f.manager->free_pages(1), free1);
  const Status cross = f.manager->SetCross(s, 65);
  EXPECT_EQ(cross.code(), StatusCode::kDoesNotFit);
  EXPECT_TRUE(f.manager->SetCross(s, 64).ok());
  EXPECT_TRUE(f.manager->SetCross(s, 50).ok());  // replaces: its own pages count as free
  EXPECT_EQ(f.manager->CrossLengthOf(s), 50);
  ASSERT_TRUE(f.manager->Admit().ok());
  EXPECT_EQ(f.manager->Admit().code(), StatusCode::kDoesNotFit);
  EXPECT_EQ(f.manager->Fork(s).code(), StatusCode::kDoesNotFit);
  EXPECT_TRUE(f.manager->Check().ok());
}

TEST(CacheManager, PageTablesStayWhereTheyAre) {
  const Fixture f(false, kSizing);
  const int32_t s = *f.manager->Admit();
  ASSERT_TRUE(f.manager->Append(s, 1).ok());
  const int32_t* address = f.manager->PagesOf(s, 0).data();
  const int32_t t = *f.manager->Admit();
  ASSERT_TRUE(f.manager->Append(t, 40).ok());
  ASSERT_TRUE(f.manager->Append(s, 50).ok());
  EXPECT_EQ(f.manager->PagesOf(s, 0).data(), address);
  std::vector<int32_t> table(2 * 8, -7);
  const std::vector<int32_t> order = {t, s};
  f.manager->CopyPages(0, order, 8, table.data());
  for (size_t j = 0; j < 3; ++j) EXPECT_EQ(table[j], f.manager->PagesOf(t, 0)[j]);
  EXPECT_EQ(table[3], -7);
  for (size_t j = 0; j < 4; ++j) EXPECT_EQ(table[8 + j], f.manager->PagesOf(s, 0)[j]);
}

TEST(CacheManager, StatesGoBackToSnapshotsOnly) {
  const Fixture f(true, kSizing);
  CacheManager& m = *f.manager;
  const int32_t s = *m.Admit();
  const auto write = [&](int64_t value) {
    Put(f.State(5, m.SlotOf(s)), value);
    Put(f.State(6, m.SlotOf(s)) + 192, -value);
  };
  ASSERT_TRUE(m.Append(s, 10).ok());
  write(10);
  const int32_t ten = *m.Snapshot(s);
  ASSERT_TRUE(m.Append(s, 5).ok());
  write(15);
  const int32_t fifteen = *m.Snapshot(s);
  ASSERT_TRUE(m.Append(s, 5).ok());
  write(20);
  const Status refused = m.Keep(s, 12);
  EXPECT_EQ(refused.code(), StatusCode::kRefused);
  EXPECT_THAT(refused.message(),
              HasSubstr("of 20 rows cannot go back to 12; snapshots were taken at {10, 15}"));
  EXPECT_EQ(m.LengthOf(s), 20);
  EXPECT_TRUE(m.Keep(s, 20).ok());
  ASSERT_TRUE(m.Restore(fifteen).ok());
  EXPECT_EQ(m.LengthOf(s), 15);
  EXPECT_EQ(Get(f.State(5, m.SlotOf(s))), 15);
  EXPECT_EQ(Get(f.State(6, m.SlotOf(s)) + 192), -15);
  EXPECT_TRUE(m.Keep(s, 10).ok());
  EXPECT_EQ(Get(f.State(5, m.SlotOf(s))), 10);
  // Rows 10..15 will be others: the snapshot at 15 is gone, the one at 10 is not.
  ASSERT_TRUE(m.Append(s, 10).ok());
  EXPECT_EQ(m.Keep(s, 15).code(), StatusCode::kRefused);
  m.Drop(ten);
  EXPECT_EQ(m.Keep(s, 10).code(), StatusCode::kRefused);
  EXPECT_TRUE(m.Keep(s, 0).ok());  // a fresh state needs no snapshot
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(m.Snapshot(s).ok());
  EXPECT_EQ(m.Snapshot(s).code(), StatusCode::kDoesNotFit);
  m.Free(s);
  EXPECT_TRUE(m.Snapshot(*m.Admit()).ok());  // a freed sequence's snapshots are free again
}

// What a sequence must contain: one number per row and cross row, one per state.
struct Expected {
  std::vector<int64_t> rows;
  std::vector<int64_t> cross;
  int64_t state = 0;
  int64_t dropped = 0;  // rows of the windowed layer
};

class Model {
 public:
  explicit Model(bool with_states) : f_(with_states, kSizing), with_states_(with_states) {}

  void Step() {
    const int32_t what = *rc::gen::inRange(0, 20);
    if (expected_.empty() || what < 3) {
      const auto s = f_.manager->Admit();
      RC_ASSERT(s.ok() == (expected_.size() < 4));
      if (s.ok()) expected_[*s] = {};
      return;
    }
    const auto at = *rc::gen::inRange<size_t>(0, expected_.size());
    const int32_t s = std::next(expected_.begin(), static_cast<std::ptrdiff_t>(at))->first;
    if (what < 11) {
      Append(s);
    } else if (what < 13) {
      SetCross(s);
    } else if (what < 15) {
      Fork(s);
    } else if (what < 17) {
      f_.manager->Free(s);
      expected_.erase(s);
    } else {
      Keep(s);
    }
  }

  void Compare() const {
    const Status status = f_.manager->Check();
    RC_ASSERT(status.ok());
    for (const auto& [s, e] : expected_) {
      RC_ASSERT(f_.manager->LengthOf(s) == static_cast<int64_t>(e.rows.size()));
      for (size_t i = 0; i < f_.specs.size(); ++i) {
        const auto& rows = f_.specs[i].kind == CacheKind::kCross ? e.cross : e.rows;
        if (f_.specs[i].kind == CacheKind::kState) {
          if (!rows.empty()) RC_ASSERT(Get(f_.State(i, f_.manager->SlotOf(s))) == e.state);
          continue;
        }
        const auto layer = static_cast<int64_t>(f_.specs[i].kind == CacheKind::kSharedWith ? 0 : i);
        const size_t own = f_.specs[i].kind == CacheKind::kSharedWith ? 0 : i;
        // Of the windowed layer, those that the next row sees.
        const auto length = static_cast<int64_t>(rows.size());
        for (auto r = static_cast<size_t>(f_.specs[own].FirstSeen(length)); r < rows.size(); ++r) {
          RC_ASSERT(Get(f_.Row(own, s, static_cast<int64_t>(r))) == rows[r] * 10 + layer);
        }
      }
    }
    // No page is lost: those in tables and the free ones are all.
    for (int g = 0; g < 3; ++g) {
      std::map<int32_t, int> used;
      for (const auto& [s, e] : expected_) {
        for (const int32_t page : f_.manager->PagesOf(s, g)) {
          if (page != PagePool::kDropped) ++used[page];
        }
      }
      RC_ASSERT(static_cast<int64_t>(used.size()) + f_.manager->free_pages(g) ==
                f_.manager->pages(g));
    }
  }

 private:
  void Append(int32_t s) {
    const int64_t tokens = *rc::gen::inRange(0, 40);
    Expected& e = expected_[s];
    const auto length = static_cast<int64_t>(e.rows.size());
    const int64_t free0 = f_.manager->free_pages(0);
    const Status status = f_.manager->Append(s, tokens);
    if (!status.ok()) {
      RC_ASSERT(status.code() == StatusCode::kDoesNotFit);
      RC_ASSERT(f_.manager->free_pages(0) == free0);
      return;
    }
    RC_ASSERT(f_.manager->CheckWritable(s, tokens).ok());
    for (int64_t r = length; r < length + tokens; ++r) {
      e.rows.push_back(++next_);
      for (size_t i = 0; i < f_.specs.size(); ++i) {
        if (f_.IsRows(i)) Put(f_.Row(i, s, r), next_ * 10 + static_cast<int64_t>(i));
      }
    }
    // The windowed layer has pages of 32 and sees 8 rows.
    if (tokens > 0) e.dropped = std::max(e.dropped, (length - 7) / 32 * 32);
    e.state = ++next_;
    for (size_t i = 5; i < f_.specs.size(); ++i) Put(f_.State(i, f_.manager->SlotOf(s)), next_);
  }
  void SetCross(int32_t s) {
    const int64_t rows = *rc::gen::inRange(0, 40);
    if (!f_.manager->SetCross(s, rows).ok()) return;
    expected_[s].cross.clear();
    for (int64_t r = 0; r < rows; ++r) {
      expected_[s].cross.push_back(++next_);
      Put(f_.Row(4, s, r), next_ * 10 + 4);
    }
  }
  void Fork(int32_t s) {
    const auto copy = f_.manager->Fork(s);
    RC_ASSERT(copy.ok() == (expected_.size() < 4));
    if (copy.ok()) expected_[*copy] = expected_[s];
  }
  void Keep(int32_t s) {
    Expected& e = expected_[s];
    const auto rows = *rc::gen::inRange<size_t>(0, e.rows.size() + 1);
    const Status status = f_.manager->Keep(s, static_cast<int64_t>(rows));
    const bool seen = e.dropped <= std::max<int64_t>(0, static_cast<int64_t>(rows) - 7);
    RC_ASSERT(status.ok() == (rows == 0 || rows == e.rows.size() || (!with_states_ && seen)));
    if (status.ok()) e.rows.resize(rows);
    if (rows == 0) e.dropped = 0;
  }

  Fixture f_;
  bool with_states_;
  std::map<int32_t, Expected> expected_;
  int64_t next_ = 0;
};

TEST(CacheManager, RandomVerbsKeepEverySequencesRows) {
  EXPECT_TRUE(rc::check([](bool with_states) {
    Model model(with_states);
    const int steps = *rc::gen::inRange(1, 200);
    for (int i = 0; i < steps; ++i) {
      model.Step();
      model.Compare();
    }
  }));
}

}  // namespace
}  // namespace tenon
