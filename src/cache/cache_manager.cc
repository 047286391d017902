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
  if (manager->plan_.prefix_nodes > 0) manager->MakePrefixTree();
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
    TN_ASSIGN_OR_RETURN(group.pool, PagePool::Create({.pages = plan.pages,
                                                      .max_pages = plan.max_pages,
                                                      .sequences = max_sequences,
                                                      .page_tokens = plan.page_tokens}));
  }
  groups_.push_back(std::move(group));
  return {};
}

void CacheManager::MakePrefixTree() {
  std::vector<PrefixTree::Group> of_tree;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (!HasRows(g)) continue;
    groups_[g].in_tree = of_tree.size();
    of_tree.push_back({&*groups_[g].pool, plan_.groups[g].spec.DropsRows()});
  }
  tree_.emplace(plan_.prefix_nodes, of_tree);
  tables_.resize(of_tree.size());
}

int64_t CacheManager::bytes() const {
  int64_t sum = tree_ ? tree_->bytes() : 0;
  for (const Group& group : groups_) {
    for (const Buffer& layer : group.layers) sum += layer.size();
    if (group.pool) sum += group.pool->bytes();
  }
  return sum;
}

const CacheManager::Sequence& CacheManager::At(int32_t sequence) const {
  TN_CHECK(sequence >= 0 && static_cast<size_t>(sequence) < sequences_.size() &&
               sequences_[static_cast<size_t>(sequence)].live,
           "only live sequences have rows");
  return sequences_[static_cast<size_t>(sequence)];
}

Result<int32_t> CacheManager::Admit(const PrefixKey& key) {
  for (size_t i = 0; i < sequences_.size(); ++i) {
    if (sequences_[i].live) continue;
    sequences_[i] = {.live = true, .key = key};
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

Status CacheManager::AskToGrow(size_t group, int32_t sequence, int64_t tokens) const {
  const PagePool& pool = *groups_[group].pool;
  const int64_t length = At(sequence).length;
  const int64_t available =
      pool.free_pages() + pool.FreedByDrop(sequence, plan_.groups[group].spec.FirstSeen(length));
  const int64_t needed = pool.NeededToGrow(sequence, length, tokens);
  // A page that the prefix tree alone holds besides the sequence need not be copied: Grow.
  const bool forgets = needed > 0 && pool.MustCopy(sequence, length) &&
                       pool.references(pool.TableOf(sequence).back()) == 1;
  if (needed - (forgets ? 1 : 0) > available) return DoesNotFitIn(group, tokens, needed, available);
  if (pool.PagesFor(length + tokens) <= pool.max_pages()) return {};
  return DoesNotFit(
      fmt::format("cache group {} ({}): {} more rows after {} of a sequence, which may have {}; "
                  "fix: shorter sequences, or room for longer ones",
                  group, NameOf(plan_.groups[group].spec.kind), tokens, length,
                  pool.max_pages() * pool.page_tokens()));
}

void CacheManager::MakeRoom(size_t group, int64_t pages) {
  PagePool& pool = *groups_[group].pool;
  while (pool.unused_pages() < pages) {
    TN_CHECK(pool.OldestCached() >= 0, "pages were counted before they are taken");
    tree_->Forget(groups_[group].in_tree, pool.OldestCached());
  }
}

void CacheManager::Grow(size_t group, int32_t sequence, int64_t tokens) {
  PagePool& pool = *groups_[group].pool;
  const int64_t length = At(sequence).length;
  const CacheSpec& spec = plan_.groups[group].spec;
  if (spec.DropsRows()) pool.Drop(sequence, spec.FirstSeen(length));
  if (pool.NeededToGrow(sequence, length, tokens) > pool.free_pages()) {
    // Nothing is left for a copy, and the rows that others may want again will be written over.
    tree_->Forget(groups_[group].in_tree, pool.TableOf(sequence).back());
  }
  MakeRoom(group, pool.NeededToGrow(sequence, length, tokens));
  if (const auto copy = pool.Grow(sequence, length, tokens)) CopyPage(group, *copy);
}

Status CacheManager::Append(int32_t sequence, int64_t tokens) {
  Sequence& s = At(sequence);
  TN_CHECK(tokens >= 0, "rows are added; Keep takes them away");
  if (tokens == 0) return {};
  // First ask, then take: a failure changes nothing.
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (HasRows(g)) TN_RETURN_IF_ERROR(AskToGrow(g, sequence, tokens));
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (HasRows(g)) Grow(g, sequence, tokens);
  }
  s.length += tokens;
  return {};
}

bool CacheManager::HasRoomFor(int64_t rows) const {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const CacheSpec& spec = plan_.groups[g].spec;
    if (!HasRows(g) || spec.window || spec.chunk) continue;
    if (groups_[g].pool->PagesFor(rows) > groups_[g].pool->free_pages()) return false;
  }
  return true;
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
  TN_RETURN_IF_ERROR(CheckSeen(sequence, rows));
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

Status CacheManager::CheckSeen(int32_t sequence, int64_t rows) const {
  for (size_t g = 0; rows > 0 && g < groups_.size(); ++g) {
    const CacheSpec& spec = plan_.groups[g].spec;
    if (!spec.DropsRows()) continue;
    const int64_t dropped = groups_[g].pool->dropped(sequence) * groups_[g].pool->page_tokens();
    if (dropped <= spec.FirstSeen(rows)) continue;
    return Refused(fmt::format(
        "a sequence of {} rows cannot go back to {}: layer {} ({} {}) would see rows from {} on, "
        "those before {} were given back; fix: go back less far, or start it again",
        At(sequence).length, rows, spec.layer, spec.window ? "window" : "chunk",
        spec.window ? *spec.window : *spec.chunk, spec.FirstSeen(rows), dropped));
  }
  return {};
}

void CacheManager::ShrinkRows(int32_t sequence, int64_t rows) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (HasRows(g)) groups_[g].pool->Shrink(sequence, rows);
  }
  At(sequence).length = rows;
  At(sequence).published = {};
  DropSnapshots(sequence, rows);  // their rows will be written anew
}

void CacheManager::Free(int32_t sequence) {
  static_cast<void>(At(sequence));
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (!groups_[g].pool) continue;
    PagePool& pool = *groups_[g].pool;
    // What is given back first is taken first. Where old rows go out of sight, the last are worth
    // most; elsewhere the first are, without which the others are nothing.
    if (plan_.groups[g].spec.DropsRows()) pool.Drop(sequence, At(sequence).length);
    pool.Shrink(sequence, 0);
  }
  DropSnapshots(sequence, -1);
  sequences_[static_cast<size_t>(sequence)] = {};
}

int32_t CacheManager::FindSnapshotSlot() {
  int32_t oldest = -1;
  for (size_t i = 0; i < snapshots_.size(); ++i) {
    SnapshotEntry& e = snapshots_[i];
    if (e.sequence >= 0) continue;
    if (e.node.node < 0 || !tree_->Lives(e.node)) {
      e = {};
      return static_cast<int32_t>(i);
    }
    if (oldest < 0 || e.last_use < snapshots_[static_cast<size_t>(oldest)].last_use)
      oldest = static_cast<int32_t>(i);
  }
  if (oldest < 0) return -1;
  SnapshotEntry& e = snapshots_[static_cast<size_t>(oldest)];
  tree_->SetState(e.node.node, -1);
  e = {};
  return oldest;
}

Result<int32_t> CacheManager::Snapshot(int32_t sequence) {
  const Sequence& s = At(sequence);
  const int32_t snapshot = FindSnapshotSlot();
  if (snapshot < 0)
    return DoesNotFit(fmt::format("all {} snapshots of states are in use", snapshots_.size()));
  snapshots_[static_cast<size_t>(snapshot)] = {.sequence = sequence, .length = s.length};
  CopyStates(SlotOf(sequence), SnapshotSlot(snapshot));
  return snapshot;
}

Status CacheManager::Restore(int32_t snapshot) {
  const SnapshotEntry entry = snapshots_[static_cast<size_t>(snapshot)];
  TN_CHECK(entry.sequence >= 0 && entry.length <= At(entry.sequence).length,
           "a snapshot of a live sequence that still has its rows");
  TN_RETURN_IF_ERROR(CheckSeen(entry.sequence, entry.length));
  CopyStates(SnapshotSlot(snapshot), SlotOf(entry.sequence));
  ShrinkRows(entry.sequence, entry.length);
  return {};
}

void CacheManager::Drop(int32_t snapshot) {
  TN_CHECK(snapshots_[static_cast<size_t>(snapshot)].sequence >= 0, "a snapshot of a sequence");
  snapshots_[static_cast<size_t>(snapshot)] = {};
}

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
  if (!tree_) return {};
  TN_RETURN_IF_ERROR(tree_->Check());
  return CheckStates();
}

Status CacheManager::CheckWritable(int32_t sequence, int64_t rows) const {
  const Sequence& s = At(sequence);
  if (rows == 0) return {};
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (!HasRows(g)) continue;
    const PagePool& pool = *groups_[g].pool;
    const auto pages = pool.TableOf(sequence);
    int64_t row = (s.length - rows) % pool.page_tokens();  // of the page: the first to be written
    for (auto j = static_cast<size_t>((s.length - rows) / pool.page_tokens()); j < pages.size();
         ++j, row = 0) {
      if (pages[j] == PagePool::kDropped || pool.references(pages[j]) != 1 ||
          pool.held_rows(pages[j]) > row) {
        return InternalError(fmt::format(
            "cache group {}: sequence {} would write page {} from its row {} on, which {} "
            "sequences have and of which {} rows are published",
            g, sequence, pages[j], row, pages[j] < 0 ? 0 : pool.references(pages[j]),
            pages[j] < 0 ? 0 : pool.held_rows(pages[j])));
      }
    }
  }
  return {};
}

}  // namespace tenon
