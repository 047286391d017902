#include "tenon/plan/step_shape.h"

#include <algorithm>

namespace tenon {

StepShape::StepShape(const CachePlan& cache_plan, int64_t capacity, int64_t requests)
    : token_ids_(static_cast<size_t>(capacity)),
      positions_(token_ids_.size()),
      regimes_(token_ids_.size()),
      zeros_(token_ids_.size()),
      logit_rows_(token_ids_.size()),
      requests_(static_cast<size_t>(requests)),
      groups_(cache_plan.groups.size()),
      pages_(groups_.size()),
      runs_(requests_.size()),
      state_runs_(groups_.size(), SequenceRuns{runs_.data(), &run_count_}) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const CacheGroupPlan& group = cache_plan.groups[g];
    groups_[g].page_tokens = group.page_tokens;
    if (!IsPaged(group.spec.kind)) continue;
    groups_[g].max_pages = static_cast<int32_t>(group.max_pages);
    pages_[g].resize(static_cast<size_t>(requests * group.max_pages));
    groups_[g].pages = pages_[g].data();
  }
  layout_.token_ids = token_ids_.data();
  layout_.positions = positions_.data();
  layout_.rope_regimes = regimes_.data();
  layout_.zeros = zeros_.data();
  layout_.logit_rows = logit_rows_.data();
  layout_.groups = groups_;
  layout_.state_runs = state_runs_;
}

void StepShape::Clear() {
  layout_.num_tokens = layout_.num_logit_rows = 0;
  layout_.requests = {};
  run_count_ = 0;
}

int64_t StepShape::Add(const Request& r) {
  const int64_t begin = layout_.num_tokens;
  const auto index = layout_.requests.size();
  TN_CHECK(index < requests_.size() && begin + r.rows <= static_cast<int64_t>(token_ids_.size()),
           "a step within its capacity");
  TN_CHECK(index == 0 || requests_[index - 1].phase <= r.phase, "prefill, verify, decode");
  requests_[index] = {r.phase, static_cast<int32_t>(begin), static_cast<int32_t>(begin + r.rows),
                      static_cast<int32_t>(r.kv_len), static_cast<int32_t>(r.cross_len)};
  runs_[index] = {static_cast<int32_t>(begin), static_cast<int32_t>(begin + r.rows), r.slot,
                  r.fresh};
  for (int64_t i = 0; i < r.rows; ++i) {
    const auto row = static_cast<size_t>(begin + i);
    positions_[row] = static_cast<int32_t>(r.kv_len - r.rows + i);
    regimes_[row] = static_cast<int32_t>(r.regime);
  }
  for (int64_t i = r.rows - r.logit_rows; i < r.rows; ++i)
    logit_rows_[static_cast<size_t>(layout_.num_logit_rows++)] = static_cast<int32_t>(begin + i);
  layout_.num_tokens += r.rows;
  layout_.requests = {requests_.data(), index + 1};
  run_count_ = static_cast<int32_t>(index + 1);
  return begin;
}

void StepShape::Pad(int64_t num_tokens, int64_t num_logit_rows) {
  TN_CHECK(num_tokens <= static_cast<int64_t>(token_ids_.size()) && num_logit_rows <= num_tokens,
           "a step within its capacity");
  for (; layout_.num_tokens < num_tokens; ++layout_.num_tokens) {
    const auto row = static_cast<size_t>(layout_.num_tokens);
    token_ids_[row] = positions_[row] = regimes_[row] = 0;
  }
  while (layout_.num_logit_rows < num_logit_rows)
    logit_rows_[static_cast<size_t>(layout_.num_logit_rows++)] = 0;
}

int32_t* StepShape::Pages(int group, int64_t request) {
  return pages_[static_cast<size_t>(group)].data() + request * MaxPages(group);
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
