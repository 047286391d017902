// Forward: one recording of a model's step. Family code receives it and passes it on; it carries
// the tape, the layout's addresses and the backends' plans. Nothing is found through a hidden
// global. One thread.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "tenon/attention/backend.h"
#include "tenon/attention/step_layout.h"
#include "tenon/ops/tape.h"

namespace tenon {

class RopeTable;

// The backends' plans, one for each (backend, cache group): found while recording, refreshed before
// each run.
class PlanSet {
 public:
  virtual ~PlanSet() = default;
  virtual const StepPlan* Find(const AttentionBackend& backend, int group) = 0;
};

class Forward {
 public:
  // `layout` and what it points to keep their addresses as long as the tape lives.
  Forward(Tape& tape, const StepLayout& layout, PlanSet& plans)
      : tape_(tape), layout_(layout), plans_(plans) {}

  Tape& tape() { return tape_; }
  const StepLayout& layout() const { return layout_; }
  int64_t num_tokens() const { return layout_.num_tokens; }
  PlanSet& plans() { return plans_; }

  // Cached rows that a prefill must attend through MLA's expanded form, in chunks; part of the
  // tape's key.
  int64_t mla_context_rows = 0;

  // Taps: kept values by name ("embed", "hidden.0"), only when wanted.
  bool taps = false;
  void Tap(const std::string& name, const Value& value) {
    if (taps) tape_.Keep(value, name);
  }

  // One table of angles per rope and step.
  Value Angles(const RopeTable& rope);

 private:
  Tape& tape_;
  const StepLayout& layout_;
  PlanSet& plans_;
  std::map<const RopeTable*, Value> angles_;
};

}  // namespace tenon
