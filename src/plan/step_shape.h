// StepShape: the layout of one step of one sequence, with arrays of fixed addresses: filled with
// numbers by the engine, left empty by the plan, which records tapes without bytes. Not
// thread-safe.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "tenon/cache/cache_manager.h"
#include "tenon/modules/forward.h"

namespace tenon {

class StepShape {
 public:
  // capacity: rows of the largest step.
  StepShape(const CachePlan& cache_plan, int64_t capacity);

  // The step's rows and phase; kv_len counts cached rows after the step.
  void Set(RequestPhase phase, int64_t num_tokens, int64_t num_logit_rows, int64_t kv_len,
           int64_t cross_len);
  const StepLayout& layout() const { return layout_; }

  int32_t* token_ids() { return token_ids_.data(); }
  int32_t* positions() { return positions_.data(); }
  int32_t* logit_rows() { return logit_rows_.data(); }
  // The sequence's page table in a paged group; its slot and freshness in the state groups.
  void SetPages(int group, const int32_t* pages, int32_t max_pages);
  void SetState(int32_t slot, bool fresh);

 private:
  std::vector<int32_t> token_ids_, positions_, regimes_, zeros_, logit_rows_;  // [capacity]
  StepRequest request_;
  std::vector<GroupPages> groups_;
  SequenceRun run_;
  int32_t one_ = 1;
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
