#include "tenon/attention/backends/flashinfer_pages.h"

#include "tenon/tensor/buffer.h"

namespace tenon::backends {

void CsrPages::Build(const GroupPages& pages, std::span<const int32_t> lengths) {
  page_tokens_ = pages.page_tokens;
  indptr_.assign(1, 0);
  indptr_.reserve(lengths.size() + 1);
  // Sequences grow page by page: room for what the tables may hold saves growing with them.
  indices_.clear();
  indices_.reserve(lengths.size() * static_cast<size_t>(pages.max_pages));
  last_page_len_.clear();
  last_page_len_.reserve(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto count = static_cast<int32_t>(CeilDiv(lengths[i], page_tokens_));
    TN_CHECK(count <= pages.max_pages, "a sequence's table holds its pages");
    const int32_t* own = pages.pages + static_cast<int64_t>(i) * pages.max_pages;
    indices_.insert(indices_.end(), own, own + count);
    indptr_.push_back(indptr_.back() + count);
    last_page_len_.push_back(count == 0 ? 0 : lengths[i] - (count - 1) * page_tokens_);
  }
}

int64_t CsrPages::LengthOf(int32_t request) const {
  const auto pages = static_cast<int64_t>(PagesOf(request).size());
  if (pages == 0) return 0;
  return (pages - 1) * page_tokens_ + last_page_len_[static_cast<size_t>(request)];
}

}  // namespace tenon::backends
