#include "tenon/engine/step_runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/engine/load_weights.h"

namespace tenon {
namespace {

// Recorded steps kept. The decode step of one sequence is used all the time and never dropped.
constexpr size_t kMaxSteps = 48;

// Numbers of rows for which steps of several sequences are recorded: few enough that they come
// again, near enough that little is computed for nobody.
int64_t RowClass(int64_t rows) {
  if (rows <= 16) return rows;
  return RoundUp(rows, rows <= 128 ? 16 : 64);
}

}  // namespace

StepRunner::StepRunner(std::unique_ptr<PlannedModel> plan)
    : plan_(std::move(plan)),
      team_(plan_->threads),
      shape_(plan_->cache_plan, plan_->largest_step(), plan_->sizing.max_sequences),
      step_plans_(plan_->cache_plan) {}

Result<std::unique_ptr<StepRunner>> StepRunner::Load(std::unique_ptr<PlannedModel> plan) {
  if (plan->index == nullptr) {
    return Refused(plan->checkpoint->path() +
                   ": no weights (*.safetensors) in the directory; fix: a complete checkpoint");
  }
  if (plan->context->options.mapping.world() > 1) {
    return Refused(fmt::format("a world of {} ranks can be explained, not run; fix: --tp 1 --pp 1",
                               plan->context->options.mapping.world()));
  }
  std::unique_ptr<StepRunner> runner(new StepRunner(std::move(plan)));
  for (const auto& backend : runner->plan_->backends.backends)
    TN_RETURN_IF_ERROR(backend->LoadKernels());
  TN_ASSIGN_OR_RETURN(runner->packed_weights_, LoadWeights(*runner->plan_, runner->team_));
  PlannedModel& p = *runner->plan_;
  TN_ASSIGN_OR_RETURN(runner->cache_,
                      CacheManager::Create(p.cache_specs, p.layer_caches, p.sizing));
  TN_ASSIGN_OR_RETURN(runner->arena_, Buffer::Allocate(p.memory.arena, "activations"));
  TN_ASSIGN_OR_RETURN(runner->scratch_, Buffer::Allocate(p.memory.scratch, "scratch"));
  runner->arena_generation_ = 1;
  return runner;
}

Status StepRunner::CheckIds(std::span<const int32_t> ids) const {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab()) {
      return UsageError(
          fmt::format("token id {} at position {}, allowed: 0 to {}", ids[i], i, vocab() - 1));
    }
  }
  return {};
}

void StepRunner::AddPart(const StepPart& part) {
  const auto rows = static_cast<int64_t>(part.ids.size());
  const int64_t request = shape_.requests();
  const int64_t begin = shape_.Add({.phase = part.phase,
                                    .rows = rows,
                                    .kv_len = part.before + rows,
                                    .cross_len = cache_->CrossLengthOf(part.sequence),
                                    .slot = cache_->SlotOf(part.sequence),
                                    .fresh = part.before == 0,
                                    .regime = part.regime,
                                    .logit_rows = part.logit_rows});
  std::copy(part.ids.begin(), part.ids.end(), shape_.token_ids() + begin);
  for (size_t g = 0; g < plan_->cache_plan.groups.size(); ++g) {
    if (!IsPaged(plan_->cache_plan.groups[g].spec.kind)) continue;
    const auto group = static_cast<int>(g);
    cache_->CopyPages(group, std::span(&part.sequence, 1), shape_.MaxPages(group),
                      shape_.Pages(group, request));
  }
}

StepRunner::StepKey StepRunner::KeyOf(std::span<const StepPart> parts, bool encode) const {
  const StepLayout& layout = shape_.layout();
  StepKey key{.encode = encode,
              .single = parts.size() == 1,
              .num_tokens = layout.num_tokens,
              .num_logit_rows = layout.num_logit_rows,
              .taps = taps_};
  for (const StepPart& part : parts)
    (part.phase == RequestPhase::kPrefill ? key.prefill : key.decode) = true;
  if (key.single && key.prefill)
    key.mla_chunks = CeilDiv(parts[0].before, plan_->context->options.mla_context_chunk);
  return key;
}

// Not where states are kept: their ops leave rows of no sequence as they were.
void StepRunner::PadStep(std::span<const StepPart> parts) {
  if (parts.size() == 1) return;
  const StepLayout& layout = shape_.layout();
  const int64_t rows =
      plan_->cache_plan.HasStates()
          ? layout.num_tokens
          : std::min(RowClass(layout.num_tokens), std::max(most_rows(), layout.num_tokens));
  shape_.Pad(rows, std::min(RowClass(std::max<int64_t>(1, layout.num_logit_rows)), rows));
}

Result<std::span<const float>> StepRunner::Run(std::span<const StepPart> parts) {
  shape_.Clear();
  int64_t wanted = 0;
  for (const StepPart& part : parts) {
    AddPart(part);
    wanted += part.logit_rows;
  }
  PadStep(parts);
  if (shape_.layout().num_logit_rows == 0) shape_.Pad(shape_.layout().num_tokens, 1);
  TN_ASSIGN_OR_RETURN(const RecordedStep* step, RunStep(KeyOf(parts, false)));
  const auto* rows = step->tape->ViewOf(step->logits).as<float>();
  return std::span<const float>(rows, static_cast<size_t>(wanted * output_width()));
}

Status StepRunner::Encode(int32_t sequence, std::span<const int32_t> ids) {
  const StepPart part{.sequence = sequence, .ids = ids};
  shape_.Clear();
  AddPart(part);
  return RunStep(KeyOf(std::span(&part, 1), true)).status();
}

Result<StepRunner::RecordedStep*> StepRunner::RunStep(const StepKey& key) {
  TN_ASSIGN_OR_RETURN(RecordedStep * step, StepFor(key));
  step_plans_.Prepare(shape_.layout());
  step->tape->Run(team_);
  ++step->runs;
  step->last_run = ++runs_;
  last_tape_ = step->tape.get();
  return step;
}

void StepRunner::DropOldest() {
  auto oldest = steps_.end();
  for (auto it = steps_.begin(); it != steps_.end(); ++it) {
    const bool steady = it->first.single && it->first.decode;
    if (steady || &*it->second.tape == last_tape_) continue;
    if (oldest == steps_.end() || it->second.last_run < oldest->second.last_run) oldest = it;
  }
  if (oldest == steps_.end()) return;
  AddDispatches(oldest->second, dropped_);
  steps_.erase(oldest);
}

Result<StepRunner::RecordedStep*> StepRunner::StepFor(const StepKey& key) {
  auto it = steps_.find(key);
  if (it == steps_.end()) {
    if (steps_.size() >= kMaxSteps) DropOldest();
    RecordedStep step;
    step.tape = std::make_unique<Tape>(*plan_->kernels);
    Forward pass(*step.tape, shape_.layout(), step_plans_);
    pass.taps = key.taps;
    pass.mla_context_rows = key.mla_chunks * plan_->context->options.mla_context_chunk;
    if (key.encode) {
      plan_->model->Encode(pass);
    } else {
      step.logits = plan_->model->Forward(pass);
      step.tape->Keep(step.logits, "logits");
    }
    step.tape->Seal(plan_->threads);
    if (profiles_) step.tape->Profile();
    it = steps_.emplace(key, std::move(step)).first;
  }
  TN_RETURN_IF_ERROR(BindStep(it->second));
  return &it->second;
}

Status StepRunner::BindStep(RecordedStep& step) {
  // Steps larger than planned (all logits wanted, taps, a long encoder input) get more room.
  if (step.tape->arena_bytes() > arena_.size() || step.tape->scratch_bytes() > scratch_.size()) {
    TN_ASSIGN_OR_RETURN(
        arena_, Buffer::Allocate(std::max(arena_.size(), step.tape->arena_bytes()), "activations"));
    TN_ASSIGN_OR_RETURN(
        scratch_,
        Buffer::Allocate(std::max(scratch_.size(), step.tape->scratch_bytes()), "scratch"));
    ++arena_generation_;
  }
  if (step.bound_to != arena_generation_) {
    step.tape->Bind(arena_.data(), scratch_.data());
    step.bound_to = arena_generation_;
  }
  return {};
}

void StepRunner::AddDispatches(const RecordedStep& step, std::map<std::string, int64_t>& counts) {
  for (const Tape::Record& record : step.tape->records()) counts[record.kernel] += step.runs;
}

std::map<std::string, int64_t> StepRunner::dispatched() const {
  std::map<std::string, int64_t> counts = dropped_;
  for (const auto& [key, step] : steps_) AddDispatches(step, counts);
  return counts;
}

void StepRunner::Profile() {
  profiles_ = true;
  for (auto& [key, step] : steps_) step.tape->Profile();
}

std::string StepRunner::NameOf(const StepKey& key) {
  if (key.encode) return fmt::format("encode {}", key.num_tokens);
  if (key.single && key.decode) return "decode";
  if (!key.prefill) return fmt::format("decode {}", key.num_tokens);
  return fmt::format("{} {}", key.decode ? "mixed" : "prefill", key.num_tokens);
}

std::vector<StepRunner::TraceSpan> StepRunner::trace() const {
  std::vector<TraceSpan> trace;
  for (const auto& [key, step] : steps_) {
    const auto records = step.tape->records();
    const auto spans = step.tape->spans();
    for (size_t i = 0; i < spans.size(); ++i) {
      const Tape::Record& record = records[i % records.size()];
      if (spans[i].end_ns == 0) continue;
      trace.push_back({NameOf(key), record.op, record.kernel, record.scope,
                       static_cast<int>(i / records.size()), spans[i].begin_ns, spans[i].end_ns});
    }
  }
  return trace;
}

std::vector<StepRunner::ProfileRow> StepRunner::profile() const {
  std::vector<ProfileRow> rows;
  for (const auto& [key, step] : steps_) {
    if (step.tape->times().empty()) continue;
    const size_t first = rows.size();
    const std::string name = NameOf(key);
    for (size_t i = 0; i < step.tape->records().size(); ++i) {
      const Tape::Record& record = step.tape->records()[i];
      const Tape::RecordTime& time = step.tape->times()[i];
      auto row = std::find_if(rows.begin() + static_cast<std::ptrdiff_t>(first), rows.end(),
                              [&](const ProfileRow& r) { return r.kernel == record.kernel; });
      if (row == rows.end()) {
        row = rows.insert(rows.end(), {name, record.op, record.kernel, step.runs, 0, 0, 0});
      }
      ++row->records;
      row->work_seconds += 1e-9 * static_cast<double>(time.work_ns);
      row->wait_seconds += 1e-9 * static_cast<double>(time.wait_ns);
    }
    std::sort(rows.begin() + static_cast<std::ptrdiff_t>(first), rows.end(),
              [](const ProfileRow& a, const ProfileRow& b) {
                return a.work_seconds + a.wait_seconds > b.work_seconds + b.wait_seconds;
              });
  }
  return rows;
}

}  // namespace tenon
