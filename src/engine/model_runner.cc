#include "tenon/engine/model_runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/modules/rope_table.h"

namespace tenon {

Result<std::unique_ptr<ModelRunner>> ModelRunner::Load(std::unique_ptr<PlannedModel> plan) {
  TN_ASSIGN_OR_RETURN(auto steps, StepRunner::Load(std::move(plan)));
  std::unique_ptr<ModelRunner> runner(new ModelRunner(std::move(steps)));
  runner->history_.reserve(static_cast<size_t>(runner->plan().max_seq_len));
  return runner;
}

void ModelRunner::Reset() {
  if (sequence_ >= 0) steps_->cache().Free(sequence_);
  sequence_ = -1;
  history_.clear();
  rope_keys_.clear();
}

Status ModelRunner::Admit() {
  if (sequence_ >= 0) return {};
  TN_ASSIGN_OR_RETURN(sequence_, steps_->cache().Admit());
  return {};
}

Status ModelRunner::Encode(std::span<const int32_t> ids) {
  TN_CHECK(has_encoder(), "only encoder-decoder models encode");
  if (ids.empty()) return UsageError("the encoder needs at least one token");
  TN_RETURN_IF_ERROR(steps_->CheckIds(ids));
  if (static_cast<int64_t>(ids.size()) > plan().max_seq_len) {
    return DoesNotFit(
        fmt::format("{} encoder tokens, the context holds {}", ids.size(), plan().max_seq_len));
  }
  tap_rows_.clear();
  TN_RETURN_IF_ERROR(Admit());
  TN_RETURN_IF_ERROR(steps_->cache().SetCross(sequence_, static_cast<int64_t>(ids.size())));
  TN_RETURN_IF_ERROR(steps_->Encode(sequence_, ids));
  CollectTaps();
  return {};
}

bool ModelRunner::UpdateRopes(int64_t new_length) {
  const std::vector<RopeTable*>& ropes = plan().context->ropes;
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
  TN_RETURN_IF_ERROR(steps_->CheckIds(ids));
  TN_RETURN_IF_ERROR(Admit());
  if (has_encoder() && steps_->cache().CrossLengthOf(sequence_) == 0) {
    return UsageError(
        "the decoder attends to its encoder's output, and there is none; fix: Encode");
  }
  const int64_t total = length() + static_cast<int64_t>(ids.size());
  if (total > plan().max_seq_len) {
    return DoesNotFit(fmt::format(
        "{} tokens and {} before them, the context holds {}; fix: --max-seq-len, or a shorter text",
        ids.size(), length(), plan().max_seq_len));
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
    Reset();
    TN_RETURN_IF_ERROR(Admit());
    UpdateRopes(total);
    TN_RETURN_IF_ERROR(ExtendSteps(past, WantLogits::kNone));
  }
  return ExtendSteps(ids, want);
}

Status ModelRunner::ExtendSteps(std::span<const int32_t> ids, WantLogits want) {
  const auto chunk = static_cast<size_t>(steps_->most_rows());
  for (size_t begin = 0; begin < ids.size(); begin += chunk) {
    const std::span<const int32_t> part = ids.subspan(begin, std::min(chunk, ids.size() - begin));
    const auto rows = static_cast<int64_t>(part.size());
    const bool last = begin + chunk >= ids.size();
    const bool wanted = want == WantLogits::kAll || (want == WantLogits::kLast && last);
    TN_RETURN_IF_ERROR(steps_->cache().Append(sequence_, rows));
    // A single row runs as a decode step whatever came before it, except as the very first.
    const bool decode = rows == 1 && length() > 0;
    const StepPart step{
        .sequence = sequence_,
        .phase = decode ? RequestPhase::kDecode : RequestPhase::kPrefill,
        .ids = part,
        .before = length(),
        .logit_rows = wanted ? (want == WantLogits::kAll ? rows : 1) : 0,
    };
    TN_ASSIGN_OR_RETURN(const std::span<const float> logits, steps_->Run(std::span(&step, 1)));
    CollectTaps();
    history_.insert(history_.end(), part.begin(), part.end());
    logits_.insert(logits_.end(), logits.begin(), logits.end());
  }
  return {};
}

void ModelRunner::CollectTaps() {
  if (!steps_->taps()) return;
  const Tape& tape = steps_->last_tape();
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
