// A cache manager with its layers' caches, and where their rows and states are, for the tests of
// this folder. A row's content is one number. Rows are addressed as a kernel does: by the
// sequence's page table.
#pragma once

#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "tenon/cache/cache_manager.h"

namespace tenon::test {

inline void Put(std::byte* at, int64_t value) { std::memcpy(at, &value, sizeof value); }
inline int64_t Get(const std::byte* at) {
  int64_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

struct CacheFixture {
  CacheFixture(std::vector<CacheSpec> layers, const CacheSizing& sizing)
      : specs(std::move(layers)), caches(specs.size()) {
    std::vector<LayerCache*> addresses;
    for (LayerCache& cache : caches) addresses.push_back(&cache);
    auto made = CacheManager::Create(specs, addresses, sizing);
    TN_CHECK(made.ok(), made.ok() ? "" : made.message().c_str());
    manager = *std::move(made);
  }
  bool IsRows(size_t i) const { return specs[i].kind == CacheKind::kPagedRows; }
  bool IsState(size_t i) const { return specs[i].kind == CacheKind::kState; }
  // Row `row` of a sequence in spec i; null where its page was given back.
  std::byte* Row(size_t i, int32_t sequence, int64_t row) const {
    const LayerCache& cache = caches[i];
    const auto pages = manager->PagesOf(sequence, cache.group);
    const int32_t page = pages[static_cast<size_t>(row / cache.page_tokens)];
    if (page == PagePool::kDropped) return nullptr;
    return cache.base + page * cache.page_bytes + row % cache.page_tokens * specs[i].row_bytes;
  }
  std::byte* State(size_t i, int32_t slot) const {
    return caches[i].states.base + slot * caches[i].states.slot_bytes;
  }

  std::vector<CacheSpec> specs;
  std::deque<LayerCache> caches;
  std::unique_ptr<CacheManager> manager;
};

}  // namespace tenon::test
