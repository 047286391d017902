// Which sequences of a step begin with the same pages, so that those are attended once for all
// their rows. Looks at page ids only, which the cache gives equal to equal prefixes; it does not
// decide how work is split. Find on one thread; its results live until the next.
#pragma once

#include <span>
#include <vector>

#include "tenon/attention/backends/flashinfer_pages.h"

namespace tenon::backends {

class SharedPrefixes {
 public:
  // Shorter prefixes cost more in partial sums than reading their keys again.
  static constexpr int64_t kMinKeys = 256;

  // A request that may share: `keys` are seen by each of its rows, summed up `chunk` at a time.
  struct Candidate {
    int32_t request = 0;
    int64_t keys = 0;
    int64_t chunk = 0;
  };
  // Candidates of equal chunk, in the order of requests, whose first `keys` keys (whole chunks) lie
  // in the same pages.
  struct Group {
    int32_t first = 0;  // of members()
    int32_t count = 0;
    int64_t keys = 0;
    int64_t chunk = 0;
  };

  // No request is in two groups. Allocates only when there are more candidates than ever before.
  void Find(const CsrPages& pages, std::span<const Candidate> candidates);
  std::span<const Group> groups() const { return groups_; }
  std::span<const int32_t> members(const Group& group) const {
    return std::span(members_).subspan(static_cast<size_t>(group.first),
                                       static_cast<size_t>(group.count));
  }

 private:
  // Keys of the leading whole chunks that both have in common.
  static int64_t Common(const CsrPages& pages, const Candidate& a, const Candidate& b);

  std::vector<Candidate> sorted_;
  std::vector<int32_t> members_;
  std::vector<Group> groups_;
};

}  // namespace tenon::backends
