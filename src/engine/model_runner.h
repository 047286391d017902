// ModelRunner: a planned model brought to life: weights loaded, cache allocated, steps recorded
// once per shape and run on the thread team. One sequence for now. Not thread-safe: one caller,
// whose thread is a member of the team.
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

// Which rows' logits a call wants.
enum class WantLogits { kNone, kLast, kAll };

class ModelRunner {
 public:
  // Reads the weights. Errors name the tensor.
  static Result<std::unique_ptr<ModelRunner>> Load(std::unique_ptr<PlannedModel> plan);

  const PlannedModel& plan() const { return *plan_; }
  int64_t vocab() const { return plan_->config->vocab.value; }
  // Of a row of logits(): the vocabulary, or hidden where a base model has no head.
  int64_t output_width() const {
    return plan_->context->has_logits ? vocab() : plan_->config->hidden.value;
  }
  bool has_encoder() const { return plan_->kind() == ModelKind::kEncoderDecoder; }

  // Forgets the sequence: the next Extend starts at position 0.
  Status Reset();
  // Encoder-decoder: runs the encoder over the whole input and fills the cross caches. After Reset.
  Status Encode(std::span<const int32_t> ids);
  // Appends tokens in steps of at most the planned chunk; an encoder takes all at once. The wanted
  // logits are then in logits(). kUsage: an id outside the vocabulary; kDoesNotFit: longer than the
  // context.
  Status Extend(std::span<const int32_t> ids, WantLogits want);
  // [rows, output_width] of the last Extend: one row, or one per token.
  std::span<const float> logits() const { return logits_; }
  int64_t length() const { return static_cast<int64_t>(history_.size()); }

  // Taps of the last calls, when switched on: name -> [rows, width], rows of chunks joined.
  void set_taps(bool on) { taps_ = on; }
  struct TapRows {
    int64_t width = 0;
    std::vector<float> rows;
  };
  const std::map<std::string, TapRows>& taps() const { return tap_rows_; }

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
  struct StepKey {
    bool encode = false;
    RequestPhase phase = RequestPhase::kPrefill;
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
    uint64_t bound_to = 0;  // which arena
  };

  explicit ModelRunner(std::unique_ptr<PlannedModel> plan);
  Status CheckIds(std::span<const int32_t> ids) const;
  Status RunStep(std::span<const int32_t> ids, bool encode, WantLogits want);
  Result<RecordedStep*> StepFor(const StepKey& key);
  Status BindStep(RecordedStep& step);
  void CollectTaps(const Tape& tape);
  static void AddDispatches(const RecordedStep& step, std::map<std::string, int64_t>& counts);
  // Ropes whose frequencies depend on the length: true when the cached rows no longer fit them.
  bool UpdateRopes(int64_t new_length);

  std::unique_ptr<PlannedModel> plan_;
  std::unique_ptr<CacheManager> cache_;
  ThreadTeam team_;
  StepShape shape_;
  StepPlans step_plans_;
  std::map<StepKey, RecordedStep> steps_;
  Buffer packed_weights_;
  Buffer arena_;
  Buffer scratch_;
  uint64_t arena_generation_ = 0;

  int32_t sequence_ = -1;
  std::vector<int32_t> history_;    // tokens of the sequence
  std::vector<int64_t> rope_keys_;  // of each rope, for the cached rows
  std::vector<float> logits_;
  bool taps_ = false;
  std::map<std::string, TapRows> tap_rows_;
  bool profiles_ = false;
  std::map<std::string, int64_t> dropped_;  // dispatches of recorded steps that are gone
};

}  // namespace tenon
