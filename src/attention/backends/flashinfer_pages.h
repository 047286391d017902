// The page tables of one cache group's step in compressed rows, as FLASHINFER's kernels read them:
// indptr, indices, rows of the last page. Not the cache manager's tables, from which they are
// built. Build on one thread; constant while a tape runs.
#pragma once

#include <span>
#include <vector>

#include "tenon/attention/step_layout.h"

namespace tenon::backends {

class CsrPages {
 public:
  // Cached rows of request i are lengths[i]. Allocates only when a step has more requests, or
  // longer tables, than any before it.
  void Build(const GroupPages& pages, std::span<const int32_t> lengths);

  int32_t requests() const { return static_cast<int32_t>(last_page_len_.size()); }
  int32_t page_tokens() const { return page_tokens_; }
  std::span<const int32_t> indptr() const { return indptr_; }    // [requests + 1]
  std::span<const int32_t> indices() const { return indices_; }  // [indptr[requests]]
  // [requests]: in 1..page_tokens, 0 without pages.
  std::span<const int32_t> last_page_len() const { return last_page_len_; }

  std::span<const int32_t> PagesOf(int32_t request) const {
    const auto i = static_cast<size_t>(request);
    return indices().subspan(static_cast<size_t>(indptr_[i]),
                             static_cast<size_t>(indptr_[i + 1] - indptr_[i]));
  }
  // (pages - 1) * page_tokens + last_page_len.
  int64_t LengthOf(int32_t request) const;

 private:
  int32_t page_tokens_ = 1;
  std::vector<int32_t> indptr_ = {0};
  std::vector<int32_t> indices_;
  std::vector<int32_t> last_page_len_;
};

}  // namespace tenon::backends
