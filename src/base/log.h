// Messages for the person at the terminal: to stderr, by level. Not for decisions (ledger.h) or
// results. The library prints nowhere else. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "tenon/base/status.h"

namespace tenon {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// "warning": any case; kUsage for no such level.
Result<LogLevel> ParseLogLevel(std::string_view name);
void SetLogLevel(LogLevel level);
void Log(LogLevel level, const std::string& message);

}  // namespace tenon
