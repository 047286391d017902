// What `tenon explain` shows of a planned model: one report as JSON (stable, "schema": 1) and as
// text. Pure functions of the plan; thread-safe.
#pragma once

#include <string>

#include "tenon/plan/plan.h"

namespace tenon {

Json ReportJson(const PlannedModel& plan);
std::string ReportText(const PlannedModel& plan);

}  // namespace tenon
