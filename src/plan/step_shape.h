// StepShape: the layout of one step, with arrays of fixed addresses: filled request by request by
// the engine, left without ids by the plan, which records tapes without bytes. Not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "tenon/cache/cache_manager.h"
#include "tenon/modules/forward.h"

namespace tenon {

class StepShape {
 public:
  // capacity: rows of the largest step; requests: the most that one step serves.
  StepShape(const CachePlan& cache_plan, int64_t capacity, int64_t requests);
  StepShape(const StepShape&) = delete;
  StepShape& operator=(const StepShape&) = delete;

  // A step without requests and rows.
  void Clear();
  struct Request {
    RequestPhase phase = RequestPhase::kPrefill;
    int64_t rows = 1;
    int64_t kv_len = 1;  // cached rows after the step
    int64_t cross_len = 0;
    int32_t slot = 0;        // of states
    bool fresh = false;      // has none yet
    int64_t regime = 0;      // of the ropes' frequencies
    int64_t logit_rows = 0;  // the last so many rows' logits are wanted
  };
  // Its rows come after those of the requests before it, and their order is prefill, verify,
  // decode. Positions end at kv_len - 1, or for an encoder's rows, which are not cached, at rows -
  // 1. Returns its first row.
  int64_t Add(const Request& request);
  // Rows of no request, and logit rows that nobody reads, up to these numbers.
  void Pad(int64_t num_tokens, int64_t num_logit_rows);

  const StepLayout& layout() const { return layout_; }
  int64_t requests() const { return static_cast<int64_t>(layout_.requests.size()); }

  int32_t* token_ids() { return token_ids_.data(); }
  // Where the page table of a request in a paged group is written: room for its max_pages.
  int32_t* Pages(int group, int64_t request);
  // The most pages that one sequence has in the group.
  int64_t MaxPages(int group) const { return groups_[static_cast<size_t>(group)].max_pages; }

 private:
  std::vector<int32_t> token_ids_, positions_, regimes_, zeros_, logit_rows_;  // [capacity]
  std::vector<StepRequest> requests_;
  std::vector<GroupPages> groups_;
  std::vector<std::vector<int32_t>> pages_;  // by group: [requests, max_pages]
  std::vector<SequenceRun> runs_;
  int32_t run_count_ = 0;
  std::vector<SequenceRuns> state_runs_;
  StepLayout layout_;
};

// Plans of all backends and groups in use.
class StepPlans final : public PlanSet {
 public:
  explicit StepPlans(const CachePlan& cache_plan) : cache_plan_(cache_plan) {}
  const StepPlan* Find(const AttentionBackend& backend, int group) override;
  // Before each run.
  void Prepare(const StepLayout& layout);

 private:
  const CachePlan& cache_plan_;
  std::map<std::pair<const AttentionBackend*, int>, std::unique_ptr<StepPlan>> plans_;
};

}  // namespace tenon
