#include "tenon/engine/batch_engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/engine/batch_lines.h"
#include "tenon/modules/rope_table.h"

namespace tenon {

BatchEngine::BatchEngine(StepRunner& steps, const BatchOptions& options)
    : steps_(steps), cache_(steps.cache()), options_(options) {
  if (options_.step_rows == 0) options_.step_rows = steps.most_rows();
  options_.step_rows = std::min(options_.step_rows, steps.most_rows());
}

BatchEngine::~BatchEngine() {
  for (const auto& line : running_) {
    if (line->sequence >= 0) cache_.Free(line->sequence);
  }
}

Result<std::unique_ptr<BatchEngine>> BatchEngine::Create(StepRunner& steps,
                                                         const BatchOptions& options) {
  const PlannedModel& plan = steps.plan();
  if (plan.kind() != ModelKind::kCausalLm || !plan.context->has_logits) {
    return UsageError(fmt::format("{}: kind = {}, batches need a causal language model with a head",
                                  plan.checkpoint->path(), NameOf(plan.kind())));
  }
  if (options.step_rows < 0) {
    return UsageError(fmt::format("rows of a step = {}, allowed: 1 and more, 0 for the plan's",
                                  options.step_rows));
  }
  const bool by_length = std::any_of(plan.context->ropes.begin(), plan.context->ropes.end(),
                                     [](const RopeTable* rope) { return rope->DependsOnLength(); });
  if (by_length && plan.sizing.max_sequences > RopeTable::kRegimes) {
    return UsageError(fmt::format(
        "max-sequences = {} (set by {}), but the rope's frequencies depend on each sequence's "
        "length, for which there are {} rows; fix: --max-sequences {}",
        plan.sizing.max_sequences, plan.options.max_sequences.origin.Text(), RopeTable::kRegimes,
        RopeTable::kRegimes));
  }
  return std::unique_ptr<BatchEngine>(new BatchEngine(steps, options));
}

bool BatchEngine::reuses() const {
  return options_.reuse_prefixes && steps_.plan().sizing.prefix_reuse;
}

int64_t BatchEngine::most_lines() const {
  return std::min(steps_.plan().sizing.max_sequences, options_.step_rows);
}

Result<int64_t> BatchEngine::Submit(BatchRequest request) {
  if (request.prompt.empty()) return UsageError("the prompt has no tokens; at least one is needed");
  TN_RETURN_IF_ERROR(steps_.CheckIds(request.prompt));
  TN_RETURN_IF_ERROR(CheckSampling(request.sampling));
  const auto refuse = [](const char* field, auto value, const char* allowed) {
    return UsageError(fmt::format("{} = {}, allowed: {}", field, value, allowed));
  };
  if (request.max_new_tokens < 1)
    return refuse("max_new_tokens", request.max_new_tokens, "1 and more");
  if (!(request.repetition_penalty > 0))
    return refuse("repetition_penalty", request.repetition_penalty, "above 0");
  if (request.copies < 1) return refuse("copies", request.copies, "1 and more");
  if (request.copies > most_lines()) {
    return DoesNotFit(
        fmt::format("copies = {}, but {} sequences are computed at a time; fix: "
                    "fewer copies, or --max-sequences {}",
                    request.copies, most_lines(), request.copies));
  }
  const auto length = static_cast<int64_t>(request.prompt.size());
  if (length > steps_.plan().max_seq_len) {
    return DoesNotFit(fmt::format(
        "the prompt has {} tokens, the context holds {}; fix: --max-seq-len, or a shorter text",
        length, steps_.plan().max_seq_len));
  }
  auto job = std::make_unique<Job>();
  job->result.id = next_id_++;
  job->result.prompt_tokens = length;
  job->result.answers.resize(static_cast<size_t>(request.copies));
  job->open = request.copies;
  job->forked = request.copies == 1;
  job->request = std::move(request);
  waiting_.push_back(std::make_unique<Line>(*job, 0, steps_.vocab()));
  jobs_.push_back(std::move(job));
  return jobs_.back()->result.id;
}

bool BatchEngine::Cancel(int64_t id) {
  const auto job =
      std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& j) { return j->result.id == id; });
  if (job == jobs_.end()) return false;
  if (!(*job)->forked) {
    for (BatchAnswer& answer : (*job)->result.answers) answer.reason = FinishReason::kCancelled;
  }
  const auto end = [&](const std::unique_ptr<Line>& line) {
    if (&line->job == job->get() && !line->ended) Finish(*line, FinishReason::kCancelled);
  };
  std::for_each(running_.begin(), running_.end(), end);
  std::for_each(waiting_.begin(), waiting_.end(), end);
  (*job)->open = 0;  // copies that did not exist yet included
  DropEnded();
  CompleteJobs();
  return true;
}

std::vector<BatchResult> BatchEngine::TakeFinished() { return std::exchange(finished_, {}); }

Status BatchEngine::Run() {
  for (;;) {
    TN_ASSIGN_OR_RETURN(const bool more, Step());
    if (!more) return {};
  }
}

Result<bool> BatchEngine::Step() {
  std::vector<Planned> step = PlanStep();
  if (step.empty()) {
    if (running_.empty() && waiting_.empty()) return false;
    TN_CHECK(running_.empty(), "what runs can go on, or has made room");
    const Line& line = *waiting_.front();
    Fail(line.job, DoesNotFit(fmt::format("{} tokens do not fit into an empty cache of {} tokens; "
                                          "fix: --kv-tokens, or a shorter text",
                                          line.length(), steps_.plan().sizing.tokens)));
    DropEnded();
    CompleteJobs();
    return true;
  }
  std::stable_sort(step.begin(), step.end(),
                   [](const Planned& a, const Planned& b) { return a.decode < b.decode; });
  std::vector<StepPart> parts;
  for (const Planned& p : step) {
    const Line& line = *p.line;
    parts.push_back(
        {.sequence = line.sequence,
         .phase = p.decode ? RequestPhase::kDecode : RequestPhase::kPrefill,
         .ids = std::span(line.tokens)
                    .subspan(static_cast<size_t>(line.computed), static_cast<size_t>(p.rows)),
         .before = line.computed,
         .logit_rows = p.logit_rows,
         .regime = line.sequence < RopeTable::kRegimes ? line.sequence : 0});
    stats_.rows += p.rows;
  }
  TN_ASSIGN_OR_RETURN(std::span<const float> logits, steps_.Run(parts));
  ++stats_.steps;
  stats_.mixed_steps += !step.front().decode && step.back().decode ? 1 : 0;
  stats_.most_sequences = std::max(stats_.most_sequences, static_cast<int64_t>(step.size()));
  for (const Planned& p : step) {
    const auto count = static_cast<size_t>(p.logit_rows * steps_.output_width());
    Take(p, logits.first(count));
    logits = logits.subspan(count);
  }
  DropEnded();
  CompleteJobs();
  return true;
}

void BatchEngine::Take(const Planned& planned, std::span<const float> logits) {
  Line& line = *planned.line;
  if (line.ended) return;  // another copy failed
  const int64_t width = steps_.output_width();
  line.computed += planned.rows;
  if (reuses()) {
    cache_.Publish(line.sequence, std::span(line.tokens).first(static_cast<size_t>(line.computed)));
  }
  const int64_t first = line.computed - planned.logit_rows;
  if (line.job.request.keep_logits != KeepLogits::kNone) {
    // Rows that are computed again, after a preemption, are there already.
    for (int64_t row = std::max(first, line.kept); row < line.computed; ++row) {
      const auto at =
          logits.subspan(static_cast<size_t>((row - first) * width), static_cast<size_t>(width));
      line.answer().logits.insert(line.answer().logits.end(), at.begin(), at.end());
    }
  }
  line.kept = std::max(line.kept, line.computed);
  if (line.computed < line.length()) return;
  const std::span<const float> last = logits.last(static_cast<size_t>(width));
  if (!line.job.forked) Fork(line, last);
  if (!line.ended) Sample(line, last);
}

// The copies begin where the prompt ends.
void BatchEngine::Fork(Line& line, std::span<const float> logits) {
  Job& job = line.job;
  job.forked = true;
  for (int copy = 1; copy < job.request.copies; ++copy) {
    auto fork = std::make_unique<Line>(job, copy, steps_.vocab());
    const Result<int32_t> sequence = cache_.Fork(line.sequence);
    TN_CHECK(sequence.ok(), "sequences were set aside for the copies");
    fork->sequence = *sequence;
    fork->computed = line.computed;
    fork->kept = line.kept;
    fork->answer().logits = line.answer().logits;
    fork->regime = line.regime;
    SetRegimes(*fork);
    running_.push_back(std::move(fork));
    Sample(*running_.back(), logits);
    if (line.ended) return;
  }
}

void BatchEngine::Sample(Line& line, std::span<const float> logits) {
  const BatchRequest& request = line.job.request;
  const Result<int32_t> id = line.sampler.Sample(line.penalty.Apply(logits));
  if (!id.ok()) return Fail(line.job, id.status());
  line.penalty.See({&*id, 1});
  if (request.end_tokens.contains(*id)) return Finish(line, FinishReason::kEnd);
  line.answer().ids.push_back(*id);
  line.tokens.push_back(*id);
  if (static_cast<int64_t>(line.answer().ids.size()) == request.max_new_tokens)
    return Finish(line, FinishReason::kLength);
  if (line.computed >= steps_.plan().max_seq_len) Finish(line, FinishReason::kContextFull);
}

void BatchEngine::Finish(Line& line, FinishReason reason) {
  line.ended = true;
  line.answer().reason = reason;
  --line.job.open;
  if (line.sequence >= 0) cache_.Free(line.sequence);
  line.sequence = -1;
}

void BatchEngine::Fail(Job& job, Status status) {
  job.result.status = std::move(status);
  const auto end = [&](const std::unique_ptr<Line>& line) {
    if (&line->job == &job && !line->ended) Finish(*line, FinishReason::kCancelled);
  };
  std::for_each(running_.begin(), running_.end(), end);
  std::for_each(waiting_.begin(), waiting_.end(), end);
  job.open = 0;
}

void BatchEngine::DropEnded() {
  std::erase_if(running_, [](const auto& line) { return line->ended; });
  std::erase_if(waiting_, [](const auto& line) { return line->ended; });
}

void BatchEngine::CompleteJobs() {
  for (const auto& job : jobs_) {
    if (job->open == 0) finished_.push_back(std::move(job->result));
  }
  std::erase_if(jobs_, [](const auto& job) { return job->open == 0; });
}

}  // namespace tenon
