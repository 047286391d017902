// The clock that strftime_now() shows: parsing of an ISO 8601 time, the system's local time, and
// strftime with the directives of the C locale. Independent of the process' locale. Pure functions
// but for SystemClock; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "tenon/base/status.h"

namespace tenon::jinja {

// A time of day without a zone, as Python's datetime.now(). Fields are in range.
struct ClockTime {
  int year = 1970;
  int month = 1;  // 1..12
  int day = 1;    // 1..31
  int hour = 0;
  int minute = 0;
  int second = 0;
  int microsecond = 0;
};

// "2026-03-05T14:07:09", "2026-03-05 14:07", "2026-03-05", with an optional fraction; a zone at the
// end is read and ignored.
Result<ClockTime> ParseClock(std::string_view text);
ClockTime SystemClock();
// An unknown directive stays as it is written.
std::string FormatTime(std::string_view format, const ClockTime& time);

}  // namespace tenon::jinja
