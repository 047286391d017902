// The phases of the plan's line, in order; each works on what the ones before left in the
// PlannedModel and collects all of its errors. Private to the plan layer. Not thread-safe.
#pragma once

#include "tenon/plan/plan.h"

namespace tenon {

// Container -> reader -> typed config; then what the checkpoint's authors wish for generation.
Status ReadModelConfig(PlannedModel& plan);
// Options and machine -> what construction reads; the tensor index with the family's names.
Status PrepareContext(PlannedModel& plan);
// Module shells, attention choices, parameters, all on meta; tensors that nothing uses.
Status Construct(PlannedModel& plan);
// Context length, cache, recorded steps and the memory ledger, such that all of it fits.
Status SizeMemory(PlannedModel& plan);

}  // namespace tenon
