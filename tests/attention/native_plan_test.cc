#include "tenon/attention/backends/native_plan.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>
#include <set>

namespace tenon::backends {
namespace {

struct Step {
  std::vector<StepRequest> requests;
  StepLayout layout;
};

// Requests with their rows one after the other; prefill first, as in the engine.
std::unique_ptr<Step> RandomStep() {
  auto step = std::make_unique<Step>();
  int32_t row = 0;
  const int prefills = *rc::gen::inRange(0, 3);
  const int others = *rc::gen::inRange(0, 40);
  for (int i = 0; i < prefills + others; ++i) {
    const bool prefill = i < prefills;
    const int32_t rows = *rc::gen::inRange(0, 4) == 0 ? *rc::gen::inRange(1, 70) : 1;
    const int32_t length = rows + *rc::gen::element(0, 1, 100, 1000, 5000, 20000, 300000);
    const RequestPhase phase = prefill     ? RequestPhase::kPrefill
                               : rows == 1 ? RequestPhase::kDecode
                                           : RequestPhase::kVerify;
    const int32_t cross = *rc::gen::element(0, 1, 129, 1500, 40000);
    step->requests.push_back({phase, row, row + rows, length, cross});
    row += rows;
  }
  step->layout.requests = step->requests;
  step->layout.num_tokens = row;
  return step;
}

// Every row that is past prefill meets each of its keys exactly once, in pieces that start at
// multiples of the segment; partial sums never collide and are all joined.
TEST(NativePlan, PiecesCoverEveryKeyOnce) {
  EXPECT_TRUE(rc::check([] {
    const auto step = RandomStep();
    CacheSpec spec;
    spec.kind = *rc::gen::element(CacheKind::kPagedRows, CacheKind::kCross);
    spec.layout = *rc::gen::element(KvLayout::kHnd, KvLayout::kRow);
    const bool cross = spec.kind == CacheKind::kCross;
    if (!cross && *rc::gen::arbitrary<bool>()) spec.window = *rc::gen::inRange(1, 3000);
    const Segments segments = Segments::Of(spec.layout);
    NativePlan plan(spec);
    plan.Prepare(step->layout);

    std::map<int64_t, std::vector<NativePlan::Piece>> pieces;  // by row
    std::set<int64_t> slots;
    for (const NativePlan::Piece& p : plan.pieces()) {
      const StepRequest& r = step->requests[static_cast<size_t>(p.request)];
      RC_ASSERT(r.phase != RequestPhase::kPrefill);
      RC_ASSERT(p.row >= r.begin && p.row + p.rows <= r.end);
      RC_ASSERT(p.rows >= 1 && p.rows <= NativePlan::kBlockRows);
      for (int64_t i = 0; i < p.rows; ++i) {
        pieces[p.row + i].push_back(p);
        if (p.slot >= 0) RC_ASSERT(slots.insert(p.slot + i).second);
      }
    }
    for (const int64_t slot : slots)
      RC_ASSERT(slot >= 0 && slot < NativePlan::SlotsFor(spec.layout));
    std::map<int64_t, NativePlan::Join> joins;
    for (const NativePlan::Join& join : plan.joins()) {
      for (int64_t i = 0; i < join.rows; ++i) joins[join.row + i] = join;
    }
    for (const StepRequest& r : step->requests) {
      if (r.phase == RequestPhase::kPrefill) continue;
      for (int64_t row = r.begin; row < r.end; ++row) {
        const int64_t position = r.kv_len - (r.end - row);
        const int64_t end = cross ? r.cross_len : position + 1;
        const int64_t begin =
            spec.window ? std::max<int64_t>(0, position + 1 - *spec.window) : int64_t{0};
        const auto& own = pieces[row];
        RC_ASSERT(!own.empty());
        int64_t at = own[0].key_begin;
        RC_ASSERT(at <= begin);
        for (size_t i = 0; i < own.size(); ++i) {
          RC_ASSERT(own[i].key_begin == at);
          if (i > 0) RC_ASSERT(at == segments.EndAfter(own[i - 1].key_begin));
          at = own[i].key_end;
          if (own.size() == 1) continue;
          // A piece with a slot is one segment; parts follow each other in slots of one join.
          RC_ASSERT(own[i].slot >= 0 && at <= segments.EndAfter(own[i].key_begin));
          RC_ASSERT(own[i].slot ==
                    joins.at(row).slot + static_cast<int64_t>(i) * joins.at(row).rows);
        }
        RC_ASSERT(at >= end);
        RC_ASSERT((own.size() > 1) == (joins.count(row) == 1));
        if (own.size() > 1) RC_ASSERT(joins.at(row).parts == static_cast<int64_t>(own.size()));
      }
    }
  }));
}

// One long sequence is cut into enough pieces for a large team; a crowd of short ones is not cut.
TEST(NativePlan, OneLongSequenceIsSplit) {
  CacheSpec spec;
  spec.kind = CacheKind::kPagedRows;
  NativePlan plan(spec);
  std::vector<StepRequest> requests = {{RequestPhase::kDecode, 0, 1, 4096, 0}};
  StepLayout layout;
  layout.requests = requests;
  plan.Prepare(layout);
  EXPECT_EQ(plan.pieces().size(), 32u);
  requests.assign(300, {RequestPhase::kDecode, 0, 1, 128, 0});
  layout.requests = requests;
  plan.Prepare(layout);
  EXPECT_EQ(plan.pieces().size(), 300u);
  EXPECT_TRUE(plan.joins().empty());
}

// Once a plan has seen a step of some size, preparing no larger ones allocates nothing.
TEST(NativePlan, SteadyStepsReuseTheirMemory) {
  CacheSpec spec;
  spec.kind = CacheKind::kPagedRows;
  NativePlan plan(spec);
  std::vector<StepRequest> requests;
  StepLayout layout;
  const auto prepare = [&](int32_t count, int32_t kv_len) {
    requests.clear();
    for (int32_t i = 0; i < count; ++i)
      requests.push_back({RequestPhase::kDecode, i, i + 1, kv_len, 0});
    layout.requests = requests;
    plan.Prepare(layout);
  };
  prepare(8, 2000);
  const auto* pieces = plan.pieces().data();
  const auto* joins = plan.joins().data();
  EXPECT_EQ(plan.pieces().size(), 8u * 16u);
  EXPECT_EQ(plan.joins().size(), 8u);
  for (int32_t kv_len = 2001; kv_len < 2048; ++kv_len) {
    prepare(kv_len % 8 + 1, kv_len);
    EXPECT_EQ(plan.pieces().data(), pieces);
    EXPECT_EQ(plan.joins().data(), joins);
  }
}

// 32 of 128 keys, then 16 of each further power of two; every row finds slots for its parts.
TEST(NativePlan, SegmentsGrowWithTheDistance) {
  const Segments segments{16};
  int64_t begin = 0;
  for (int64_t size = 128; size <= 16384; size *= 2) {
    for (int i = 0; i < (size == 128 ? 32 : 16); ++i, begin += size) {
      EXPECT_EQ(segments.EndAfter(begin), begin + size);
      EXPECT_EQ(segments.EndAfter(begin + size - 1), begin + size);
    }
  }
  EXPECT_EQ(segments.CountIn(0, 4096), 32);
  EXPECT_EQ(segments.CountIn(0, 4097), 33);
  EXPECT_EQ(segments.CountIn(4000, 8192), 17);
  EXPECT_EQ(segments.CountIn(5, 5), 0);
  EXPECT_LE(Segments::Of(KvLayout::kHnd).CountIn(0, 1 << 20), NativePlan::SlotsFor(KvLayout::kHnd));
  EXPECT_LE(Segments::Of(KvLayout::kRow).CountIn(0, 1 << 17), NativePlan::SlotsFor(KvLayout::kRow));
}

}  // namespace
}  // namespace tenon::backends
