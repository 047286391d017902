// PagePool: which pages of one cache group belong to which sequences: ids, reference counts and
// page tables, no bytes. A page may be in several tables after a fork; whoever grows into a shared
// page gets a copy of it. Prefix reuse will hold further references; eviction will give them back.
// Not thread-safe.
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
  // `pages` ids, `sequences` page tables of as many entries.
  static Result<PagePool> Create(int64_t pages, int32_t page_tokens, int64_t sequences);

  int32_t page_tokens() const { return page_tokens_; }
  int64_t pages() const { return static_cast<int64_t>(references_.size()); }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }
  int64_t table_bytes() const { return tables_.size(); }
  int32_t references(int32_t page) const { return references_[static_cast<size_t>(page)]; }
  int64_t PagesFor(int64_t rows) const { return (rows + page_tokens_ - 1) / page_tokens_; }

  // The sequence's pages in order of its rows; the address never changes.
  std::span<const int32_t> TableOf(int64_t sequence) const {
    return {Table(sequence), static_cast<size_t>(used_[static_cast<size_t>(sequence)])};
  }

  // Bytes of page `from` that its new owner expects in page `to`.
  struct Copy {
    int32_t from = 0;
    int32_t to = 0;
  };
  // Free pages that growing takes: new ones, and one more when the last page is shared and partly
  // filled.
  int64_t NeededToGrow(int64_t sequence, int64_t rows, int64_t more) const;
  // The sequence has `rows` rows and gets `more`. NeededToGrow pages must be free.
  std::optional<Copy> Grow(int64_t sequence, int64_t rows, int64_t more);
  // Pages that Shrink would give back.
  int64_t FreedByShrink(int64_t sequence, int64_t rows) const;
  // The sequence keeps its first `rows` rows.
  void Shrink(int64_t sequence, int64_t rows);
  // An empty sequence `to` gets every page of `from`.
  void Share(int64_t from, int64_t to);

  // Every id in range, every page either free or referenced as often as tables name it. kInternal
  // says what is wrong.
  Status Check() const;

 private:
  PagePool() = default;
  int32_t Take();
  void Release(int32_t page);
  int32_t* Table(int64_t sequence) const {
    return reinterpret_cast<int32_t*>(tables_.data()) + sequence * pages();
  }
  bool LastPageIsShared(int64_t sequence, int64_t rows) const;

  int32_t page_tokens_ = 0;
  std::vector<int32_t> free_;        // ids; capacity for all, so that giving back never allocates
  std::vector<int32_t> references_;  // [pages]
  std::vector<int64_t> used_;        // [sequences]: pages of each
  Buffer tables_;                    // [sequences, pages] of int32
};

}  // namespace tenon
