// Messages for the person at the terminal: to stderr, by level. Not for decisions (ledger.h) or
// results. The library prints nowhere else. Thread-safe. TENON_LOG sets the level: debug | info |
// warning | error | off.
#pragma once

#include <string>

namespace tenon {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

void SetLogLevel(LogLevel level);
void Log(LogLevel level, const std::string& message);

}  // namespace tenon
