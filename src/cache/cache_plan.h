// CachePlan: how many pages and slots the declared caches get and what they cost: arithmetic only,
// no memory. `explain` and the memory ledger print it; CacheManager allocates exactly this. Pure
// functions; thread-safe.
#pragma once

#include <span>
#include <vector>

#include "tenon/base/status.h"
#include "tenon/cache/cache_spec.h"

namespace tenon {

struct CacheSizing {
  int64_t tokens = 0;        // cached rows of all sequences together, per group
  int64_t cross_tokens = 0;  // encoder rows, likewise
  int64_t max_sequences = 1;
  int64_t max_sequence_tokens = 0;  // rows of one sequence; 0: all that fit
  // Rows of one sequence that a step adds: groups with a window or chunk then hold no more than
  // that and what their queries see. 0: any number, and such groups are as large as the others.
  int64_t max_step_tokens = 0;
  int64_t max_snapshots = 0;  // states set aside to come back to, published ones included
  bool prefix_reuse = false;  // without cross caches: sequences may find published rows
  int32_t page_tokens = 0;    // of groups that do not say; 0: PageTokensFor
};

struct CacheGroupPlan {
  CacheSpec spec;            // of its first layer
  std::vector<int> members;  // indices of the specs
  // Paged kinds. Any max_sequences sequences whose rows sum to the sizing's tokens fit, if steps
  // add no more than max_step_tokens.
  int32_t page_tokens = 0;
  int64_t page_bytes = 0;  // of one layer
  int64_t pages = 0;
  int64_t max_pages = 0;  // of one sequence, dropped ones included
  // States: one slot per sequence, then one per snapshot.
  int64_t slot_bytes = 0;
  int64_t slots = 0;
  int64_t pool_bytes = 0;   // of one layer
  int64_t table_bytes = 0;  // page tables of all sequences, lists of pages
  int64_t bytes = 0;        // all layers' pools and the tables
};

struct CachePlan {
  std::vector<CacheGroupPlan> groups;
  int64_t prefix_nodes = 0;  // of kPrefixTokens published tokens, that can be remembered
  int64_t prefix_bytes = 0;  // for which this is needed
  int64_t bytes = 0;

  // Cache bytes that one more token of one sequence takes, page rounding aside, while it is shorter
  // than windows and chunks.
  int64_t BytesPerToken() const;
  bool HasStates() const;
};

inline bool IsPaged(CacheKind kind) {
  return kind == CacheKind::kPagedRows || kind == CacheKind::kCross;
}

// The page size where nobody asked for one: the smallest power of two of 16..256 that gives a layer
// page of at least 64 KiB, 256 where none does. Random reads of less than that run below streaming
// speed.
int32_t PageTokensFor(int64_t row_bytes);

// Groups in order of their first layer. Errors: kUsage for a page size, sharing or sizing that
// cannot be, kDoesNotFit for sizes beyond 64 bits or more pages than a page table can name.
Result<CachePlan> PlanCache(std::span<const CacheSpec> specs, const CacheSizing& sizing);

// The spec whose rows spec i reads: itself, or the end of its chain of kSharedWith. Only for specs
// that PlanCache accepted.
size_t OwnerOf(std::span<const CacheSpec> specs, size_t i);

}  // namespace tenon
