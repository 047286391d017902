#include "tenon/attention/backends/flashinfer_cascade.h"

#include <algorithm>

namespace tenon::backends {

int64_t SharedPrefixes::Common(const CsrPages& pages, const Candidate& a, const Candidate& b) {
  if (a.chunk != b.chunk) return 0;
  const auto mine = pages.PagesOf(a.request);
  const auto other = pages.PagesOf(b.request);
  const auto end = std::mismatch(mine.begin(), mine.end(), other.begin(), other.end());
  const int64_t same = (end.first - mine.begin()) * pages.page_tokens();
  const int64_t keys = std::min({same, a.keys, b.keys}) / a.chunk * a.chunk;
  return keys < kMinKeys ? 0 : keys;
}

void SharedPrefixes::Find(const CsrPages& pages, std::span<const Candidate> candidates) {
  sorted_.assign(candidates.begin(), candidates.end());
  members_.clear();
  groups_.clear();
  // By page ids: those with the longest common prefix become neighbours.
  std::sort(sorted_.begin(), sorted_.end(), [&](const Candidate& a, const Candidate& b) {
    if (a.chunk != b.chunk) return a.chunk < b.chunk;
    const auto mine = pages.PagesOf(a.request);
    const auto other = pages.PagesOf(b.request);
    const auto end = std::mismatch(mine.begin(), mine.end(), other.begin(), other.end());
    if (end.first == mine.end() || end.second == other.end()) {
      return mine.size() != other.size() ? mine.size() < other.size() : a.request < b.request;
    }
    return *end.first < *end.second;
  });
  for (size_t i = 0; i + 1 < sorted_.size();) {
    size_t next = i + 1;
    int64_t keys = Common(pages, sorted_[i], sorted_[next]);
    if (keys == 0) {
      ++i;
      continue;
    }
    // As long as one more member saves more reading than the shorter prefix loses.
    for (; next + 1 < sorted_.size(); ++next) {
      const int64_t more = std::min(keys, Common(pages, sorted_[next], sorted_[next + 1]));
      const auto saved = static_cast<int64_t>(next - i);
      if (more * (saved + 1) < keys * saved) break;
      keys = more;
    }
    const Group group{static_cast<int32_t>(members_.size()), static_cast<int32_t>(next + 1 - i),
                      keys, sorted_[i].chunk};
    for (; i <= next; ++i) members_.push_back(sorted_[i].request);
    std::sort(members_.end() - group.count, members_.end());
    groups_.push_back(group);
  }
}

}  // namespace tenon::backends
