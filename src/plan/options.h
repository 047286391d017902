// The option table as this build allows it: the rows of the config layer with the values that other
// layers know (attention backends). What every command resolves its options with before PlanModel.
// Pure; thread-safe.
#pragma once

#include "tenon/config/option_table.h"

namespace tenon {

OptionTable EngineOptionTable();

}  // namespace tenon
