// Sampler: logits to one token. Greedy at temperature 0; otherwise temperature, then top-k, top-p
// and min-p, then a draw from a seeded generator of our own (the same sequence everywhere). One per
// generation; not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tenon/base/status.h"

namespace tenon {

struct SamplingOptions {
  double temperature = 0;  // 0: greedy
  int64_t top_k = 0;       // 0: all
  double top_p = 1;        // in (0, 1]
  double min_p = 0;        // in [0, 1): relative to the best
  uint64_t seed = 0;
};
// kUsage names the field, its value and what is allowed.
Status CheckSampling(const SamplingOptions& options);

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options) : options_(options), state_(options.seed) {}

  // logits [vocab]; of equal logits the lower id. The logits stay as they are. kInternal: a NaN or
  // +infinity among them, or nothing above -infinity.
  Result<int32_t> Sample(std::span<const float> logits);

 private:
  struct Candidate {
    int32_t id;
    double probability;
  };
  double NextUniform();  // [0, 1)
  void KeepLikely(std::span<const float> logits, float top);

  SamplingOptions options_;
  uint64_t state_;
  std::vector<Candidate> candidates_;  // most probable first
};

}  // namespace tenon
