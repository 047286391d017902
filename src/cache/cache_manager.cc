#include "tenon/cache/cache_manager.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace tenon {

Result<std::unique_ptr<CacheManager>> CacheManager::Create(std::span<const CacheSpec> specs,
                                                           std::span<LayerCache* const> caches,
                                                           const CacheSizing& sizing) {
  TN_CHECK(specs.size() == caches.size(), "one cache per spec");
  std::unique_ptr<CacheManager> manager(new CacheManager());
  TN_ASSIGN_OR_RETURN(manager->plan_, PlanCache(specs, sizing));
  manager->sequences_.resize(static_cast<size_t>(sizing.max_sequences));
  manager->snapshots_.resize(static_cast<size_t>(sizing.max_snapshots));
  for (size_t g = 0; g < manager->plan_.groups.size(); ++g) {
    TN_RETURN_IF_ERROR(manager->AddGroup(manager->plan_.groups[g], static_cast<int>(g), caches,
                                         sizing.max_sequences));
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    const size_t owner = OwnerOf(specs, i);
    if (owner != i) *caches[i] = *caches[owner];
  }
  return manager;
}

Status CacheManager::AddGroup(const CacheGroupPlan& plan, int index,
                              std::span<LayerCache* const> caches, int64_t max_sequences) {
  const bool paged = IsPaged(plan.spec.kind);
  Group group;
  for (const int member : plan.members) {
    // Not zeroed: rows are written before they are read, fresh states start from zero.
    TN_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(plan.pool_bytes, "the cache"));
    LayerCache& cache = *caches[static_cast<size_t>(member)];
    cache.group = index;
    cache.base = paged ? buffer.data() : nullptr;
    cache.page_bytes = plan.page_bytes;
    cache.page_tokens = plan.page_tokens;
    cache.states = {paged ? nullptr : buffer.data(), plan.slot_bytes};
    group.layers.push_back(std::move(buffer));
  }
  if (paged) {
    TN_ASSIGN_OR_RETURN(group.pool, PagePool::Create(plan.pages, plan.page_tokens, max_sequences));
  }
  groups_.push_back(std::move(group));
  return {};
}

int64_t CacheManager::bytes() const {
  int64_t sum = 0;
  for (const Group& group : groups_) {
    for (const Buffer& layer : group.layers) sum += layer.size();
    if (group.pool) sum += group.pool->table_bytes();
  }
  return sum;
}

const CacheManager::Sequence& CacheManager::At(int32_t sequence) const {
  TN_CHECK(sequence >= 0 && static_cast<size_t>(sequence) < sequences_.size() &&
               sequences_[static_cast<size_t>(sequence)].live,
           "only live sequences have rows");
  return sequences_[static_cast<size_t>(sequence)];
}

Result<int32_t> CacheManager::Admit() {
  for (size_t i = 0; i < sequences_.size(); ++i) {
    if (sequences_[i].live) continue;
    sequences_[i] = {.live = true};
    return static_cast<int32_t>(i);
  }
  return DoesNotFit(fmt::format("all {} sequences are in use", sequences_.size()));
}

Status CacheManager::DoesNotFitIn(size_t group, int64_t more, int64_t needed,
                                  int64_t available) const {
  const CacheGroupPlan& plan = plan_.groups[group];
  return DoesNotFit(fmt::format(
      "cache group {} ({}): {} more rows need {} pages of {} tokens, {} of {} are free; "
      "fix: a larger cache or fewer sequences at a time",
      group, NameOf(plan.spec.kind), more, needed, plan.page_tokens, available, plan.pages));
}

Status CacheManager::Append(int32_t sequence, int64_t tokens) {
  Sequence& s = At(sequence);
  TN_CHECK(tokens >= 0, "rows are added; Keep takes them away");
  // First ask, then take: a failure changes nothing.
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (plan_.groups[g].spec.kind != CacheKind::kPagedRows) continue;
    const PagePool& pool = *groups_[g].pool;
    const int64_t needed = pool.NeededToGrow(sequence, s.length, tokens);
    if (needed > pool.free_pages()) return DoesNotFitIn(g, tokens, needed, pool.free_pages());
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (plan_.groups[g].spec.kind != CacheKind::kPagedRows) continue;
    if (const auto copy = groups_[g].pool->Grow(sequence, s.length, tokens)) CopyPage(g, *copy);
  }
  s.length += tokens;
  return {};
}

Status CacheManager::SetCross(int32_t sequence, int64_t rows) {
  Sequence& s = At(sequence);
  TN_CHECK(rows >= 0, "a number of rows");
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (plan_.groups[g].spec.kind != CacheKind::kCross) continue;
    const PagePool& pool = *groups_[g].pool;
    const int64_t needed = pool.PagesFor(rows);
    const int64_t available = pool.free_pages() + pool.FreedByShrink(sequence, 0);
    if (needed > available) return DoesNotFitIn(g, rows, needed, available);
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (plan_.groups[g].spec.kind != CacheKind::kCross) continue;
    groups_[g].pool->Shrink(sequence, 0);
    groups_[g].pool->Grow(sequence, 0, rows);
  }
  s.cross_length = rows;
  return {};
}

Result<int32_t> CacheManager::Fork(int32_t sequence) {
  const Sequence& from = At(sequence);
  TN_ASSIGN_OR_RETURN(const int32_t to, Admit(), "forking a sequence");
  sequences_[static_cast<size_t>(to)] = from;
  for (Group& group : groups_) {
    if (group.pool) group.pool->Share(sequence, to);
  }
  CopyStates(SlotOf(sequence), SlotOf(to));
  return to;
}

Status CacheManager::Keep(int32_t sequence, int64_t rows) {
  const Sequence& s = At(sequence);
  TN_CHECK(rows >= 0 && rows <= s.length, "keep no more than there is");
  if (rows == s.length) return {};
  if (plan_.HasStates() && rows > 0) {
    const auto found = std::find_if(
        snapshots_.begin(), snapshots_.end(),
        [&](const SnapshotEntry& e) { return e.sequence == sequence && e.length == rows; });
    if (found == snapshots_.end()) {
      std::string taken;
      for (const SnapshotEntry& e : snapshots_) {
        if (e.sequence == sequence)
          taken += fmt::format("{}{}", taken.empty() ? "" : ", ", e.length);
      }
      return Refused(
          fmt::format("states of a sequence of {} rows cannot go back to {}; snapshots "
                      "were taken at {{{}}}; fix: take one before rows that may go",
                      s.length, rows, taken));
    }
    CopyStates(SnapshotSlot(static_cast<int32_t>(found - snapshots_.begin())), SlotOf(sequence));
  }
  ShrinkRows(sequence, rows);
  return {};
}

void CacheManager::ShrinkRows(int32_t sequence, int64_t rows) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (plan_.groups[g].spec.kind == CacheKind::kPagedRows) groups_[g].pool->Shrink(sequence, rows);
  }
  At(sequence).length = rows;
  DropSnapshots(sequence, rows);  // their rows will be written anew
}

void CacheManager::Free(int32_t sequence) {
  static_cast<void>(At(sequence));
  for (Group& group : groups_) {
    if (group.pool) group.pool->Shrink(sequence, 0);
  }
  DropSnapshots(sequence, -1);
  sequences_[static_cast<size_t>(sequence)] = {};
}

Result<int32_t> CacheManager::Snapshot(int32_t sequence) {
  const Sequence& s = At(sequence);
  for (size_t i = 0; i < snapshots_.size(); ++i) {
    if (snapshots_[i].sequence >= 0) continue;
    const auto snapshot = static_cast<int32_t>(i);
    snapshots_[i] = {sequence, s.length};
    CopyStates(SlotOf(sequence), SnapshotSlot(snapshot));
    return snapshot;
  }
  return DoesNotFit(fmt::format("all {} snapshots of states are in use", snapshots_.size()));
}

void CacheManager::Restore(int32_t snapshot) {
  const SnapshotEntry entry = snapshots_[static_cast<size_t>(snapshot)];
  TN_CHECK(entry.sequence >= 0 && entry.length <= At(entry.sequence).length,
           "a snapshot of a live sequence that still has its rows");
  CopyStates(SnapshotSlot(snapshot), SlotOf(entry.sequence));
  ShrinkRows(entry.sequence, entry.length);
}

void CacheManager::Drop(int32_t snapshot) { snapshots_[static_cast<size_t>(snapshot)] = {}; }

void CacheManager::DropSnapshots(int32_t sequence, int64_t longer_than) {
  for (SnapshotEntry& e : snapshots_) {
    if (e.sequence == sequence && e.length > longer_than) e = {};
  }
}

void CacheManager::CopyPage(size_t group, const PagePool::Copy& copy) {
  const int64_t bytes = plan_.groups[group].page_bytes;
  for (const Buffer& layer : groups_[group].layers) {
    std::memcpy(layer.data() + copy.to * bytes, layer.data() + copy.from * bytes,
                static_cast<size_t>(bytes));
  }
}

void CacheManager::CopyStates(int64_t from_slot, int64_t to_slot) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const CacheGroupPlan& plan = plan_.groups[g];
    if (plan.spec.kind != CacheKind::kState) continue;
    for (const Buffer& layer : groups_[g].layers) {
      std::memcpy(layer.data() + to_slot * plan.slot_bytes,
                  layer.data() + from_slot * plan.slot_bytes, static_cast<size_t>(plan.slot_bytes));
    }
  }
}

void CacheManager::CopyPages(int group, std::span<const int32_t> sequences, int64_t stride,
                             int32_t* table) const {
  for (const int32_t sequence : sequences) {
    const auto pages = PagesOf(sequence, group);
    TN_CHECK(static_cast<int64_t>(pages.size()) <= stride, "a row of the table holds all pages");
    std::copy(pages.begin(), pages.end(), table);
    table += stride;
  }
}

Status CacheManager::Check() const {
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (!groups_[g].pool) continue;
    const std::string where = fmt::format("cache group {}", g);
    TN_RETURN_IF_ERROR(groups_[g].pool->Check(), where);
    for (size_t s = 0; s < sequences_.size(); ++s) {
      const int64_t rows = RowsIn(g, sequences_[s]);
      const size_t has = groups_[g].pool->TableOf(static_cast<int64_t>(s)).size();
      if (static_cast<int64_t>(has) != groups_[g].pool->PagesFor(rows)) {
        return InternalError(fmt::format("{}: sequence {} has {} pages for {} rows of {} per page",
                                         where, s, has, rows, groups_[g].pool->page_tokens()));
      }
    }
  }
  return {};
}

Status CacheManager::CheckWritable(int32_t sequence, int64_t rows) const {
  const Sequence& s = At(sequence);
  if (rows == 0) return {};
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (plan_.groups[g].spec.kind != CacheKind::kPagedRows) continue;
    const PagePool& pool = *groups_[g].pool;
    const auto pages = pool.TableOf(sequence);
    for (auto j = static_cast<size_t>((s.length - rows) / pool.page_tokens()); j < pages.size();
         ++j) {
      if (pool.references(pages[j]) != 1) {
        return InternalError(
            fmt::format("cache group {}: sequence {} would write page {}, which "
                        "{} sequences share",
                        g, sequence, pages[j], pool.references(pages[j])));
      }
    }
  }
  return {};
}

}  // namespace tenon
