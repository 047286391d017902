// CacheSpec: what one layer wants remembered per sequence, declared once and read by the manager,
// the plan and the memory ledger. Not memory itself (cache_manager.h). A value; thread-compatible.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tenon/numeric/dtype.h"
#include "tenon/ops/recurrent.h"

namespace tenon {

enum class CacheKind {
  kPagedRows,   // one row per token, in pages: K and V, MLA latents, indexer keys
  kState,       // a fixed number of bytes per sequence: convolution and scan states
  kCross,       // rows of the encoder's output, written once per sequence, in pages
  kSharedWith,  // reads another layer's rows
  kNone,
};
std::string_view NameOf(CacheKind kind);

// How a page is laid out inside; a backend declares which ones it reads.
enum class KvLayout {
  kNhd,  // [page_tokens, kv_heads, head_dim], K of the whole page, then V
  kHnd,  // [kv_heads, page_tokens, head_dim], K of the whole page, then V
  kRow,  // [page_tokens, row]: one row per token without heads (MLA latents)
};
std::string_view NameOf(KvLayout layout);

struct CacheSpec {
  CacheKind kind = CacheKind::kNone;
  int layer = 0;            // the layer's index in the model, for messages and the plan
  int64_t row_bytes = 0;    // kPagedRows, kCross: per token, K and V together
  int64_t state_bytes = 0;  // kState: per sequence
  DType dtype = DType::kF32;
  KvLayout layout = KvLayout::kNhd;
  // A query sees itself and window - 1 rows before it, of its own position / chunk only: rows that
  // nobody will see are dropped. A layer that reads another's rows says the same as it.
  std::optional<int64_t> window = {};
  std::optional<int64_t> chunk = {};
  // Paged kinds: a power of two of 16..256 that the layer's kernels were selected for; 0: the rule
  // of PageTokensFor.
  int32_t page_tokens = 0;
  int shared_with = -1;  // kSharedWith: the index of the other spec in the model's list

  // Equal specs of different layers share a group (pages and block tables); `layer` does not
  // matter.
  bool SameGroup(const CacheSpec& other) const {
    return kind == other.kind && row_bytes == other.row_bytes && state_bytes == other.state_bytes &&
           dtype == other.dtype && layout == other.layout && window == other.window &&
           chunk == other.chunk && page_tokens == other.page_tokens;
  }
  bool DropsRows() const {
    return kind == CacheKind::kPagedRows && (window.has_value() || chunk.has_value());
  }
  // The first row that a query at `position`, or any later one, may see.
  int64_t FirstSeen(int64_t position) const {
    int64_t first = 0;
    if (window) first = std::max(first, position + 1 - *window);
    if (chunk) first = std::max(first, position / *chunk * *chunk);
    return first;
  }
};

// Where one layer finds its rows or states. Filled when the cache is allocated, null on meta; ops
// keep the address of this struct and read it when the tape runs.
struct LayerCache {
  std::byte* base = nullptr;  // kPagedRows, kCross: page p is at base + p * page_bytes
  int64_t page_bytes = 0;
  int32_t page_tokens = 0;
  StatePool states;  // kState
  int group = -1;    // index of the cache group, -1: none
};

}  // namespace tenon
