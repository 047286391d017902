#include "tenon/engine/model_runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/engine/load_weights.h"
#include "tenon/modules/rope_table.h"

namespace tenon {
namespace {

// Recorded steps kept; the decode step is used all the time and never the one dropped.
constexpr size_t kMaxSteps = 16;

}  // namespace

ModelRunner::ModelRunner(std::unique_ptr<PlannedModel> plan)
    : plan_(std::move(plan)),
      team_(plan_->threads),
      shape_(plan_->cache_plan, plan_->largest_step()),
      step_plans_(plan_->cache_plan) {}

Result<std::unique_ptr<ModelRunner>> ModelRunner::Load(std::unique_ptr<PlannedModel> plan) {
  if (plan->index == nullptr) {
    return Refused(plan->checkpoint->path() +
                   ": no weights (*.safetensors) in the directory; fix: a complete checkpoint");
  }
  if (plan->context->options.mapping.world() > 1) {
    return Refused(fmt::format("a world of {} ranks can be explained, not run; fix: --tp 1 --pp 1",
                               plan->context->options.mapping.world()));
  }
  std::unique_ptr<ModelRunner> runner(new ModelRunner(std::move(plan)));
  TN_ASSIGN_OR_RETURN(runner->packed_weights_, LoadWeights(*runner->plan_, runner->team_));
  PlannedModel& p = *runner->plan_;
  TN_ASSIGN_OR_RETURN(runner->cache_,
                      CacheManager::Create(p.cache_specs, p.layer_caches, p.sizing));
  TN_ASSIGN_OR_RETURN(runner->arena_, Buffer::Allocate(p.memory.arena, "activations"));
  TN_ASSIGN_OR_RETURN(runner->scratch_, Buffer::Allocate(p.memory.scratch, "scratch"));
  runner->arena_generation_ = 1;
  runner->history_.reserve(static_cast<size_t>(p.max_seq_len));
  TN_RETURN_IF_ERROR(runner->Reset());
  return runner;
}

Status ModelRunner::Reset() {
  if (sequence_ >= 0) cache_->Free(sequence_);
  TN_ASSIGN_OR_RETURN(sequence_, cache_->Admit());
  history_.clear();
  rope_keys_.clear();
  for (size_t g = 0; g < plan_->cache_plan.groups.size(); ++g) {
    const auto group = static_cast<int>(g);
    if (plan_->cache_plan.groups[g].spec.kind == CacheKind::kState) continue;
    shape_.SetPages(group, cache_->PagesOf(sequence_, group).data(),
                    static_cast<int32_t>(cache_->max_pages(group)));
  }
  return {};
}

Status ModelRunner::CheckIds(std::span<const int32_t> ids) const {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab()) {
      return UsageError(
          fmt::format("token id {} at position {}, allowed: 0 to {}", ids[i], i, vocab() - 1));
    }
  }
  return {};
}

Status ModelRunner::Encode(std::span<const int32_t> ids) {
  TN_CHECK(has_encoder(), "only encoder-decoder models encode");
  if (ids.empty()) return UsageError("the encoder needs at least one token");
  TN_RETURN_IF_ERROR(CheckIds(ids));
  if (static_cast<int64_t>(ids.size()) > plan_->max_seq_len) {
    return DoesNotFit(
        fmt::format("{} encoder tokens, the context holds {}", ids.size(), plan_->max_seq_len));
  }
  tap_rows_.clear();
  TN_RETURN_IF_ERROR(cache_->SetCross(sequence_, static_cast<int64_t>(ids.size())));
  return RunStep(ids, /*encode=*/true, WantLogits::kNone);
}

bool ModelRunner::UpdateRopes(int64_t new_length) {
  const std::vector<RopeTable*>& ropes = plan_->context->ropes;
  const bool fresh = history_.empty();
  bool stale = false;
  rope_keys_.resize(ropes.size(), -1);
  for (size_t i = 0; i < ropes.size(); ++i) {
    if (!ropes[i]->DependsOnLength() || (!fresh && ropes[i]->FixedAtAdmission())) continue;
    const int64_t key = ropes[i]->KeyOf(new_length);
    stale |= !fresh && key != rope_keys_[i];
    rope_keys_[i] = key;
    ropes[i]->SetRegime(0, new_length);
  }
  return stale;
}

Status ModelRunner::Extend(std::span<const int32_t> ids, WantLogits want) {
  if (ids.empty()) return UsageError("no tokens; at least one is needed");
  TN_RETURN_IF_ERROR(CheckIds(ids));
  if (has_encoder() && cache_->CrossLengthOf(sequence_) == 0) {
    return UsageError(
        "the decoder attends to its encoder's output, and there is none; fix: Encode");
  }
  const int64_t total = length() + static_cast<int64_t>(ids.size());
  if (total > plan_->max_seq_len) {
    return DoesNotFit(fmt::format(
        "{} tokens and {} before them, the context holds {}; fix: --max-seq-len, or a shorter text",
        ids.size(), length(), plan_->max_seq_len));
  }
  if (!has_encoder() || history_.empty()) {
    for (auto it = tap_rows_.begin(); it != tap_rows_.end();) {
      it = it->first.starts_with("enc_") ? std::next(it) : tap_rows_.erase(it);
    }
  }
  logits_.clear();
  if (UpdateRopes(total)) {
    // The cached keys were rotated otherwise: run the whole sequence again.
    const std::vector<int32_t> past = history_;
    TN_RETURN_IF_ERROR(Reset());
    UpdateRopes(total);
    TN_RETURN_IF_ERROR(RunStep(past, /*encode=*/false, WantLogits::kNone));
  }
  return RunStep(ids, /*encode=*/false, want);
}

Status ModelRunner::RunStep(std::span<const int32_t> ids, bool encode, WantLogits want) {
  const auto chunk = encode ? ids.size() : static_cast<size_t>(plan_->prefill_rows());
  for (size_t begin = 0; begin < ids.size(); begin += chunk) {
    const std::span<const int32_t> part = ids.subspan(begin, std::min(chunk, ids.size() - begin));
    const auto rows = static_cast<int64_t>(part.size());
    const int64_t before = encode ? 0 : length();
    const bool last = begin + chunk >= ids.size();
    const int64_t logit_rows = want == WantLogits::kAll ? rows : 1;
    if (!encode) TN_RETURN_IF_ERROR(cache_->Append(sequence_, rows));
    // A single row runs as a decode step whatever came before it, except as the very first.
    const bool decode = !encode && rows == 1 && before > 0;
    std::copy(part.begin(), part.end(), shape_.token_ids());
    for (int64_t i = 0; i < rows; ++i) shape_.positions()[i] = static_cast<int32_t>(before + i);
    for (int64_t i = 0; i < logit_rows; ++i) {
      shape_.logit_rows()[i] = static_cast<int32_t>(rows - logit_rows + i);
    }
    shape_.SetState(sequence_, before == 0);
    shape_.Set(decode ? RequestPhase::kDecode : RequestPhase::kPrefill, rows, logit_rows,
               before + rows, cache_->CrossLengthOf(sequence_));
    StepKey key{encode, decode ? RequestPhase::kDecode : RequestPhase::kPrefill,
                rows,   logit_rows,
                0,      taps_};
    const int64_t context_chunk = plan_->context->options.mla_context_chunk;
    if (!decode) key.mla_chunks = (before + context_chunk - 1) / context_chunk;
    TN_ASSIGN_OR_RETURN(RecordedStep * step, StepFor(key));
    step_plans_.Prepare(shape_.layout());
    step->tape->Run(team_);
    ++step->runs;
    if (taps_) CollectTaps(*step->tape);
    if (encode) continue;
    history_.insert(history_.end(), part.begin(), part.end());
    if (want == WantLogits::kAll || (want == WantLogits::kLast && last)) {
      const auto* row = step->tape->ViewOf(step->logits).as<float>();
      logits_.insert(logits_.end(), row, row + logit_rows * output_width());
    }
  }
  return {};
}

Result<ModelRunner::RecordedStep*> ModelRunner::StepFor(const StepKey& key) {
  auto it = steps_.find(key);
  if (it == steps_.end()) {
    if (steps_.size() >= kMaxSteps) {
      const auto victim = std::find_if(steps_.begin(), steps_.end(), [](const auto& step) {
        return step.first.phase != RequestPhase::kDecode;
      });
      if (victim != steps_.end()) {
        AddDispatches(victim->second, dropped_);
        steps_.erase(victim);
      }
    }
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

Status ModelRunner::BindStep(RecordedStep& step) {
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

void ModelRunner::AddDispatches(const RecordedStep& step, std::map<std::string, int64_t>& counts) {
  for (const Tape::Record& record : step.tape->records()) counts[record.kernel] += step.runs;
}

std::map<std::string, int64_t> ModelRunner::dispatched() const {
  std::map<std::string, int64_t> counts = dropped_;
  for (const auto& [key, step] : steps_) AddDispatches(step, counts);
  return counts;
}

void ModelRunner::Profile() {
  profiles_ = true;
  for (auto& [key, step] : steps_) step.tape->Profile();
}

std::string ModelRunner::NameOf(const StepKey& key) {
  if (key.phase == RequestPhase::kDecode) return "decode";
  return fmt::format("{} {}", key.encode ? "encode" : "prefill", key.num_tokens);
}

std::vector<ModelRunner::TraceSpan> ModelRunner::trace() const {
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

std::vector<ModelRunner::ProfileRow> ModelRunner::profile() const {
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

void ModelRunner::CollectTaps(const Tape& tape) {
  for (const Tape::Kept& kept : tape.kept()) {
    if (kept.name == "logits") continue;
    const TensorView view = tape.ViewOf(kept.value);
    TapRows& tap = tap_rows_[kept.name];
    tap.width = view.dim(-1);
    const auto* data = view.as<float>();
    tap.rows.insert(tap.rows.end(), data, data + view.shape().elements());
  }
}

}  // namespace tenon
