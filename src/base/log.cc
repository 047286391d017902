#include "tenon/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "tenon/base/text.h"

namespace tenon {
namespace {

spdlog::level::level_enum LibraryLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::warn;
}

// One of the documented globals: the process's stderr has one writer.
spdlog::logger& Logger() {
  static const auto logger = [] {
    auto made = std::make_shared<spdlog::logger>(
        "tenon", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("tenon: %l: %v");
    made->set_level(spdlog::level::warn);
    return made;
  }();
  return *logger;
}

}  // namespace

Result<LogLevel> ParseLogLevel(std::string_view name) {
  constexpr std::pair<std::string_view, LogLevel> kLevels[] = {{"debug", LogLevel::kDebug},
                                                               {"info", LogLevel::kInfo},
                                                               {"warning", LogLevel::kWarning},
                                                               {"error", LogLevel::kError},
                                                               {"off", LogLevel::kOff}};
  for (const auto& [text, level] : kLevels) {
    if (EqualsIgnoreCase(text, name)) return level;
  }
  return UsageError("log = '" + std::string(name) + "', allowed: debug, info, warning, error, off");
}

void SetLogLevel(LogLevel level) { Logger().set_level(LibraryLevel(level)); }

void Log(LogLevel level, const std::string& message) {
  Logger().log(LibraryLevel(level), "{}", message);
}

}  // namespace tenon
