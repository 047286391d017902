// CacheManager: pages and state slots of all sequences. Equal CacheSpecs of different layers form a
// group with its own page ids (PagePool); each layer has its own memory. Not the arithmetic of
// sizes (cache_plan.h), no scheduling: what does not fit is an error that changes nothing. Not
// thread-safe; used by the engine between steps.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tenon/base/status.h"
#include "tenon/cache/cache_plan.h"
#include "tenon/cache/cache_spec.h"
#include "tenon/cache/page_pool.h"
#include "tenon/tensor/buffer.h"

namespace tenon {

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
  Result<int32_t> Admit();
  // Room for `tokens` more rows in every paged group, for this sequence alone to write.
  // kDoesNotFit, naming what is there, leaves the sequence as it was.
  Status Append(int32_t sequence, int64_t tokens);
  // Room for the encoder's rows, replacing earlier ones. Errors as Append.
  Status SetCross(int32_t sequence, int64_t rows);
  // A new sequence with the same rows (pages are shared until written), cross rows and states.
  // kDoesNotFit as Admit.
  Result<int32_t> Fork(int32_t sequence);
  // Forgets all rows but the first `rows`. States go back only to a snapshot taken at `rows` (or to
  // none: rows = 0); otherwise kRefused, listing the snapshots there are.
  Status Keep(int32_t sequence, int64_t rows);
  void Free(int32_t sequence);

  // The sequence's states as they are now, set aside under an index. It stays until it is dropped,
  // the sequence is freed or rewound to before it. kDoesNotFit when max_snapshots are there.
  Result<int32_t> Snapshot(int32_t sequence);
  // Rows and states as they were at the snapshot, which stays.
  void Restore(int32_t snapshot);
  void Drop(int32_t snapshot);

  // --- for the step
  int64_t LengthOf(int32_t sequence) const { return At(sequence).length; }
  int64_t CrossLengthOf(int32_t sequence) const { return At(sequence).cross_length; }
  int32_t SlotOf(int32_t sequence) const { return sequence; }
  // Pages of a sequence in a paged group, in order of rows: stable address, room for max_pages.
  std::span<const int32_t> PagesOf(int32_t sequence, int group) const {
    return PoolOf(group).TableOf(sequence);
  }
  int64_t max_pages(int group) const { return PoolOf(group).pages(); }
  int64_t free_pages(int group) const { return PoolOf(group).free_pages(); }
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
  };
  struct Sequence {
    bool live = false;
    int64_t length = 0;
    int64_t cross_length = 0;
  };
  struct SnapshotEntry {
    int32_t sequence = -1;  // -1: unused
    int64_t length = 0;
  };

  CacheManager() = default;
  Status AddGroup(const CacheGroupPlan& plan, int index, std::span<LayerCache* const> caches,
                  int64_t max_sequences);
  const Sequence& At(int32_t sequence) const;
  Sequence& At(int32_t sequence) {
    return const_cast<Sequence&>(std::as_const(*this).At(sequence));
  }
  const PagePool& PoolOf(int group) const { return *groups_[static_cast<size_t>(group)].pool; }
  int64_t SnapshotSlot(int32_t snapshot) const {
    return static_cast<int64_t>(sequences_.size()) + snapshot;
  }
  int64_t RowsIn(size_t group, const Sequence& s) const {
    return plan_.groups[group].spec.kind == CacheKind::kCross ? s.cross_length : s.length;
  }
  Status DoesNotFitIn(size_t group, int64_t more, int64_t needed, int64_t available) const;
  void CopyPage(size_t group, const PagePool::Copy& copy);
  void CopyStates(int64_t from_slot, int64_t to_slot);
  void ShrinkRows(int32_t sequence, int64_t rows);
  void DropSnapshots(int32_t sequence, int64_t longer_than);

  CachePlan plan_;
  std::vector<Group> groups_;  // as in the plan
  std::vector<Sequence> sequences_;
  std::vector<SnapshotEntry> snapshots_;
};

}  // namespace tenon
