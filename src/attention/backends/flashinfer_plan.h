// FLASHINFER's plan of one cache group's step, made once and read by every layer of the group: page
// tables, and a list of work balanced over shares. How a sequence's keys are cut follows from its
// own length, and partial results are always merged in the order of keys: results depend neither on
// the team, nor on the other sequences, nor on what is split or shared. Private to the backend.
// Prepare on one thread; constant while a tape runs.
#pragma once

#include <array>
#include <vector>

#include "tenon/attention/backend.h"
#include "tenon/attention/backends/flashinfer_cascade.h"
#include "tenon/attention/backends/flashinfer_pages.h"
#include "tenon/attention/backends/row_block.h"

namespace tenon::backends {

class FlashInferPlan final : public StepPlan {
 public:
  // Query rows of one unit of work.
  static constexpr int64_t kTileRows = 32;
  // Of equal cost, as far as the work can be divided.
  static constexpr int64_t kShares = 64;
  // Requests of more rows read a key often enough by themselves.
  static constexpr int64_t kMaxCascadeRows = 16;

  // cascade: prefixes that sequences share are attended once.
  FlashInferPlan(int group, const CacheSpec& spec, bool cascade)
      : group_(static_cast<size_t>(group)), spec_(spec), cascade_(cascade) {}

  // Partial states that a step may keep: rows of [heads, StateFloats].
  static int64_t SlotsFor(KvLayout layout) { return layout == KvLayout::kRow ? 128 : 512; }
  // Keys of one partial sum of rows that see `keys` keys. A power of two.
  static int64_t ChunkFor(int64_t keys, std::optional<int64_t> window);

  void Prepare(const StepLayout& layout);

  const CsrPages& pages() const { return pages_; }
  const SharedPrefixes& shared() const { return shared_; }

  // Query rows and the keys they attend in one unit, for one kv head at a time.
  struct Item {
    int32_t request = 0;                   // whose pages are read
    int32_t first_run = 0, run_count = 0;  // of runs()
    int64_t rows = 0;                      // of all runs
    int64_t key_begin = 0, key_end = 0;
    int64_t chunk = 0;
    // Of the first row's partial state, the others follow; -1: one run, all keys, straight to the
    // output.
    int64_t slot = -1;
    bool shared = false;  // the runs are of several requests, all of which see all these keys
    int64_t cost = 0;
  };
  std::span<const Item> items() const { return items_; }
  // Rows that are neighbours in the step, of one or, where keys are shared, of several requests.
  std::span<const RowBlock> runs(const Item& item) const {
    return std::span(runs_).subspan(static_cast<size_t>(item.first_run),
                                    static_cast<size_t>(item.run_count));
  }
  // Indices of a share's items, the costliest first.
  std::span<const int32_t> share(int64_t i) const {
    const auto at = static_cast<size_t>(i);
    return std::span(order_).subspan(static_cast<size_t>(share_begin_[at]),
                                     static_cast<size_t>(share_begin_[at + 1] - share_begin_[at]));
  }
  int64_t CostOfShare(int64_t i) const;

  // The partial states of some rows: part p of row i is in slot + p * stride + i.
  struct Parts {
    int64_t slot = 0;
    int64_t stride = 0;
    int64_t count = 0;
  };
  // To be merged: first the parts of what is shared, then those of the rows' own keys.
  struct Join {
    int64_t row = 0;
    int64_t rows = 0;
    Parts shared;
    Parts own;
  };
  std::span<const Join> joins() const { return joins_; }

 private:
  // Rows of one request, and how they are cut.
  struct Tile {
    RowBlock block;
    int64_t key_begin = 0, key_end = 0;
    int64_t chunk = 0;
    Parts shared = {};
    int64_t parts() const { return CountOf(key_begin, key_end, chunk); }
  };
  static int64_t CountOf(int64_t begin, int64_t end, int64_t chunk);

  void AddTiles(const StepRequest& request, int32_t index);
  void FindShared(const StepLayout& layout);
  void AddShared(const StepLayout& layout, const SharedPrefixes::Group& group);
  void AddItems();
  void AddItem(Item item, std::span<const RowBlock> blocks);
  void AddParts(Item item, std::span<const RowBlock> blocks);
  void Balance();

  size_t group_;
  CacheSpec spec_;
  bool cascade_;
  CsrPages pages_;
  SharedPrefixes shared_;
  int64_t free_slots_ = 0;  // that nobody has taken or set aside
  int64_t next_slot_ = 0;
  std::vector<int32_t> lengths_;  // [requests]
  std::vector<Tile> tiles_;
  std::vector<int32_t> first_tile_;  // [requests]
  std::vector<SharedPrefixes::Candidate> candidates_;
  std::vector<RowBlock> blocks_;
  std::vector<Item> items_;
  std::vector<RowBlock> runs_;
  std::vector<Join> joins_;
  std::vector<int32_t> by_cost_, owner_, order_;  // [items]
  std::array<int32_t, kShares + 1> share_begin_ = {};
};

}  // namespace tenon::backends
