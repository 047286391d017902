// PagePool: which pages of one cache group belong to which sequences: ids, reference counts and
// page tables, no bytes. A page may be in several tables; whoever grows into a page whose next rows
// others need gets a copy of it. A page that no sequence has but the prefix tree holds is cached:
// it counts as free, and the least recently used goes first. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tenon/base/status.h"
#include "tenon/tensor/buffer.h"

namespace tenon {

class PagePool {
 public:
  // What a page table has in place of a page that was given back because none of its sequence's
  // queries will see it.
  static constexpr int32_t kDropped = -1;

  struct Sizes {
    int64_t pages = 0;
    int64_t max_pages = 0;  // of one sequence, dropped ones included
    int64_t sequences = 0;
    int32_t page_tokens = 0;
  };
  static Result<PagePool> Create(const Sizes& sizes);

  // What a pool of these sizes allocates is
  // pages * kBytesPerPage + sequences * (max_pages * kBytesPerEntry + kBytesPerSequence).
  static constexpr int64_t kBytesPerEntry = sizeof(int32_t);
  static constexpr int64_t kBytesPerPage = 6 * sizeof(int32_t);
  static constexpr int64_t kBytesPerSequence = 2 * sizeof(int64_t);
  int64_t bytes() const;

  int32_t page_tokens() const { return page_tokens_; }
  int64_t pages() const { return static_cast<int64_t>(references_.size()); }
  int64_t max_pages() const { return max_pages_; }
  // That nobody has or holds, and together with the cached ones.
  int64_t unused_pages() const { return static_cast<int64_t>(unused_.size()); }
  int64_t free_pages() const { return unused_pages() + cached_; }
  // Page tables that have the page.
  int32_t references(int32_t page) const { return references_[static_cast<size_t>(page)]; }
  // The page's first rows that the prefix tree holds.
  int32_t held_rows(int32_t page) const { return held_rows_[static_cast<size_t>(page)]; }
  int64_t PagesFor(int64_t rows) const { return (rows + page_tokens_ - 1) / page_tokens_; }

  // The sequence's pages in order of its rows; the address never changes.
  std::span<const int32_t> TableOf(int64_t sequence) const {
    return {Table(sequence), static_cast<size_t>(used_[static_cast<size_t>(sequence)])};
  }
  // The first so many entries of its table are kDropped.
  int64_t dropped(int64_t sequence) const { return dropped_[static_cast<size_t>(sequence)]; }

  // Bytes of page `from` that its new owner expects in page `to`.
  struct Copy {
    int32_t from = 0;
    int32_t to = 0;
  };
  // Others need rows of the page that row `rows` of the sequence would go to.
  bool MustCopy(int64_t sequence, int64_t rows) const;
  // Pages that growing takes: new ones, and one more for a copy.
  int64_t NeededToGrow(int64_t sequence, int64_t rows, int64_t more) const;
  // The sequence has `rows` rows and gets `more`. NeededToGrow pages must be unused.
  std::optional<Copy> Grow(int64_t sequence, int64_t rows, int64_t more);
  // Pages that Shrink would make free.
  int64_t FreedByShrink(int64_t sequence, int64_t rows) const;
  // The sequence keeps its first `rows` rows.
  void Shrink(int64_t sequence, int64_t rows);
  // Pages that Drop would make free.
  int64_t FreedByDrop(int64_t sequence, int64_t row) const;
  // The sequence gives back its pages that lie before `row`.
  void Drop(int64_t sequence, int64_t row);
  // An empty sequence `to` gets every page of `from`.
  void Share(int64_t from, int64_t to);
  // An empty sequence begins with so many dropped pages; then any sequence's next page is one that
  // is there.
  void BeginDropped(int64_t sequence, int64_t pages);
  void Adopt(int64_t sequence, int32_t page);

  // --- for the prefix tree
  // A node of the tree holds the page up to its row `rows` - 1, or lets go of it.
  void Hold(int32_t page, int32_t rows);
  void Unhold(int32_t page);
  int32_t holds(int32_t page) const { return holds_[static_cast<size_t>(page)]; }
  // The cached page that was least recently in a table; -1: none.
  int32_t OldestCached() const { return first_cached_; }

  // Every id in range, every page either unused, cached or referenced as often as tables name it.
  // kInternal says what is wrong.
  Status Check() const;

 private:
  PagePool() = default;
  int32_t Take();
  void Release(int32_t page);
  void Refer(int32_t page);
  void Cache(int32_t page);
  void Uncache(int32_t page);
  int32_t* Table(int64_t sequence) const {
    return reinterpret_cast<int32_t*>(tables_.data()) + sequence * max_pages_;
  }
  int64_t CountSole(std::span<const int32_t> pages) const;
  Status CheckTables() const;
  Status CheckFree() const;

  int32_t page_tokens_ = 0;
  int64_t max_pages_ = 0;
  std::vector<int32_t> unused_;      // ids; capacity for all, so that giving back never allocates
  std::vector<int32_t> references_;  // [pages]
  std::vector<int32_t> holds_;       // [pages]
  std::vector<int32_t> held_rows_;   // [pages]
  // Cached pages in order of their last use: a list through both arrays, [pages], -1: its ends.
  std::vector<int32_t> before_, after_;
  int32_t first_cached_ = -1, last_cached_ = -1;
  int64_t cached_ = 0;
  std::vector<int64_t> used_;     // [sequences]: entries of each table
  std::vector<int64_t> dropped_;  // [sequences]: the first of them that are kDropped
  Buffer tables_;                 // [sequences, max_pages] of int32
};

}  // namespace tenon
