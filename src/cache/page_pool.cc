#include "tenon/cache/page_pool.h"

#include <fmt/format.h>

#include <algorithm>

namespace tenon {

Result<PagePool> PagePool::Create(int64_t pages, int32_t page_tokens, int64_t sequences) {
  PagePool pool;
  pool.page_tokens_ = page_tokens;
  TN_ASSIGN_OR_RETURN(pool.tables_,
                      Buffer::Allocate(pages * sequences * static_cast<int64_t>(sizeof(int32_t)),
                                       "the cache's page tables"));
  pool.references_.resize(static_cast<size_t>(pages));
  pool.used_.resize(static_cast<size_t>(sequences));
  pool.free_.reserve(static_cast<size_t>(pages));
  for (int64_t page = pages - 1; page >= 0; --page)
    pool.free_.push_back(static_cast<int32_t>(page));
  return pool;
}

int32_t PagePool::Take() {
  TN_CHECK(!free_.empty(), "pages were counted before they are taken");
  const int32_t page = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(page)] = 1;
  return page;
}

void PagePool::Release(int32_t page) {
  int32_t& count = references_[static_cast<size_t>(page)];
  TN_CHECK(count > 0, "a page is given back as often as it was taken");
  if (--count == 0) free_.push_back(page);
}

bool PagePool::LastPageIsShared(int64_t sequence, int64_t rows) const {
  return rows % page_tokens_ != 0 && references(Table(sequence)[rows / page_tokens_]) > 1;
}

int64_t PagePool::NeededToGrow(int64_t sequence, int64_t rows, int64_t more) const {
  if (more == 0) return 0;
  return PagesFor(rows + more) - PagesFor(rows) + (LastPageIsShared(sequence, rows) ? 1 : 0);
}

std::optional<PagePool::Copy> PagePool::Grow(int64_t sequence, int64_t rows, int64_t more) {
  int64_t& used = used_[static_cast<size_t>(sequence)];
  TN_CHECK(used == PagesFor(rows), "a sequence has the pages of its rows");
  std::optional<Copy> copy;
  if (more > 0 && LastPageIsShared(sequence, rows)) {
    int32_t& last = Table(sequence)[used - 1];
    copy = Copy{last, Take()};
    Release(last);
    last = copy->to;
  }
  for (const int64_t wanted = PagesFor(rows + more); used < wanted; ++used)
    Table(sequence)[used] = Take();
  return copy;
}

int64_t PagePool::FreedByShrink(int64_t sequence, int64_t rows) const {
  const auto table = TableOf(sequence);
  return std::count_if(table.begin() + PagesFor(rows), table.end(),
                       [&](int32_t page) { return references(page) == 1; });
}

void PagePool::Shrink(int64_t sequence, int64_t rows) {
  int64_t& used = used_[static_cast<size_t>(sequence)];
  TN_CHECK(PagesFor(rows) <= used, "shrinking keeps no more than there is");
  for (const int64_t kept = PagesFor(rows); used > kept; --used) Release(Table(sequence)[used - 1]);
}

void PagePool::Share(int64_t from, int64_t to) {
  TN_CHECK(used_[static_cast<size_t>(to)] == 0, "only an empty sequence takes another's pages");
  const auto table = TableOf(from);
  std::copy(table.begin(), table.end(), Table(to));
  for (const int32_t page : table) ++references_[static_cast<size_t>(page)];
  used_[static_cast<size_t>(to)] = static_cast<int64_t>(table.size());
}

Status PagePool::Check() const {
  std::vector<int32_t> seen(references_.size());
  for (size_t s = 0; s < used_.size(); ++s) {
    for (const int32_t page : TableOf(static_cast<int64_t>(s))) {
      if (page < 0 || page >= pages()) {
        return InternalError(
            fmt::format("page table of sequence {}: page {}, allowed 0..{}", s, page, pages() - 1));
      }
      ++seen[static_cast<size_t>(page)];
    }
  }
  for (size_t page = 0; page < seen.size(); ++page) {
    if (seen[page] != references_[page]) {
      return InternalError(fmt::format("page {}: in {} page tables, counted {} times", page,
                                       seen[page], references_[page]));
    }
  }
  std::vector<bool> is_free(references_.size());
  for (const int32_t page : free_) {
    const auto p = static_cast<size_t>(page);
    if (is_free[p] || references_[p] != 0)
      return InternalError(fmt::format("page {}: free and in use, or free twice", page));
    is_free[p] = true;
  }
  const auto used = std::count_if(references_.begin(), references_.end(),
                                  [](int32_t count) { return count > 0; });
  if (used + free_pages() != pages()) {
    return InternalError(
        fmt::format("{} pages in use and {} free of {}", used, free_pages(), pages()));
  }
  return {};
}

}  // namespace tenon
