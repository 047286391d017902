// The phases of the plan's line, in order; each works on what the ones before left in the
// PlannedModel and collects all of its errors. Private to the plan layer. Not thread-safe.
#pragma once

#include "tenon/plan/plan.h"

namespace tenon {

TargetMode TargetModeOf(const EngineOptions& options);

// What the checkpoint says it is -> the entry that serves it, and targets that may.
Status ResolveModel(const Identity& identity, Registry& registry, PlannedModel& plan);
// Container -> reader -> typed config; then what the checkpoint's authors wish for generation.
Status ReadModelConfig(PlannedModel& plan);
// Options and machine -> what construction reads; the tensor index with the family's names.
Status PrepareContext(PlannedModel& plan);
// What cached rows are held in, by option, checkpoint and compute: a part of PrepareContext.
Status ResolveKvDTypes(PlannedModel& plan);
// Layers of each kind that the option names are there. After BuildModel.
Status CheckKvKinds(const PlannedModel& plan);
// The first target whose criteria match, now that config, options and machine are known.
Status SelectTarget(PlannedModel& plan);
// The module shells alone, by the target or the family; again on real storage where a constructor
// computes with weights and the user consents.
Status BuildModel(PlannedModel& plan);
// Module shells, attention choices, parameters, all on meta; tensors that nothing uses.
Status Construct(PlannedModel& plan);
// Context length, cache, recorded steps and the memory ledger, such that all of it fits.
Status SizeMemory(PlannedModel& plan);

}  // namespace tenon
