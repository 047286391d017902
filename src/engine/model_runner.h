// ModelRunner: one sequence on a StepRunner: tokens in, logits out, in steps of at most the planned
// chunk. Not for many sequences at a time (batch_engine.h). Not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tenon/engine/step_runner.h"

namespace tenon {

// Which rows' logits a call wants.
enum class WantLogits { kNone, kLast, kAll };

class ModelRunner {
 public:
  // Reads the weights. Errors name the tensor.
  static Result<std::unique_ptr<ModelRunner>> Load(std::unique_ptr<PlannedModel> plan);

  const PlannedModel& plan() const { return steps_->plan(); }
  // For what is said of all steps: profiles, dispatches.
  StepRunner& steps() { return *steps_; }
  const StepRunner& steps() const { return *steps_; }
  int64_t vocab() const { return steps_->vocab(); }
  int64_t output_width() const { return steps_->output_width(); }
  bool has_encoder() const { return plan().kind() == ModelKind::kEncoderDecoder; }

  // Forgets the sequence, which then takes no place in the cache: the next Extend starts at
  // position 0.
  void Reset();
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
  void set_taps(bool on) { steps_->set_taps(on); }
  struct TapRows {
    int64_t width = 0;
    std::vector<float> rows;
  };
  const std::map<std::string, TapRows>& taps() const { return tap_rows_; }

 private:
  explicit ModelRunner(std::unique_ptr<StepRunner> steps) : steps_(std::move(steps)) {}
  Status Admit();
  Status ExtendSteps(std::span<const int32_t> ids, WantLogits want);
  void CollectTaps();
  // Ropes whose frequencies depend on the length: true when the cached rows no longer fit them.
  bool UpdateRopes(int64_t new_length);

  std::unique_ptr<StepRunner> steps_;
  int32_t sequence_ = -1;           // of the cache; -1: none yet
  std::vector<int32_t> history_;    // tokens of the sequence
  std::vector<int64_t> rope_keys_;  // of each rope, for the cached rows
  std::vector<float> logits_;
  std::map<std::string, TapRows> tap_rows_;
};

}  // namespace tenon
