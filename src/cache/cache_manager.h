// CacheManager: pages and state slots of all sequences. Equal CacheSpecs of different layers form a
// group with its own page ids (PagePool); each layer has its own memory. Rows of published tokens
// stay for later sequences that begin with the same tokens, until their pages are needed. Not the
// arithmetic of sizes (cache_plan.h), no scheduling: what does not fit is an error that changes
// nothing. Not thread-safe; used by the engine between steps.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tenon/base/status.h"
#include "tenon/cache/cache_plan.h"
#include "tenon/cache/cache_spec.h"
#include "tenon/cache/page_pool.h"
#include "tenon/cache/prefix_tree.h"
#include "tenon/tensor/buffer.h"

namespace tenon {

struct Admission {
  int32_t sequence = -1;
  int64_t reused_rows = 0;  // the sequence's length
};

enum class PublishStates { kNone, kKeep };

class CacheManager {
 public:
  // `caches[i]`, at an address that stays, receives where spec i's rows or states are (for
  // kSharedWith: the other layer's). Errors of PlanCache; kDoesNotFit when memory is refused.
  static Result<std::unique_ptr<CacheManager>> Create(std::span<const CacheSpec> specs,
                                                      std::span<LayerCache* const> caches,
                                                      const CacheSizing& sizing);

  const CachePlan& plan() const { return plan_; }
  // What is allocated; equals plan().bytes.
  int64_t bytes() const;

  // --- verbs
  // A new sequence without rows: its index in [0, max_sequences), also its state slot. kDoesNotFit
  // when all are taken.
  Result<int32_t> Admit(const PrefixKey& key = {});
  // A new sequence that has the rows of as many of the first `tokens` as earlier sequences of the
  // same key have published and every group still holds: whole pages shared, the rest of a page
  // copied, states restored. At least `keep_for_compute` tokens are left to compute (1: the last
  // one, whose logits are wanted; all, where every token's are). Where nothing can be reused, as
  // in models with cross caches, it has no rows. Errors as Admit.
  Result<Admission> AdmitWithPrefix(std::span<const int32_t> tokens, const PrefixKey& key = {},
                                    int64_t keep_for_compute = 1);
  // Offers the sequence's rows to later ones. `tokens`: all of it from the first on, no more than
  // it has rows, all written. Whole groups of kPrefixTokens count; what was offered before
  // costs nothing. kKeep: also a copy of its states as they are now, if tokens is a multiple of
  // kPrefixTokens and all its rows, and a snapshot is to be had; models with states can be
  // continued at such lengths only.
  void Publish(int32_t sequence, std::span<const int32_t> tokens,
               PublishStates states = PublishStates::kNone);
  // Room for `tokens` more rows in every paged group, for this sequence alone to write; they are
  // all written before the next Append. Takes pages of published rows that no sequence has, least
  // recently used first, and gives back pages that neither these nor later rows see (window,
  // chunk). kDoesNotFit, naming what is there, leaves the sequence as it was.
  Status Append(int32_t sequence, int64_t tokens);
  // Room for the encoder's rows, replacing earlier ones. Errors as Append.
  Status SetCross(int32_t sequence, int64_t rows);
  // A new sequence with the same rows (pages are shared until written), cross rows and states.
  // kDoesNotFit as Admit.
  Result<int32_t> Fork(int32_t sequence);
  // Forgets all rows but the first `rows`. kRefused where the next row would see rows that its
  // window or chunk has given back, and for states, which go back only to a snapshot taken at
  // `rows` (or to none: rows = 0), listing the snapshots there are.
  Status Keep(int32_t sequence, int64_t rows);
  // Its published rows stay for others until their pages are needed.
  void Free(int32_t sequence);
  // Frees a sequence that makes room for others and will be computed again: publishes it first, so
  // that AdmitWithPrefix finds what is left of it then. `tokens` as in Publish.
  void Preempt(int32_t sequence, std::span<const int32_t> tokens);

  // The sequence's states as they are now, set aside under an index. It stays until it is dropped,
  // the sequence is freed or rewound to before it. kDoesNotFit when max_snapshots are there.
  Result<int32_t> Snapshot(int32_t sequence);
  // Rows and states as they were at the snapshot, which stays. kRefused as Keep.
  Status Restore(int32_t snapshot);
  void Drop(int32_t snapshot);

  // --- for the step
  int64_t LengthOf(int32_t sequence) const { return At(sequence).length; }
  int64_t CrossLengthOf(int32_t sequence) const { return At(sequence).cross_length; }
  int32_t SlotOf(int32_t sequence) const { return sequence; }
  // Pages of a sequence in a paged group, in order of rows: stable address, room for max_pages.
  // PagePool::kDropped (-1) for pages that were given back: no query of the sequence sees them.
  std::span<const int32_t> PagesOf(int32_t sequence, int group) const {
    return PoolOf(group).TableOf(sequence);
  }
  // The most that one sequence can have: the length of its table.
  int64_t max_pages(int group) const { return PoolOf(group).max_pages(); }
  int64_t pages(int group) const { return PoolOf(group).pages(); }
  // That Append can take: unused ones and those that only published rows hold.
  int64_t free_pages(int group) const { return PoolOf(group).free_pages(); }
  // Whether Append would find pages for a new sequence of so many rows that reuses none. Of groups
  // with a window or chunk, whose sequences take turns with few pages, that is taken for granted.
  bool HasRoomFor(int64_t rows) const;
  // One group's page tables of several sequences, as StepLayout wants them: row i of `table`
  // [sequences, stride] gets the pages of sequences[i]; the rest of the row is left as it is.
  void CopyPages(int group, std::span<const int32_t> sequences, int64_t stride,
                 int32_t* table) const;

  // --- for tests and debug builds: kInternal says what is wrong
  // Pools consistent, every sequence with the pages of its rows.
  Status Check() const;
  // The pages of the sequence's last `rows` rows belong to it alone.
  Status CheckWritable(int32_t sequence, int64_t rows) const;

 private:
  struct Group {
    std::vector<Buffer> layers;    // one per member
    std::optional<PagePool> pool;  // paged kinds
    size_t in_tree = 0;            // index among the prefix tree's groups
  };
  struct Sequence {
    bool live = false;
    int64_t length = 0;
    int64_t cross_length = 0;
    PrefixKey key = {};
    PrefixTree::Ref published = {};  // the last node that it is known to have
  };
  // Of a sequence, of a published node, or unused.
  struct SnapshotEntry {
    int32_t sequence = -1;
    int64_t length = 0;
    PrefixTree::Ref node = {};
    uint64_t last_use = 0;
  };

  CacheManager() = default;
  Status AddGroup(const CacheGroupPlan& plan, int index, std::span<LayerCache* const> caches,
                  int64_t max_sequences);
  void MakePrefixTree();
  const Sequence& At(int32_t sequence) const;
  Sequence& At(int32_t sequence) {
    return const_cast<Sequence&>(std::as_const(*this).At(sequence));
  }
  const PagePool& PoolOf(int group) const { return *groups_[static_cast<size_t>(group)].pool; }
  bool HasRows(size_t group) const {
    return plan_.groups[group].spec.kind == CacheKind::kPagedRows;
  }
  int64_t SnapshotSlot(int32_t snapshot) const {
    return static_cast<int64_t>(sequences_.size()) + snapshot;
  }
  int64_t RowsIn(size_t group, const Sequence& s) const {
    return plan_.groups[group].spec.kind == CacheKind::kCross ? s.cross_length : s.length;
  }
  Status DoesNotFitIn(size_t group, int64_t more, int64_t needed, int64_t available) const;
  Status AskToGrow(size_t group, int32_t sequence, int64_t tokens) const;
  void Grow(size_t group, int32_t sequence, int64_t tokens);
  void MakeRoom(size_t group, int64_t pages);
  void CopyPage(size_t group, const PagePool::Copy& copy);
  void CopyStates(int64_t from_slot, int64_t to_slot);
  Status CheckSeen(int32_t sequence, int64_t rows) const;
  void ShrinkRows(int32_t sequence, int64_t rows);
  void DropSnapshots(int32_t sequence, int64_t longer_than);
  int32_t FindSnapshotSlot();

  // cache_prefix.cc
  int64_t Reusable(const PrefixTree::Match& match) const;
  int64_t StateBefore(const PrefixTree::Match& match, int64_t length) const;
  int64_t MissingRow(const PrefixTree::Match& match, int64_t length) const;
  void TakePrefix(int32_t sequence, const PrefixTree::Match& match, int64_t length);
  int32_t PublishNodes(Sequence& s, int32_t sequence, std::span<const int32_t> tokens);
  void KeepState(int32_t sequence, int32_t node);
  Status CheckStates() const;

  CachePlan plan_;
  std::vector<Group> groups_;  // as in the plan
  std::vector<Sequence> sequences_;
  std::vector<SnapshotEntry> snapshots_;
  std::optional<PrefixTree> tree_;
  std::vector<std::span<const int32_t>> tables_;  // of one sequence, per group of the tree
  uint64_t clock_ = 0;
};

}  // namespace tenon
