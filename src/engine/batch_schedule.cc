// Which rows the next step of a BatchEngine has.
#include <algorithm>

#include "tenon/engine/batch_engine.h"
#include "tenon/engine/batch_lines.h"
#include "tenon/modules/rope_table.h"

namespace tenon {
namespace {

// The length by which a rope's frequencies are chosen. Dynamic ones stay as they were at admission,
// also when the sequence is computed again; others follow the sequence.
int64_t LengthFor(const RopeTable& rope, int64_t prompt, int64_t length) {
  return rope.FixedAtAdmission() ? prompt : length;
}

}  // namespace

uint64_t BatchEngine::RegimeFor(const Line& line) const {
  uint64_t regime = 0;
  for (const RopeTable* rope : steps_.plan().context->ropes) {
    const auto prompt = static_cast<int64_t>(line.job.request.prompt.size());
    const auto key = static_cast<uint64_t>(rope->KeyOf(LengthFor(*rope, prompt, line.length())));
    regime = regime * 0x9E3779B97F4A7C15ull + key;
  }
  return regime;
}

void BatchEngine::SetRegimes(const Line& line) {
  for (RopeTable* rope : steps_.plan().context->ropes) {
    const auto prompt = static_cast<int64_t>(line.job.request.prompt.size());
    if (rope->DependsOnLength())
      rope->SetRegime(line.sequence, LengthFor(*rope, prompt, line.length()));
  }
}

std::vector<BatchEngine::Planned> BatchEngine::PlanStep() {
  std::vector<Planned> step;
  PlanDecodes(step);
  PlanPrompts(step);
  return step;
}

void BatchEngine::PlanDecodes(std::vector<Planned>& step) {
  std::vector<Line*> lines;
  for (const auto& line : running_) {
    if (line->decodes()) lines.push_back(line.get());
  }
  for (Line* line : lines) {
    if (line->sequence < 0) continue;  // it has made room for another
    if (RegimeFor(*line) != line->regime) {
      // Its cached keys were rotated otherwise: it is computed again, at once if there is room.
      cache_.Free(line->sequence);
      line->sequence = -1;
      Requeue(*line);
      continue;
    }
    if (MakeRoom(*line, 1, step))
      step.push_back({.line = line, .rows = 1, .decode = true, .logit_rows = 1});
  }
}

void BatchEngine::PlanPrompts(std::vector<Planned>& step) {
  const auto rows_left = [&] {
    int64_t rows = options_.step_rows;
    for (const Planned& p : step) rows -= p.rows;
    return rows;
  };
  std::vector<Line*> lines;
  for (const auto& line : running_) {
    if (!line->decodes()) lines.push_back(line.get());
  }
  for (Line* line : lines) {
    if (line->sequence >= 0 && rows_left() > 0) PlanPrompt(*line, rows_left(), step);
  }
  while (rows_left() > 0 && !waiting_.empty() && Admit(*waiting_.front())) {
    if (!PlanPrompt(*running_.back(), rows_left(), step)) break;
  }
}

bool BatchEngine::PlanPrompt(Line& line, int64_t rows_left, std::vector<Planned>& step) {
  const int64_t rows = std::min(rows_left, line.length() - line.computed);
  if (!MakeRoom(line, rows, step)) return false;
  Planned planned{.line = &line, .rows = rows};
  planned.logit_rows = line.computed + rows == line.length() ? 1 : 0;
  if (line.job.request.keep_logits == KeepLogits::kAll) planned.logit_rows = rows;
  step.push_back(planned);
  return true;
}

// Room in the cache for the line's next rows; the lines that came last give theirs. false: it was
// the last itself and waits again, or ended, because it fills the cache alone.
bool BatchEngine::MakeRoom(Line& line, int64_t rows, std::vector<Planned>& step) {
  while (!cache_.Append(line.sequence, rows).ok()) {
    Line& last = *running_.back();
    if (running_.size() > 1) {
      const bool is_own = &last == &line;
      Preempt(last, step);
      if (is_own) return false;
      continue;
    }
    if (line.answer().ids.empty()) {
      Fail(line.job, cache_.Append(line.sequence, rows));
    } else {
      Finish(line, FinishReason::kContextFull);
    }
    return false;
  }
  return true;
}

void BatchEngine::Preempt(Line& line, std::vector<Planned>& step) {
  std::erase_if(step, [&](const Planned& p) { return p.line == &line; });
  const auto computed = std::span(line.tokens).first(static_cast<size_t>(line.computed));
  if (reuses()) {
    cache_.Preempt(line.sequence, computed);
  } else {
    cache_.Free(line.sequence);
  }
  line.sequence = -1;
  ++line.job.result.preemptions;
  ++stats_.preemptions;
  Requeue(line);
}

// Before all that have not begun.
void BatchEngine::Requeue(Line& line) {
  line.computed = 0;
  const auto at = std::find_if(running_.begin(), running_.end(),
                               [&](const auto& running) { return running.get() == &line; });
  waiting_.push_front(std::move(*at));
  running_.erase(at);
}

int64_t BatchEngine::LinesToCome() const {
  int64_t lines = 0;
  for (const auto& line : running_) {
    if (!line->job.forked) lines += line->job.request.copies - 1;
  }
  return lines;
}

bool BatchEngine::Admit(Line& line) {
  const int64_t copies = line.job.forked ? 1 : line.job.request.copies;
  const auto running = static_cast<int64_t>(running_.size());
  if (running + LinesToCome() + copies > most_lines()) return false;
  // Beside others, only what fits whole begins: it would have to make room for them soon.
  if (running > 0 && !cache_.HasRoomFor(line.length())) return false;
  line.regime = RegimeFor(line);
  const PrefixKey key{.salt = line.job.request.salt, .regime = line.regime};
  const bool all_logits = line.job.request.keep_logits == KeepLogits::kAll && line.kept == 0;
  const bool reuse = reuses() && !all_logits;
  const Result<Admission> admission = reuse
                                          ? cache_.AdmitWithPrefix(line.tokens, key)
                                          : cache_.AdmitWithPrefix(line.tokens, key, line.length());
  if (!admission.ok()) return false;
  line.sequence = admission->sequence;
  line.computed = admission->reused_rows;
  if (line.job.result.preemptions == 0) line.job.result.reused_tokens = admission->reused_rows;
  stats_.reused_tokens += admission->reused_rows;
  SetRegimes(line);
  running_.push_back(std::move(waiting_.front()));
  waiting_.pop_front();
  return true;
}

}  // namespace tenon
