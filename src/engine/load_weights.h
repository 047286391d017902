// Brings the weights of a planned model into memory, in the order in which a step reads them: each
// tensor is mapped (or copied, where a transform asks for it), those held packed are packed by the
// whole team while the system reads the next ones' files, and their pages are given back as it
// goes. One thread.
#pragma once

#include "tenon/base/thread_team.h"
#include "tenon/plan/plan.h"
#include "tenon/tensor/buffer.h"

namespace tenon {

// The memory of the packed weights, which the model's parameters now read; empty when none is.
Result<Buffer> LoadWeights(PlannedModel& plan, ThreadTeam& team);

}  // namespace tenon
