#include "tenon/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "tenon/base/env.h"

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
    const std::string level = GetEnv("TENON_LOG").value_or("warning");
    made->set_level(spdlog::level::from_str(level));
    return made;
  }();
  return *logger;
}

}  // namespace

void SetLogLevel(LogLevel level) { Logger().set_level(LibraryLevel(level)); }

void Log(LogLevel level, const std::string& message) {
  Logger().log(LibraryLevel(level), "{}", message);
}

}  // namespace tenon
