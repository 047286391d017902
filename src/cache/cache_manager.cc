#include "tenon/cache/cache_manager.h"

#include <fmt/format.h>

#include <algorithm>

namespace tenon {
namespace {

bool IsPaged(CacheKind kind) { return kind == CacheKind::kPagedRows || kind == CacheKind::kCross; }

// Random reads of less than 64 KiB run below streaming speed (reference/perf.md), so pages aim for
// that.
int32_t PageTokensFor(int64_t row_bytes) {
  constexpr int64_t kTarget = 64 * 1024;
  int32_t tokens = 16;
  while (tokens < 256 && tokens * row_bytes < kTarget) tokens *= 2;
  return tokens;
}

void SizeGroup(const CacheSizing& sizing, CacheGroupPlan& group) {
  const CacheSpec& spec = group.spec;
  const auto layers = static_cast<int64_t>(group.members.size());
  if (spec.kind == CacheKind::kState) {
    group.slot_bytes = RoundUp(spec.state_bytes, Buffer::kAlignment);
    group.slots = sizing.max_sequences;
    group.bytes = layers * group.slots * group.slot_bytes;
    return;
  }
  const int64_t tokens = spec.kind == CacheKind::kCross ? sizing.cross_tokens : sizing.tokens;
  group.page_tokens = sizing.page_tokens > 0 ? sizing.page_tokens : PageTokensFor(spec.row_bytes);
  group.page_bytes = group.page_tokens * spec.row_bytes;
  // Each sequence may leave its last page half empty.
  group.pages = (tokens + group.page_tokens - 1) / group.page_tokens + sizing.max_sequences - 1;
  group.bytes = layers * group.pages * group.page_bytes;
}

}  // namespace

std::string_view NameOf(CacheKind kind) {
  switch (kind) {
    case CacheKind::kPagedRows:
      return "paged rows";
    case CacheKind::kState:
      return "state";
    case CacheKind::kCross:
      return "cross";
    case CacheKind::kSharedWith:
      return "shared";
    case CacheKind::kNone:
      return "none";
  }
  return "unknown";
}

std::string_view NameOf(KvLayout layout) {
  switch (layout) {
    case KvLayout::kNhd:
      return "NHD";
    case KvLayout::kHnd:
      return "HND";
    case KvLayout::kRow:
      return "row";
  }
  return "unknown";
}

CachePlan PlanCache(std::span<const CacheSpec> specs, const CacheSizing& sizing) {
  CachePlan plan;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].kind == CacheKind::kNone || specs[i].kind == CacheKind::kSharedWith) continue;
    auto group = std::find_if(plan.groups.begin(), plan.groups.end(),
                              [&](const CacheGroupPlan& g) { return g.spec.SameGroup(specs[i]); });
    if (group == plan.groups.end())
      group = plan.groups.insert(group, CacheGroupPlan{.spec = specs[i], .members = {}});
    group->members.push_back(static_cast<int>(i));
  }
  for (CacheGroupPlan& group : plan.groups) {
    SizeGroup(sizing, group);
    plan.bytes += group.bytes;
  }
  return plan;
}

Result<std::unique_ptr<CacheManager>> CacheManager::Create(std::span<const CacheSpec> specs,
                                                           std::span<LayerCache* const> caches,
                                                           const CacheSizing& sizing) {
  TN_CHECK(specs.size() == caches.size(), "one cache per spec");
  std::unique_ptr<CacheManager> manager(new CacheManager());
  manager->plan_ = PlanCache(specs, sizing);
  manager->sequences_.resize(static_cast<size_t>(sizing.max_sequences));
  for (size_t g = 0; g < manager->plan_.groups.size(); ++g) {
    const CacheGroupPlan& group = manager->plan_.groups[g];
    Pool pool;
    const bool paged = IsPaged(group.spec.kind);
    for (const int member : group.members) {
      const int64_t bytes = paged ? group.pages * group.page_bytes : group.slots * group.slot_bytes;
      TN_ASSIGN_OR_RETURN(Buffer buffer, Buffer::AllocateZeroed(bytes, "the cache"));
      LayerCache& cache = *caches[static_cast<size_t>(member)];
      cache.group = static_cast<int>(g);
      cache.base = paged ? buffer.data() : nullptr;
      cache.page_bytes = group.page_bytes;
      cache.page_tokens = group.page_tokens;
      cache.states = {paged ? nullptr : buffer.data(), group.slot_bytes};
      pool.layers.push_back(std::move(buffer));
    }
    if (paged) {
      for (int64_t page = group.pages - 1; page >= 0; --page)
        pool.free.push_back(static_cast<int32_t>(page));
      pool.tables.resize(static_cast<size_t>(sizing.max_sequences * group.pages));
    }
    pool.used.resize(static_cast<size_t>(sizing.max_sequences));
    manager->pools_.push_back(std::move(pool));
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].kind == CacheKind::kSharedWith)
      *caches[i] = *caches[static_cast<size_t>(specs[i].shared_with)];
  }
  return manager;
}

Result<int32_t> CacheManager::Admit() {
  for (size_t i = 0; i < sequences_.size(); ++i) {
    if (sequences_[i].live) continue;
    sequences_[i] = {.live = true};
    return static_cast<int32_t>(i);
  }
  return DoesNotFit(fmt::format("all {} sequences are in use", sequences_.size()));
}

Status CacheManager::Resize(int32_t sequence, CacheKind kind, int64_t rows) {
  for (size_t g = 0; g < pools_.size(); ++g) {  // first ask, then take: a failure changes nothing
    const CacheGroupPlan& group = plan_.groups[g];
    if (group.spec.kind != kind) continue;
    const int64_t more = (rows + group.page_tokens - 1) / group.page_tokens -
                         pools_[g].used[static_cast<size_t>(sequence)];
    if (more > static_cast<int64_t>(pools_[g].free.size())) {
      return DoesNotFit(
          fmt::format("the cache has {} free pages of {} tokens, {} rows need {} more",
                      pools_[g].free.size(), group.page_tokens, rows, more));
    }
  }
  for (size_t g = 0; g < pools_.size(); ++g) {
    const CacheGroupPlan& group = plan_.groups[g];
    if (group.spec.kind != kind) continue;
    Pool& pool = pools_[g];
    int64_t& used = pool.used[static_cast<size_t>(sequence)];
    int32_t* table = pool.tables.data() + sequence * group.pages;
    const int64_t wanted = (rows + group.page_tokens - 1) / group.page_tokens;
    for (; used < wanted; ++used) {
      table[used] = pool.free.back();
      pool.free.pop_back();
    }
    for (; used > wanted; --used) pool.free.push_back(table[used - 1]);
  }
  return {};
}

Status CacheManager::Append(int32_t sequence, int64_t tokens) {
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  TN_CHECK(s.live, "append to a live sequence");
  TN_RETURN_IF_ERROR(Resize(sequence, CacheKind::kPagedRows, s.length + tokens));
  s.length += tokens;
  return {};
}

Status CacheManager::SetCross(int32_t sequence, int64_t rows) {
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  TN_RETURN_IF_ERROR(Resize(sequence, CacheKind::kCross, rows));
  s.cross_length = rows;
  return {};
}

void CacheManager::Keep(int32_t sequence, int64_t rows) {
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  TN_CHECK(rows <= s.length, "keep no more than there is");
  TN_CHECK(Resize(sequence, CacheKind::kPagedRows, rows).ok(), "shrinking always fits");
  s.length = rows;
}

void CacheManager::Free(int32_t sequence) {
  for (const CacheKind kind : {CacheKind::kPagedRows, CacheKind::kCross}) {
    TN_CHECK(Resize(sequence, kind, 0).ok(), "shrinking always fits");
  }
  sequences_[static_cast<size_t>(sequence)] = {};
}

const int32_t* CacheManager::PagesOf(int32_t sequence, int group) const {
  const auto g = static_cast<size_t>(group);
  return pools_[g].tables.data() + sequence * plan_.groups[g].pages;
}

}  // namespace tenon
