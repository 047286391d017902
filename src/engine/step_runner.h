// StepRunner: a planned model brought to life: weights loaded, cache allocated, steps recorded once
// per shape and run on the thread team. A step has rows of any number of sequences; whose and how
// many is decided above (ModelRunner: one sequence; BatchEngine: many). Not thread-safe: one
// caller, whose thread is a member of the team.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tenon/base/thread_team.h"
#include "tenon/cache/cache_manager.h"
#include "tenon/plan/plan.h"
#include "tenon/plan/step_shape.h"

namespace tenon {

// One sequence's rows of a step.
struct StepPart {
  int32_t sequence = 0;  // of the cache, which has room for the rows (Append)
  RequestPhase phase = RequestPhase::kPrefill;
  std::span<const int32_t> ids;  // valid ones
  int64_t before = 0;            // rows of the sequence that came earlier
  int64_t logit_rows = 0;        // the last so many rows' logits are wanted
  int64_t regime = 0;            // row of the ropes' frequency tables
};

class StepRunner {
 public:
  // Reads the weights. Errors name the tensor.
  static Result<std::unique_ptr<StepRunner>> Load(std::unique_ptr<PlannedModel> plan);

  const PlannedModel& plan() const { return *plan_; }
  CacheManager& cache() { return *cache_; }
  int64_t vocab() const { return plan_->config->vocab.value; }
  // Of a row of logits: the vocabulary, or hidden where a base model has no head.
  int64_t output_width() const {
    return plan_->context->has_logits ? vocab() : plan_->config->hidden.value;
  }
  // kUsage: an id outside the vocabulary.
  Status CheckIds(std::span<const int32_t> ids) const;
  // Rows that one step may have.
  int64_t most_rows() const { return plan_->prefill_rows(); }

  // One step over all parts, in the order of their phases. -> the wanted logits, part after part:
  // [sum of logit_rows, output_width], until the next run. No ids are checked.
  Result<std::span<const float>> Run(std::span<const StepPart> parts);
  // Encoder-decoder: one step of the encoder, into the sequence's cross cache (SetCross).
  Status Encode(int32_t sequence, std::span<const int32_t> ids);

  // Whether steps keep what the model names as taps ("embed", "hidden.0").
  void set_taps(bool on) { taps_ = on; }
  bool taps() const { return taps_; }
  // After Run or Encode: its tape, whose kept values may be read.
  const Tape& last_tape() const { return *last_tape_; }

  // How often each kernel ran: what the plan said is what runs.
  std::map<std::string, int64_t> dispatched() const;

  // From now on steps are measured record by record, on the calling thread.
  void Profile();
  // One line per op and kernel of one kind of step, the most expensive first.
  struct ProfileRow {
    std::string step;  // "prefill 512", "decode"
    std::string op;
    std::string kernel;
    int64_t runs = 0;  // of the step
    int64_t records = 0;
    double work_seconds = 0;
    double wait_seconds = 0;  // for other threads, before the record
  };
  std::vector<ProfileRow> profile() const;
  // The last run of each kind of step, record by record on every thread that took part.
  struct TraceSpan {
    std::string step;
    std::string_view op;
    std::string_view kernel;
    std::string_view scope;  // path of the module
    int thread = 0;
    int64_t begin_ns = 0, end_ns = 0;  // steady clock
  };
  std::vector<TraceSpan> trace() const;

 private:
  // What a recorded step depends on.
  struct StepKey {
    bool encode = false;
    bool prefill = false;
    bool decode = false;
    bool single = false;  // one request without padding
    int64_t num_tokens = 0;
    int64_t num_logit_rows = 0;
    int64_t mla_chunks = 0;
    bool taps = false;
    auto operator<=>(const StepKey&) const = default;
  };
  static std::string NameOf(const StepKey& key);
  struct RecordedStep {
    std::unique_ptr<Tape> tape;
    Value logits;
    int64_t runs = 0;
    uint64_t last_run = 0;  // in the order of all runs
    uint64_t bound_to = 0;  // which arena
  };

  explicit StepRunner(std::unique_ptr<PlannedModel> plan);
  void AddPart(const StepPart& part);
  // Of the layout at hand.
  StepKey KeyOf(std::span<const StepPart> parts, bool encode) const;
  void PadStep(std::span<const StepPart> parts);
  Result<RecordedStep*> RunStep(const StepKey& key);
  Result<RecordedStep*> StepFor(const StepKey& key);
  void DropOldest();
  Status BindStep(RecordedStep& step);
  static void AddDispatches(const RecordedStep& step, std::map<std::string, int64_t>& counts);

  std::unique_ptr<PlannedModel> plan_;
  std::unique_ptr<CacheManager> cache_;
  ThreadTeam team_;
  StepShape shape_;
  StepPlans step_plans_;
  std::map<StepKey, RecordedStep> steps_;
  const Tape* last_tape_ = nullptr;
  uint64_t runs_ = 0;
  Buffer packed_weights_;
  Buffer arena_;
  Buffer scratch_;
  uint64_t arena_generation_ = 0;
  bool taps_ = false;
  bool profiles_ = false;
  std::map<std::string, int64_t> dropped_;  // dispatches of recorded steps that are gone
};

}  // namespace tenon
