#include "tenon/plan/step_shape.h"

namespace tenon {

StepShape::StepShape(const CachePlan& cache_plan, int64_t capacity)
    : token_ids_(static_cast<size_t>(capacity)),
      positions_(token_ids_.size()),
      regimes_(token_ids_.size()),
      zeros_(token_ids_.size()),
      logit_rows_(token_ids_.size()),
      groups_(cache_plan.groups.size()),
      state_runs_(cache_plan.groups.size(), SequenceRuns{&run_, &one_}) {
  for (size_t g = 0; g < groups_.size(); ++g)
    groups_[g].page_tokens = cache_plan.groups[g].page_tokens;
  layout_.token_ids = token_ids_.data();
  layout_.positions = positions_.data();
  layout_.rope_regimes = regimes_.data();
  layout_.zeros = zeros_.data();
  layout_.logit_rows = logit_rows_.data();
  layout_.requests = {&request_, 1};
  layout_.groups = groups_;
  layout_.state_runs = state_runs_;
}

void StepShape::Set(RequestPhase phase, int64_t num_tokens, int64_t num_logit_rows, int64_t kv_len,
                    int64_t cross_len) {
  TN_CHECK(num_tokens <= static_cast<int64_t>(token_ids_.size()), "a step within its capacity");
  layout_.num_tokens = num_tokens;
  layout_.num_logit_rows = num_logit_rows;
  request_ = {phase, 0, static_cast<int32_t>(num_tokens), static_cast<int32_t>(kv_len),
              static_cast<int32_t>(cross_len)};
  run_.begin = 0;
  run_.end = static_cast<int32_t>(num_tokens);
}

void StepShape::SetPages(int group, const int32_t* pages, int32_t max_pages) {
  groups_[static_cast<size_t>(group)].pages = pages;
  groups_[static_cast<size_t>(group)].max_pages = max_pages;
}

void StepShape::SetState(int32_t slot, bool fresh) {
  run_.slot = slot;
  run_.fresh = fresh;
}

const StepPlan* StepPlans::Find(const AttentionBackend& backend, int group) {
  if (group < 0) return nullptr;
  std::unique_ptr<StepPlan>& plan = plans_[{&backend, group}];
  if (plan == nullptr)
    plan = backend.CreatePlan(group, cache_plan_.groups[static_cast<size_t>(group)].spec);
  return plan.get();
}

void StepPlans::Prepare(const StepLayout& layout) {
  for (auto& [key, plan] : plans_) key.first->Prepare(layout, *plan);
}

}  // namespace tenon
