// BatchEngine: many sequences on one StepRunner. Each step takes the next token of every running
// sequence and, in what is left of its rows, parts of prompts, first come first served. Prefixes
// that the cache still holds are reused; when the cache is full, the sequence that came last makes
// room and is computed again later. Not a server: requests are ids, answers are ids, no text. Not
// thread-safe; Submit and Cancel between steps.
#pragma once

#include <deque>
#include <memory>
#include <set>
#include <vector>

#include "tenon/engine/generate.h"
#include "tenon/engine/repetition_penalty.h"
#include "tenon/engine/sampler.h"
#include "tenon/engine/step_runner.h"

namespace tenon {

struct BatchOptions {
  int64_t step_rows = 0;       // most rows of a step; 0: as many as planned (--prefill-chunk)
  bool reuse_prefixes = true;  // where the cache was planned for it
};

// Which logits an answer keeps.
enum class KeepLogits { kNone, kGenerated, kAll };  // kAll: the prompt's rows before those

struct BatchRequest {
  std::vector<int32_t> prompt;
  int64_t max_new_tokens = 16;  // at least 1
  SamplingOptions sampling;
  double repetition_penalty = 1;
  std::set<int32_t> end_tokens;
  int copies = 1;     // answers to the one prompt, computed once; answer i samples with seed + i
  uint64_t salt = 0;  // requests of different salts share no cached rows
  KeepLogits keep_logits = KeepLogits::kNone;
};

struct BatchAnswer {
  std::vector<int32_t> ids;  // the end token is not among them
  FinishReason reason = FinishReason::kLength;
  // [rows, vocab]: of each sampled token; kAll: first of each prompt token (of answer 0).
  std::vector<float> logits;
};

struct BatchResult {
  int64_t id = 0;
  Status status;  // why it ended early, if it did not fit or its logits were no numbers
  std::vector<BatchAnswer> answers;
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;  // of the prompt, at its first admission
  int64_t preemptions = 0;
};

struct BatchStats {
  int64_t steps = 0;
  int64_t rows = 0;         // computed, padding not counted
  int64_t mixed_steps = 0;  // prompts beside running sequences
  int64_t preemptions = 0;
  int64_t reused_tokens = 0;   // rows taken over from the cache, recomputations included
  int64_t most_sequences = 0;  // in one step
};

class BatchEngine {
 public:
  // The runner outlives the engine, which has its cache for itself. kUsage for models that are no
  // causal language models, for a negative number of rows.
  static Result<std::unique_ptr<BatchEngine>> Create(StepRunner& steps,
                                                     const BatchOptions& options = {});
  ~BatchEngine();

  // -> the request's id. kUsage for ids and options that cannot be, kDoesNotFit for a prompt longer
  // than the context or more copies than sequences.
  Result<int64_t> Submit(BatchRequest request);
  // Ends the request now with what it has; false: no such request is running or waiting.
  bool Cancel(int64_t id);

  // One step. false: there is nothing to do. Errors are of the engine; those of a request are in
  // its result.
  Result<bool> Step();
  // Steps until nothing is left.
  Status Run();

  // Those that have ended since the last call, in that order.
  std::vector<BatchResult> TakeFinished();
  const BatchStats& stats() const { return stats_; }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t running() const { return static_cast<int64_t>(running_.size()); }

 private:
  struct Job;
  struct Line;
  struct Planned;  // a line's part of a step

  BatchEngine(StepRunner& steps, const BatchOptions& options);
  bool reuses() const;
  int64_t most_lines() const;
  // Planning a step.
  std::vector<Planned> PlanStep();
  void PlanDecodes(std::vector<Planned>& step);
  void PlanPrompts(std::vector<Planned>& step);
  bool PlanPrompt(Line& line, int64_t rows_left, std::vector<Planned>& step);
  bool MakeRoom(Line& line, int64_t rows, std::vector<Planned>& step);
  bool Admit(Line& line);
  // Copies that running prompts will fork into.
  int64_t LinesToCome() const;
  void Preempt(Line& line, std::vector<Planned>& step);
  void Requeue(Line& line);
  // Ropes whose frequencies depend on the length.
  uint64_t RegimeFor(const Line& line) const;
  void SetRegimes(const Line& line);
  // After the step.
  void Take(const Planned& planned, std::span<const float> logits);
  void Fork(Line& line, std::span<const float> logits);
  void Sample(Line& line, std::span<const float> logits);
  void Finish(Line& line, FinishReason reason);
  void Fail(Job& job, Status status);
  void DropEnded();
  void CompleteJobs();

  StepRunner& steps_;
  CacheManager& cache_;
  BatchOptions options_;
  int64_t next_id_ = 1;
  std::vector<std::unique_ptr<Job>> jobs_;      // not yet complete
  std::deque<std::unique_ptr<Line>> waiting_;   // the next one first
  std::vector<std::unique_ptr<Line>> running_;  // in order of admission
  std::vector<BatchResult> finished_;
  BatchStats stats_;
};

}  // namespace tenon
