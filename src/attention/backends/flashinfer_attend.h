// FLASHINFER's partial states and the kernel calls that make them: rows and keys in, states out.
// What is computed where is the plan's. Private to the backend. Runs on the team.
#pragma once

#include "tenon/attention/backends/paged_layer.h"

namespace tenon::backends {

// The partial state of one row and head over some keys, StateFloats long: V, normalised [v_width];
// s, the natural logarithm of the sum of exp(score); then 1. Without visible keys V = 0, s = -inf,
// then 0. AttentionKernels::finish and merge take the last two for a maximum and a sum.
//
// From a kernel's sums, which may be `state`.
void NormaliseState(const AttentionKernels& kernels, const float* sums, int64_t v_width,
                    float* state);
// into = the state over both parts' keys (disjoint).
void MergeState(const AttentionKernels& kernels, const float* part, int64_t v_width, float* into);
void ClearState(int64_t v_width, float* state);

// Rows attended together: their states and a tile of keys stay in the core's own caches.
int64_t BlockRowsOf(const HeadGeometry& heads);
int64_t AttendScratchBytes(const HeadGeometry& heads);

// A record's work, with the memory of the thread that does it.
class Attender {
 public:
  Attender(const AttendRecord& record, const RunContext& context);

  struct Keys {
    std::span<const int32_t> pages = {};  // empty: dense rows
    int64_t begin = 0, end = 0;
    int64_t chunk = 0;    // summed up by themselves: those in [i * chunk, (i + 1) * chunk)
    bool shared = false;  // seen by every row, whatever request it is of
  };
  // All keys of the rows, to the record's results.
  void ToOutput(RowBlock rows, int64_t kv_head, const Keys& keys) const;
  // States of the runs' rows over the keys, to slots [rows, heads, StateFloats].
  void ToSlots(std::span<const RowBlock> runs, int64_t kv_head, const Keys& keys,
               float* slots) const;

 private:
  // States of the rows over one chunk, merged into `target` unless it is the first.
  void AddChunk(const RowBlock& block, int64_t kv_head, const Keys& chunk,
                const AttendState& target, bool first) const;
  // Blocks of the run that one kernel call may take.
  template <typename Use>
  void ForBlocks(const RowBlock& run, bool shared, Use use) const;

  const AttendRecord& a_;
  const RunContext& context_;
  const LayerFacts& facts_;
  const HeadGeometry& heads_;
  ScoreRules rules_;
  bool by_position_;  // scores depend on where a row is, not only on what it sees
};

}  // namespace tenon::backends
