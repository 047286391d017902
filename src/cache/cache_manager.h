// CacheManager: pages and state slots of all sequences. Equal CacheSpecs of different layers form a
// group with its own page ids; each layer has its own pool. PlanCache is the arithmetic alone, for
// the plan and the memory ledger: what it says is what is allocated. Not thread-safe; used by the
// engine between steps.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tenon/base/status.h"
#include "tenon/cache/cache_spec.h"
#include "tenon/tensor/buffer.h"

namespace tenon {

struct CacheSizing {
  int64_t tokens = 0;        // cached rows of all sequences together, per group
  int64_t cross_tokens = 0;  // encoder rows, likewise
  int64_t max_sequences = 1;
  int32_t page_tokens =
      0;  // 0: a power of two of 16..256 that gives a layer page of 64 KiB where geometry allows
};

struct CacheGroupPlan {
  CacheSpec spec;            // of its first layer
  std::vector<int> members;  // indices of the specs
  int32_t page_tokens = 0;   // paged kinds
  int64_t page_bytes = 0;
  int64_t pages = 0;
  int64_t slot_bytes = 0;  // states
  int64_t slots = 0;
  int64_t bytes = 0;  // all layers
};

struct CachePlan {
  std::vector<CacheGroupPlan> groups;
  int64_t bytes = 0;
};

CachePlan PlanCache(std::span<const CacheSpec> specs, const CacheSizing& sizing);

class CacheManager {
 public:
  // `caches[i]` receives where spec i's rows are. kDoesNotFit when memory is refused.
  static Result<std::unique_ptr<CacheManager>> Create(std::span<const CacheSpec> specs,
                                                      std::span<LayerCache* const> caches,
                                                      const CacheSizing& sizing);

  const CachePlan& plan() const { return plan_; }

  // A new sequence: its index in [0, max_sequences), also its state slot. kDoesNotFit when all are
  // taken.
  Result<int32_t> Admit();
  // Room for `tokens` more rows. kDoesNotFit, naming what is there, leaves the sequence as it was.
  Status Append(int32_t sequence, int64_t tokens);
  // Room for the encoder's rows, replacing earlier ones.
  Status SetCross(int32_t sequence, int64_t rows);
  // Forgets all rows but the first `rows` (not states).
  void Keep(int32_t sequence, int64_t rows);
  void Free(int32_t sequence);

  int64_t LengthOf(int32_t sequence) const {
    return sequences_[static_cast<size_t>(sequence)].length;
  }
  int64_t CrossLengthOf(int32_t sequence) const {
    return sequences_[static_cast<size_t>(sequence)].cross_length;
  }
  int64_t free_pages(int group) const {
    return static_cast<int64_t>(pools_[static_cast<size_t>(group)].free.size());
  }
  // Page table of a sequence in a group: stable address, capacity max_pages(group).
  const int32_t* PagesOf(int32_t sequence, int group) const;
  int32_t max_pages(int group) const {
    return static_cast<int32_t>(plan_.groups[static_cast<size_t>(group)].pages);
  }

 private:
  struct Pool {
    std::vector<Buffer> layers;   // one per member
    std::vector<int32_t> free;    // page ids
    std::vector<int32_t> tables;  // [max_sequences, pages]
    std::vector<int64_t> used;    // pages of each sequence
  };
  struct Sequence {
    bool live = false;
    int64_t length = 0;
    int64_t cross_length = 0;
  };

  CacheManager() = default;
  Status Resize(int32_t sequence, CacheKind kind, int64_t rows);

  CachePlan plan_;
  std::vector<Pool> pools_;  // by group
  std::vector<Sequence> sequences_;
};

}  // namespace tenon
