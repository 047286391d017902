#include "tenon/cache/page_pool.h"

#include <fmt/format.h>

#include <algorithm>

namespace tenon {

Result<PagePool> PagePool::Create(const Sizes& sizes) {
  PagePool pool;
  pool.page_tokens_ = sizes.page_tokens;
  pool.max_pages_ = sizes.max_pages;
  TN_ASSIGN_OR_RETURN(pool.tables_,
                      Buffer::Allocate(sizes.max_pages * sizes.sequences * kBytesPerEntry,
                                       "the cache's page tables"));
  const auto pages = static_cast<size_t>(sizes.pages);
  pool.references_.resize(pages);
  pool.holds_.resize(pages);
  pool.held_rows_.resize(pages);
  pool.before_.resize(pages, -1);
  pool.after_.resize(pages, -1);
  pool.used_.resize(static_cast<size_t>(sizes.sequences));
  pool.dropped_.resize(pool.used_.size());
  pool.unused_.reserve(pages);
  for (int64_t page = sizes.pages - 1; page >= 0; --page)
    pool.unused_.push_back(static_cast<int32_t>(page));
  return pool;
}

int64_t PagePool::bytes() const {
  const size_t per_page = unused_.capacity() + references_.size() + holds_.size() +
                          held_rows_.size() + before_.size() + after_.size();
  return static_cast<int64_t>(per_page * sizeof(int32_t) +
                              (used_.size() + dropped_.size()) * sizeof(int64_t)) +
         tables_.size();
}

int32_t PagePool::Take() {
  TN_CHECK(!unused_.empty(), "pages were counted before they are taken");
  const int32_t page = unused_.back();
  unused_.pop_back();
  references_[static_cast<size_t>(page)] = 1;
  return page;
}

void PagePool::Release(int32_t page) {
  int32_t& count = references_[static_cast<size_t>(page)];
  TN_CHECK(count > 0, "a page is given back as often as it was taken");
  if (--count > 0) return;
  if (holds(page) > 0) {
    Cache(page);
  } else {
    unused_.push_back(page);
  }
}

void PagePool::Refer(int32_t page) {
  int32_t& count = references_[static_cast<size_t>(page)];
  if (count == 0) Uncache(page);
  ++count;
}

void PagePool::Cache(int32_t page) {
  const auto p = static_cast<size_t>(page);
  before_[p] = last_cached_;
  after_[p] = -1;
  (last_cached_ < 0 ? first_cached_ : after_[static_cast<size_t>(last_cached_)]) = page;
  last_cached_ = page;
  ++cached_;
}

void PagePool::Uncache(int32_t page) {
  TN_CHECK(holds(page) > 0, "only cached pages are taken up again");
  const int32_t before = before_[static_cast<size_t>(page)];
  const int32_t after = after_[static_cast<size_t>(page)];
  (before < 0 ? first_cached_ : after_[static_cast<size_t>(before)]) = after;
  (after < 0 ? last_cached_ : before_[static_cast<size_t>(after)]) = before;
  --cached_;
}

void PagePool::Hold(int32_t page, int32_t rows) {
  TN_CHECK(references(page) > 0 || holds(page) > 0, "rows of a page that somebody has");
  ++holds_[static_cast<size_t>(page)];
  int32_t& held = held_rows_[static_cast<size_t>(page)];
  held = std::max(held, rows);
}

void PagePool::Unhold(int32_t page) {
  TN_CHECK(holds(page) > 0, "what is held is let go once");
  if (holds(page) == 1 && references(page) == 0) {
    Uncache(page);
    unused_.push_back(page);
  }
  if (--holds_[static_cast<size_t>(page)] == 0) held_rows_[static_cast<size_t>(page)] = 0;
}

bool PagePool::MustCopy(int64_t sequence, int64_t rows) const {
  const int64_t row = rows % page_tokens_;
  if (row == 0) return false;
  const int32_t page = Table(sequence)[rows / page_tokens_];
  return references(page) > 1 || held_rows(page) > row;
}

int64_t PagePool::NeededToGrow(int64_t sequence, int64_t rows, int64_t more) const {
  if (more == 0) return 0;
  return PagesFor(rows + more) - PagesFor(rows) + (MustCopy(sequence, rows) ? 1 : 0);
}

std::optional<PagePool::Copy> PagePool::Grow(int64_t sequence, int64_t rows, int64_t more) {
  int64_t& used = used_[static_cast<size_t>(sequence)];
  TN_CHECK(used == PagesFor(rows), "a sequence has the pages of its rows");
  TN_CHECK(PagesFor(rows + more) <= max_pages_, "a table holds all pages of a sequence");
  std::optional<Copy> copy;
  if (more > 0 && MustCopy(sequence, rows)) {
    int32_t& last = Table(sequence)[used - 1];
    copy = Copy{last, Take()};
    last = copy->to;
  }
  for (const int64_t wanted = PagesFor(rows + more); used < wanted; ++used)
    Table(sequence)[used] = Take();
  if (copy) Release(copy->from);  // last, so that it was not taken: it is still to be read
  return copy;
}

int64_t PagePool::CountSole(std::span<const int32_t> pages) const {
  return std::count_if(pages.begin(), pages.end(),
                       [&](int32_t page) { return page != kDropped && references(page) == 1; });
}

int64_t PagePool::FreedByShrink(int64_t sequence, int64_t rows) const {
  return CountSole(TableOf(sequence).subspan(static_cast<size_t>(PagesFor(rows))));
}

void PagePool::Shrink(int64_t sequence, int64_t rows) {
  int64_t& used = used_[static_cast<size_t>(sequence)];
  TN_CHECK(PagesFor(rows) <= used, "shrinking keeps no more than there is");
  // The last rows go first: of a cached prefix the beginning is worth most.
  for (const int64_t kept = PagesFor(rows); used > kept; --used) {
    const int32_t page = Table(sequence)[used - 1];
    if (page != kDropped) Release(page);
  }
  int64_t& dropped = dropped_[static_cast<size_t>(sequence)];
  dropped = std::min(dropped, used);
}

int64_t PagePool::FreedByDrop(int64_t sequence, int64_t row) const {
  const int64_t end = std::min(row / page_tokens_, used_[static_cast<size_t>(sequence)]);
  const int64_t begin = dropped(sequence);
  if (end <= begin) return 0;
  return CountSole(
      TableOf(sequence).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
}

void PagePool::Drop(int64_t sequence, int64_t row) {
  const int64_t end = std::min(row / page_tokens_, used_[static_cast<size_t>(sequence)]);
  for (int64_t& dropped = dropped_[static_cast<size_t>(sequence)]; dropped < end; ++dropped) {
    int32_t& entry = Table(sequence)[dropped];
    Release(entry);
    entry = kDropped;
  }
}

void PagePool::Share(int64_t from, int64_t to) {
  TN_CHECK(used_[static_cast<size_t>(to)] == 0, "only an empty sequence takes another's pages");
  const auto table = TableOf(from);
  std::copy(table.begin(), table.end(), Table(to));
  for (const int32_t page : table) {
    if (page != kDropped) Refer(page);
  }
  used_[static_cast<size_t>(to)] = static_cast<int64_t>(table.size());
  dropped_[static_cast<size_t>(to)] = dropped(from);
}

void PagePool::BeginDropped(int64_t sequence, int64_t pages) {
  TN_CHECK(used_[static_cast<size_t>(sequence)] == 0, "only an empty sequence begins");
  TN_CHECK(pages <= max_pages_, "a table holds all pages of a sequence");
  std::fill_n(Table(sequence), pages, kDropped);
  used_[static_cast<size_t>(sequence)] = dropped_[static_cast<size_t>(sequence)] = pages;
}

void PagePool::Adopt(int64_t sequence, int32_t page) {
  int64_t& used = used_[static_cast<size_t>(sequence)];
  TN_CHECK(used < max_pages_, "a table holds all pages of a sequence");
  Refer(page);
  Table(sequence)[used++] = page;
}

Status PagePool::CheckTables() const {
  std::vector<int32_t> seen(references_.size());
  for (size_t s = 0; s < used_.size(); ++s) {
    const auto table = TableOf(static_cast<int64_t>(s));
    for (size_t j = 0; j < table.size(); ++j) {
      const int32_t page = table[j];
      if (page == kDropped && static_cast<int64_t>(j) < dropped_[s]) continue;
      if (page < 0 || page >= pages() || static_cast<int64_t>(j) < dropped_[s]) {
        return InternalError(fmt::format(
            "page table of sequence {}, entry {} of {} ({} dropped): page {}, allowed 0..{}", s, j,
            table.size(), dropped_[s], page, pages() - 1));
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
  return {};
}

Status PagePool::CheckFree() const {
  std::vector<bool> is_free(references_.size());
  const auto add = [&](int32_t page, bool held) {
    const auto p = static_cast<size_t>(page);
    if (is_free[p] || references_[p] != 0 || (holds_[p] > 0) != held)
      return InternalError(fmt::format("page {}: free and in use, or free twice", page));
    is_free[p] = true;
    return Status();
  };
  for (const int32_t page : unused_) TN_RETURN_IF_ERROR(add(page, false));
  for (int32_t page = first_cached_; page >= 0; page = after_[static_cast<size_t>(page)])
    TN_RETURN_IF_ERROR(add(page, true));
  const auto used = std::count_if(references_.begin(), references_.end(),
                                  [](int32_t count) { return count > 0; });
  if (used + free_pages() == pages() &&
      std::count(is_free.begin(), is_free.end(), true) == free_pages()) {
    return {};
  }
  return InternalError(
      fmt::format("{} pages in use and {} free of {}", used, free_pages(), pages()));
}

Status PagePool::Check() const {
  TN_RETURN_IF_ERROR(CheckTables());
  return CheckFree();
}

}  // namespace tenon
