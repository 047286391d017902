#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "cache/cache_fixture.h"

namespace tenon {
namespace {

using test::CacheFixture;
using test::Get;
using test::Put;
using testing::HasSubstr;

CacheSpec Rows(int layer, int32_t page_tokens) {
  return {
      .kind = CacheKind::kPagedRows, .layer = layer, .row_bytes = 8, .page_tokens = page_tokens};
}
CacheSpec Windowed(int layer, int32_t page_tokens, int64_t window) {
  CacheSpec spec = Rows(layer, page_tokens);
  spec.window = window;
  return spec;
}

std::vector<int32_t> Tokens(int64_t count, int32_t first = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}
std::vector<int32_t> Join(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
std::span<const int32_t> First(const std::vector<int32_t>& tokens, int64_t count) {
  return std::span(tokens).first(static_cast<size_t>(count));
}

// Runs sequences as an engine does, step by step; a row is its token's number and its position.
class Runner : public CacheFixture {
 public:
  Runner(std::vector<CacheSpec> specs, CacheSizing sizing)
      : CacheFixture(std::move(specs), WithReuse(sizing)) {}

  static int64_t RowOf(const std::vector<int32_t>& tokens, int64_t row) {
    return tokens[static_cast<size_t>(row)] * int64_t{100'000} + row;
  }
  // Computes all of `tokens` that the sequence does not have, `chunk` at a time.
  void Extend(int32_t s, const std::vector<int32_t>& tokens, int64_t chunk = 32) {
    const auto total = static_cast<int64_t>(tokens.size());
    while (manager->LengthOf(s) < total) {
      const int64_t before = manager->LengthOf(s);
      const int64_t rows = std::min(chunk, total - before);
      const Status status = manager->Append(s, rows);
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_TRUE(manager->CheckWritable(s, rows).ok());
      for (int64_t row = before; row < before + rows; ++row) {
        for (size_t i = 0; i < specs.size(); ++i) {
          if (IsRows(i)) Put(Row(i, s, row), RowOf(tokens, row));
        }
      }
      for (size_t i = 0; i < specs.size(); ++i) {
        if (IsState(i)) Put(State(i, manager->SlotOf(s)), RowOf(tokens, before + rows - 1));
      }
      manager->Publish(s, First(tokens, before + rows), PublishStates::kKeep);
    }
    Expect(s, tokens);
  }
  // What the next row of the sequence sees is there and right.
  void Expect(int32_t s, const std::vector<int32_t>& tokens) {
    const int64_t length = manager->LengthOf(s);
    for (size_t i = 0; i < specs.size(); ++i) {
      if (IsState(i) && length > 0)
        EXPECT_EQ(Get(State(i, manager->SlotOf(s))), RowOf(tokens, length - 1));
      if (!IsRows(i)) continue;
      for (int64_t row = specs[i].FirstSeen(length); row < length; ++row) {
        ASSERT_NE(Row(i, s, row), nullptr) << "spec " << i << ", row " << row;
        ASSERT_EQ(Get(Row(i, s, row)), RowOf(tokens, row)) << "spec " << i << ", row " << row;
      }
    }
    const Status status = manager->Check();
    EXPECT_TRUE(status.ok()) << status.message();
  }
  int32_t Run(const std::vector<int32_t>& tokens, int64_t expected_reuse,
              const PrefixKey& key = {}) {
    const auto admitted = manager->AdmitWithPrefix(tokens, key);
    TN_CHECK(admitted.ok(), "a sequence is free");
    EXPECT_EQ(admitted->reused_rows, expected_reuse);
    EXPECT_EQ(manager->LengthOf(admitted->sequence), admitted->reused_rows);
    Expect(admitted->sequence, tokens);
    Extend(admitted->sequence, tokens);
    return admitted->sequence;
  }
  void RunAndFree(const std::vector<int32_t>& tokens, int64_t expected_reuse,
                  const PrefixKey& key = {}) {
    manager->Free(Run(tokens, expected_reuse, key));
  }

 private:
  static CacheSizing WithReuse(CacheSizing sizing) {
    sizing.prefix_reuse = true;
    return sizing;
  }
};

TEST(PrefixReuse, WholePagesAreSharedAndTheRestIsCopied) {
  for (const int32_t page_tokens : {16, 32, 64, 256}) {
    Runner r({Rows(0, page_tokens)}, {.tokens = 2048, .max_sequences = 3});
    const std::vector<int32_t> tokens = Tokens(700);
    const int32_t a = r.Run(tokens, 0);
    // 21 times 32 tokens are published: 672. 600 tokens agree, then 50 others follow.
    const std::vector<int32_t> other = Join(Tokens(600), Tokens(50, 5000));
    const int32_t b = r.Run(other, 600);
    const auto of_a = r.manager->PagesOf(a, 0);
    const auto of_b = r.manager->PagesOf(b, 0);
    const auto shared = static_cast<size_t>(600 / page_tokens);
    EXPECT_TRUE(
        std::equal(of_a.begin(), of_a.begin() + static_cast<std::ptrdiff_t>(shared), of_b.begin()));
    EXPECT_NE(of_a[shared], of_b[shared]) << page_tokens;
    r.Expect(a, tokens);
  }
}

TEST(PrefixReuse, SomeTokensAreLeftToCompute) {
  Runner r({Rows(0, 16)}, {.tokens = 512, .max_sequences = 2});
  r.RunAndFree(Tokens(96), 0);
  r.RunAndFree(Tokens(96), 95);  // all are there; the last one's logits are wanted
  r.RunAndFree(Tokens(64), 63);
  const auto ten = r.manager->AdmitWithPrefix(Tokens(96), {}, 10);
  EXPECT_EQ(ten->reused_rows, 86);
  const auto all = r.manager->AdmitWithPrefix(Tokens(96), {}, 96);
  EXPECT_EQ(all->reused_rows, 0);
}

TEST(PrefixReuse, OtherKeysShareNothing) {
  Runner r({Rows(0, 16)}, {.tokens = 1024, .max_sequences = 2});
  r.RunAndFree(Tokens(64), 0);
  r.RunAndFree(Tokens(64), 0, {.salt = 7});
  r.RunAndFree(Tokens(64), 0, {.regime = 1});
  r.RunAndFree(Tokens(64), 63, {.salt = 7});
  r.RunAndFree(Tokens(64), 63);
}

TEST(PrefixReuse, OnlyWholeGroupsOfPublishedTokensAreFound) {
  Runner r({Rows(0, 16)}, {.tokens = 512, .max_sequences = 2});
  const std::vector<int32_t> tokens = Tokens(80);
  const int32_t s = *r.manager->Admit();
  ASSERT_TRUE(r.manager->Append(s, 80).ok());
  EXPECT_EQ(r.manager->AdmitWithPrefix(tokens)->reused_rows, 0);
  r.manager->Publish(s, First(tokens, 40));
  r.manager->Free(1);
  EXPECT_EQ(r.manager->AdmitWithPrefix(tokens)->reused_rows, 32);
}

TEST(PrefixReuse, WithoutItNothingIsKept) {
  CacheFixture f({Rows(0, 16)}, {.tokens = 512, .max_sequences = 2});
  EXPECT_EQ(f.manager->plan().prefix_bytes, 0);
  const std::vector<int32_t> tokens = Tokens(64);
  const int32_t s = *f.manager->Admit();
  ASSERT_TRUE(f.manager->Append(s, 64).ok());
  f.manager->Publish(s, tokens);
  EXPECT_EQ(f.manager->AdmitWithPrefix(tokens)->reused_rows, 0);
}

TEST(PrefixReuse, NoneOfModelsWithAnEncoder) {
  CacheSpec cross = Rows(1, 16);
  cross.kind = CacheKind::kCross;
  Runner r({Rows(0, 16), cross}, {.tokens = 512, .cross_tokens = 64, .max_sequences = 2});
  EXPECT_EQ(r.manager->plan().prefix_nodes, 0);
  r.RunAndFree(Tokens(64), 0);
  r.RunAndFree(Tokens(64), 0);
}

TEST(PrefixReuse, CachedPagesCountAsFreeAndTheLeastRecentlyUsedGoesFirst) {
  // 8 pages of 32.
  Runner r({Rows(0, 32)}, {.tokens = 256, .max_sequences = 1});
  r.RunAndFree(Tokens(96), 0);
  r.RunAndFree(Tokens(96, 1000), 0);
  EXPECT_EQ(r.manager->free_pages(0), 8);
  r.RunAndFree(Tokens(96), 95);  // used again: now the other one is older
  // 4 pages: the last two unused ones and the last two of the least recently used prefix.
  r.RunAndFree(Tokens(128, 2000), 0);
  EXPECT_EQ(r.manager->free_pages(0), 8);
  EXPECT_EQ(r.manager->AdmitWithPrefix(Tokens(96, 1000))->reused_rows, 32);
  r.manager->Free(0);
  EXPECT_EQ(r.manager->AdmitWithPrefix(Tokens(96))->reused_rows, 95);
}

TEST(PrefixReuse, PagesInUseAreNeverTaken) {
  Runner r({Rows(0, 32)}, {.tokens = 256, .max_sequences = 2});
  const std::vector<int32_t> tokens = Tokens(160);
  const int32_t a = r.Run(tokens, 0);
  const int32_t b = *r.manager->Admit();
  EXPECT_EQ(r.manager->free_pages(0), 4);  // 9 pages for 256 tokens of two sequences
  EXPECT_TRUE(r.manager->Append(b, 128).ok());
  EXPECT_THAT(r.manager->Append(b, 1).message(), HasSubstr("need 1 pages of 32 tokens, 0 of 9"));
  r.Expect(a, tokens);
}

// Preempted, computed again from what the others left.
TEST(PrefixReuse, PreemptedSequencesFindTheirRowsAgain) {
  Runner r({Rows(0, 16)}, {.tokens = 128, .max_sequences = 2});
  const std::vector<int32_t> tokens = Tokens(100);
  const int32_t s = *r.manager->Admit();
  ASSERT_TRUE(r.manager->Append(s, 100).ok());
  for (int64_t row = 0; row < 100; ++row) Put(r.Row(0, s, row), Runner::RowOf(tokens, row));
  r.manager->Preempt(s, tokens);
  EXPECT_EQ(r.manager->free_pages(0), 9);
  const int32_t other = r.Run(Tokens(64, 500), 0);  // 4 pages; 3 were unused, 1 is the deepest
  r.manager->Free(other);
  r.RunAndFree(tokens, 64);
}

// A page of 128 that was published while it was being filled is continued in place by its owner,
// and copied by whoever goes back into its published rows.
TEST(PrefixReuse, RewindingIntoPublishedRowsCopies) {
  Runner r({Rows(0, 128)}, {.tokens = 512, .max_sequences = 2});
  const std::vector<int32_t> tokens = Tokens(100);
  const int32_t s = r.Run(tokens, 0);
  const int32_t page = r.manager->PagesOf(s, 0)[0];
  ASSERT_TRUE(r.manager->Keep(s, 96).ok());
  r.Extend(s, Join(Tokens(96), Tokens(20, 900)));
  EXPECT_EQ(r.manager->PagesOf(s, 0)[0], page);
  ASSERT_TRUE(r.manager->Keep(s, 70).ok());
  const std::vector<int32_t> other = Join(Tokens(70), Tokens(20, 700));
  r.Extend(s, other);
  EXPECT_NE(r.manager->PagesOf(s, 0)[0], page);
  r.Run(tokens, 96);
  r.Expect(s, other);
}

TEST(PrefixReuse, RewindingInAFullCacheForgetsInstead) {
  Runner r({Rows(0, 128)}, {.tokens = 128, .max_sequences = 1});
  const int32_t s = r.Run(Tokens(100), 0);
  ASSERT_TRUE(r.manager->Keep(s, 70).ok());
  r.Extend(s, Join(Tokens(70), Tokens(20, 700)));  // no page for a copy
  r.manager->Free(s);
  EXPECT_EQ(r.manager->AdmitWithPrefix(Tokens(100))->reused_rows, 64);  // whole groups of 32 again
}

// The first nodes' page may go while a later page, which begins with the same rows, stays.
TEST(PrefixReuse, ALaterCopyOfAPageTakesOver) {
  Runner r({Rows(0, 128)}, {.tokens = 384, .max_sequences = 1});
  r.RunAndFree(Tokens(70), 0);  // two nodes in a page
  const std::vector<int32_t> tokens = Join(Tokens(60), Tokens(68, 700));
  r.RunAndFree(tokens, 60);  // a copy of the page, now with four nodes of which one is the same
  r.RunAndFree(Tokens(200, 2000), 0);  // two pages: the unused one and the first one's
  r.RunAndFree(tokens, 127);
}

TEST(PrefixReuse, WindowsLimitHits) {
  // A full layer, and one that sees 40 rows.
  Runner r({Rows(0, 32), Windowed(1, 16, 40)},
           {.tokens = 1024, .max_sequences = 2, .max_step_tokens = 32});
  // (40 - 1 + 32 + 14) / 16 + 1 pages for each sequence.
  EXPECT_EQ(r.manager->pages(1), 12);
  const std::vector<int32_t> tokens = Tokens(320);
  const int32_t s = r.Run(tokens, 0);
  // The newest rows are in use; of the others the cache keeps what it has pages for.
  EXPECT_EQ(r.manager->pages(1) - r.manager->free_pages(1), 5);
  EXPECT_EQ(r.manager->AdmitWithPrefix(tokens)->reused_rows, 319);
  r.manager->Free(1);
  // 12 pages are rows 128..320: a hit needs the 39 rows before it, so none ends before 167.
  EXPECT_EQ(r.manager->AdmitWithPrefix(First(tokens, 200))->reused_rows, 199);
  r.manager->Free(1);
  EXPECT_EQ(r.manager->AdmitWithPrefix(First(tokens, 161))->reused_rows, 0);
  r.manager->Free(1);
  r.Expect(s, tokens);
}

TEST(PrefixReuse, StatesLimitHits) {
  CacheSpec state = {.kind = CacheKind::kState, .layer = 1, .state_bytes = 64};
  Runner r({Rows(0, 16), state}, {.tokens = 1024, .max_sequences = 2, .max_snapshots = 2});
  const std::vector<int32_t> tokens = Tokens(150);
  // Extend computes 32 at a time: states at 32, 64, 96, 128, of which two are kept.
  r.RunAndFree(tokens, 0);
  r.RunAndFree(tokens, 128);
  r.RunAndFree(Join(Tokens(120), Tokens(5, 800)), 96);
  EXPECT_EQ(r.manager->AdmitWithPrefix(First(tokens, 96))->reused_rows, 0);
  // Snapshots of sequences come before published ones.
  EXPECT_TRUE(r.manager->Snapshot(0).ok());
  EXPECT_TRUE(r.manager->Snapshot(0).ok());
  EXPECT_FALSE(r.manager->Snapshot(0).ok());
  EXPECT_EQ(r.manager->AdmitWithPrefix(tokens)->reused_rows, 0);
}

TEST(PrefixReuse, OfStatesAlone) {
  CacheSpec state = {.kind = CacheKind::kState, .layer = 0, .state_bytes = 64};
  Runner r({state}, {.tokens = 256, .max_sequences = 2, .max_snapshots = 3});
  r.RunAndFree(Tokens(100), 0);
  r.RunAndFree(Tokens(100), 96);
  for (int i = 1; i < 20; ++i) r.RunAndFree(Tokens(90, i * 1000), 0);  // nodes make room, too
  r.RunAndFree(Tokens(90, 19'000), 64);
  r.RunAndFree(Tokens(100), 0);
}

TEST(PrefixReuse, ForksPublishWhatTheyShare) {
  Runner r({Rows(0, 64)}, {.tokens = 1024, .max_sequences = 3});
  const std::vector<int32_t> tokens = Tokens(100);
  const int32_t a = r.Run(tokens, 0);
  const int32_t b = *r.manager->Fork(a);
  const std::vector<int32_t> of_a = Join(tokens, Tokens(60, 700));
  const std::vector<int32_t> of_b = Join(tokens, Tokens(60, 800));
  r.Extend(a, of_a);
  r.Extend(b, of_b);
  r.Expect(a, of_a);
  r.manager->Free(a);
  r.manager->Free(b);
  r.RunAndFree(of_a, 159);
  r.RunAndFree(of_b, 159);
}

TEST(Windows, RowsOutOfSightAreGivenBack) {
  CacheSpec chunked = Rows(2, 16);
  chunked.chunk = 64;
  Runner r({Rows(0, 16), Windowed(1, 16, 20), chunked},
           {.tokens = 1000, .max_sequences = 1, .max_step_tokens = 16});
  // Rows before the step's first and its own, wherever a page begins.
  EXPECT_EQ(r.manager->pages(1), (19 + 16 + 14) / 16 + 1);
  EXPECT_EQ(r.manager->pages(2), (63 + 16 + 14) / 16 + 1);
  EXPECT_EQ(r.manager->max_pages(1), 63);
  const std::vector<int32_t> tokens = Tokens(900);
  const int32_t s = *r.manager->Admit();
  r.Extend(s, tokens, 16);
  const auto window = r.manager->PagesOf(s, 1);
  const auto chunk = r.manager->PagesOf(s, 2);
  ASSERT_EQ(window.size(), 57u);
  // The last Append came after 896 rows: its first query saw row 877 (page 54), and row 896 in
  // its chunk (page 56).
  for (size_t j = 0; j < 57; ++j) {
    EXPECT_EQ(window[j] == PagePool::kDropped, j < 54) << j;
    EXPECT_EQ(chunk[j] == PagePool::kDropped, j < 56) << j;
  }
  // Going back to row 895 needs row 832 of the chunked layer.
  const Status refused = r.manager->Keep(s, 895);
  EXPECT_EQ(refused.code(), StatusCode::kRefused);
  EXPECT_THAT(refused.message(),
              HasSubstr("a sequence of 900 rows cannot go back to 895: layer 2 (chunk 64) would "
                        "see rows from 832 on, those before 896 were given back"));
  EXPECT_EQ(r.manager->LengthOf(s), 900);
  ASSERT_TRUE(r.manager->Keep(s, 898).ok());
  r.Extend(s, tokens, 1);
  EXPECT_TRUE(r.manager->Keep(s, 0).ok());
  r.Extend(s, tokens, 16);
}

TEST(Windows, SnapshotsCannotBringRowsBack) {
  CacheSpec state = {.kind = CacheKind::kState, .layer = 1, .state_bytes = 64};
  Runner r({Windowed(0, 16, 8), state},
           {.tokens = 500, .max_sequences = 1, .max_step_tokens = 16, .max_snapshots = 2});
  const std::vector<int32_t> tokens = Tokens(200);
  const int32_t s = *r.manager->Admit();
  r.Extend(s, Tokens(20), 16);
  const int32_t snapshot = *r.manager->Snapshot(s);
  r.Extend(s, Tokens(30), 16);
  ASSERT_TRUE(r.manager->Restore(snapshot).ok());
  r.Expect(s, tokens);
  r.Extend(s, tokens, 16);
  const Status refused = r.manager->Restore(snapshot);
  EXPECT_EQ(refused.code(), StatusCode::kRefused);
  EXPECT_EQ(r.manager->LengthOf(s), 200);
}

TEST(Windows, SequencesOfTheirLengthFitWhateverTheLengthOfOthers) {
  Runner r({Windowed(0, 16, 33)},
           {.tokens = 4000, .max_sequences = 4, .max_sequence_tokens = 1000, .max_step_tokens = 8});
  EXPECT_EQ(r.manager->pages(0), 4 * ((32 + 8 + 14) / 16 + 1));
  EXPECT_EQ(r.manager->max_pages(0), 63);
  for (int i = 0; i < 4; ++i) {
    const std::vector<int32_t> tokens = Tokens(1000, i * 10'000);
    const int32_t s = *r.manager->Admit();
    r.Extend(s, tokens, 8);
    EXPECT_THAT(r.manager->Append(s, 9).message(),
                HasSubstr("9 more rows after 1000 of a sequence, which may have 1008"));
  }
}

// The bytes of nodes are the plan's, whatever the groups are.
TEST(PrefixReuse, BytesAreThePlans) {
  CacheSpec state = {.kind = CacheKind::kState, .layer = 3, .state_bytes = 64};
  const std::vector<std::vector<CacheSpec>> models = {{Rows(0, 16)},
                                                      {Rows(0, 256), Windowed(1, 64, 100)},
                                                      {Windowed(0, 16, 40)},
                                                      {state},
                                                      {Rows(0, 32), state}};
  for (const auto& specs : models) {
    const Runner r(specs, {.tokens = 1000,
                           .max_sequences = 3,
                           .max_sequence_tokens = 500,
                           .max_step_tokens = 64,
                           .max_snapshots = 2});
    EXPECT_GT(r.manager->plan().prefix_bytes, 0);
    EXPECT_EQ(r.manager->bytes(), r.manager->plan().bytes);
    EXPECT_EQ(r.manager->bytes(), PlanCache(specs, {.tokens = 1000,
                                                    .max_sequences = 3,
                                                    .max_sequence_tokens = 500,
                                                    .max_step_tokens = 64,
                                                    .max_snapshots = 2,
                                                    .prefix_reuse = true})
                                      ->bytes);
  }
}

}  // namespace
}  // namespace tenon
