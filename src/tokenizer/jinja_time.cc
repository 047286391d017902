#include "tenon/tokenizer/jinja_time.h"

#include <fmt/format.h>

#include <chrono>
#include <ctime>

namespace tenon::jinja {
namespace {

constexpr std::string_view kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                      "Thursday", "Friday", "Saturday"};
constexpr std::string_view kMonths[] = {"January",   "February", "March",    "April",
                                        "May",       "June",     "July",     "August",
                                        "September", "October",  "November", "December"};

bool IsLeap(int year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

int DaysInMonth(int year, int month) {
  constexpr int kDaysOf[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return month == 2 && IsLeap(year) ? 29 : kDaysOf[month - 1];
}

// Days since 1970-01-01 (proleptic Gregorian calendar).
int64_t DaysFromEpoch(int year, int month, int day) {
  const std::chrono::sys_days days = std::chrono::year(year) /
                                     std::chrono::month(static_cast<unsigned>(month)) /
                                     std::chrono::day(static_cast<unsigned>(day));
  return days.time_since_epoch().count();
}

struct Calendar {
  int weekday;      // Sunday = 0
  int day_of_year;  // 1 January = 1
  int iso_year;
  int iso_week;
};

int IsoWeeksIn(int year) {
  // 53 weeks where 1 January is a Thursday, or a Wednesday of a leap year.
  const auto first = static_cast<int>(((DaysFromEpoch(year, 1, 1) + 4) % 7 + 7) % 7);
  return first == 4 || (first == 3 && IsLeap(year)) ? 53 : 52;
}

Calendar CalendarOf(const ClockTime& t) {
  const int64_t days = DaysFromEpoch(t.year, t.month, t.day);
  Calendar calendar{};
  calendar.weekday = static_cast<int>(((days + 4) % 7 + 7) % 7);
  calendar.day_of_year = static_cast<int>(days - DaysFromEpoch(t.year, 1, 1)) + 1;
  const int iso_day = (calendar.weekday + 6) % 7 + 1;
  calendar.iso_year = t.year;
  calendar.iso_week = (calendar.day_of_year - iso_day + 10) / 7;
  if (calendar.iso_week < 1) {
    calendar.iso_year = t.year - 1;
    calendar.iso_week = IsoWeeksIn(t.year - 1);
  } else if (calendar.iso_week > IsoWeeksIn(t.year)) {
    calendar.iso_year = t.year + 1;
    calendar.iso_week = 1;
  }
  return calendar;
}

// The modifiers of glibc: how a number is padded, and upper case.
struct Modifier {
  char padding = 0;  // '-', '_', '0' or 0 = the directive's own
  bool upper = false;
};

std::string Number(int value, int width, char own_padding, const Modifier& modifier) {
  const char padding = modifier.padding != 0 ? modifier.padding : own_padding;
  if (padding == '-') return fmt::format("{}", value);
  return padding == '_' ? fmt::format("{:>{}}", value, width)
                        : fmt::format("{:0>{}}", value, width);
}

int Hour12(int hour) { return hour % 12 == 0 ? 12 : hour % 12; }

// Directives that stand for a combination of others.
std::string_view Composite(char directive) {
  switch (directive) {
    case 'D':
    case 'x':
      return "%m/%d/%y";
    case 'F':
      return "%Y-%m-%d";
    case 'T':
    case 'X':
      return "%H:%M:%S";
    case 'R':
      return "%H:%M";
    case 'r':
      return "%I:%M:%S %p";
    case 'c':
      return "%a %b %e %H:%M:%S %Y";
    default:
      return {};
  }
}

bool AppendName(char directive, const ClockTime& t, const Calendar& calendar, std::string& out) {
  const std::string_view day = kDays[calendar.weekday];
  const std::string_view month = kMonths[t.month - 1];
  switch (directive) {
    case 'a':
      out += day.substr(0, 3);
      return true;
    case 'A':
      out += day;
      return true;
    case 'b':
    case 'h':
      out += month.substr(0, 3);
      return true;
    case 'B':
      out += month;
      return true;
    case 'p':
      out += t.hour < 12 ? "AM" : "PM";
      return true;
    case 'P':
      out += t.hour < 12 ? "am" : "pm";
      return true;
    case 'n':
      out += '\n';
      return true;
    case 't':
      out += '\t';
      return true;
    case '%':
      out += '%';
      return true;
    case 'z':
    case 'Z':
      return true;  // a time without a zone
    default:
      return false;
  }
}

bool AppendNumber(char directive, const ClockTime& t, const Calendar& c, const Modifier& modifier,
                  std::string& out) {
  struct Row {
    char directive;
    int value;
    int width;
    char padding;
  };
  const int sunday_week = (c.day_of_year + 6 - c.weekday) / 7;
  const int monday_week = (c.day_of_year + 6 - (c.weekday + 6) % 7) / 7;
  const Row rows[] = {{'Y', t.year, 1, '-'},          {'y', t.year % 100, 2, '0'},
                      {'C', t.year / 100, 2, '0'},    {'m', t.month, 2, '0'},
                      {'d', t.day, 2, '0'},           {'e', t.day, 2, '_'},
                      {'H', t.hour, 2, '0'},          {'k', t.hour, 2, '_'},
                      {'I', Hour12(t.hour), 2, '0'},  {'l', Hour12(t.hour), 2, '_'},
                      {'M', t.minute, 2, '0'},        {'S', t.second, 2, '0'},
                      {'f', t.microsecond, 6, '0'},   {'j', c.day_of_year, 3, '0'},
                      {'w', c.weekday, 1, '-'},       {'u', (c.weekday + 6) % 7 + 1, 1, '-'},
                      {'U', sunday_week, 2, '0'},     {'W', monday_week, 2, '0'},
                      {'V', c.iso_week, 2, '0'},      {'G', c.iso_year, 1, '-'},
                      {'g', c.iso_year % 100, 2, '0'}};
  for (const Row& row : rows) {
    if (row.directive != directive) continue;
    out += Number(row.value, row.width, row.padding, modifier);
    return true;
  }
  return false;
}

void UpperAscii(std::string& text, size_t from) {
  for (size_t i = from; i < text.size(); ++i) {
    if (text[i] >= 'a' && text[i] <= 'z') text[i] = static_cast<char>(text[i] - 32);
  }
}

// Reads `count` digits at `at`, -1 when they are not there.
int ReadDigits(std::string_view text, size_t& at, int count) {
  int value = 0;
  for (int i = 0; i < count; ++i, ++at) {
    if (at >= text.size() || text[at] < '0' || text[at] > '9') return -1;
    value = value * 10 + (text[at] - '0');
  }
  return value;
}

bool Eat(std::string_view text, size_t& at, char wanted) {
  if (at >= text.size() || text[at] != wanted) return false;
  ++at;
  return true;
}

// "Z", "+02:00", "-0330" or nothing.
bool IsZone(std::string_view text) {
  if (text.empty() || text == "Z" || text == "z") return true;
  if (text[0] != '+' && text[0] != '-') return false;
  size_t at = 1;
  if (ReadDigits(text, at, 2) < 0) return false;
  if (at == text.size()) return true;
  Eat(text, at, ':');
  return ReadDigits(text, at, 2) >= 0 && at == text.size();
}

void ReadFraction(std::string_view text, size_t& at, ClockTime& time) {
  int scale = 100'000;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    time.microsecond += (text[at] - '0') * scale;
    scale /= 10;
  }
}

}  // namespace

Result<ClockTime> ParseClock(std::string_view text) {
  const Status error =
      UsageError(fmt::format("now = \"{}\" is no ISO 8601 time such as 2026-03-05T14:07:09", text));
  ClockTime time;
  size_t at = 0;
  time.year = ReadDigits(text, at, 4);
  if (time.year < 1 || !Eat(text, at, '-')) return error;
  time.month = ReadDigits(text, at, 2);
  if (time.month < 1 || time.month > 12 || !Eat(text, at, '-')) return error;
  time.day = ReadDigits(text, at, 2);
  if (time.day < 1 || time.day > DaysInMonth(time.year, time.month)) return error;
  if (at == text.size()) return time;
  if (!Eat(text, at, 'T') && !Eat(text, at, ' ')) return error;
  time.hour = ReadDigits(text, at, 2);
  if (time.hour < 0 || time.hour > 23 || !Eat(text, at, ':')) return error;
  time.minute = ReadDigits(text, at, 2);
  if (time.minute < 0 || time.minute > 59) return error;
  if (Eat(text, at, ':')) {
    time.second = ReadDigits(text, at, 2);
    if (time.second < 0 || time.second > 59) return error;
    if (Eat(text, at, '.')) ReadFraction(text, at, time);
  }
  if (!IsZone(text.substr(at))) return error;
  return time;
}

ClockTime SystemClock() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm local{};
  localtime_r(&seconds, &local);
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
  return {local.tm_year + 1900,
          local.tm_mon + 1,
          local.tm_mday,
          local.tm_hour,
          local.tm_min,
          local.tm_sec > 59 ? 59 : local.tm_sec,
          static_cast<int>(((micros % 1'000'000) + 1'000'000) % 1'000'000)};
}

std::string FormatTime(std::string_view format, const ClockTime& time) {
  const Calendar calendar = CalendarOf(time);
  std::string out;
  for (size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%' || at + 1 == format.size()) {
      out += format[at];
      continue;
    }
    const size_t begin = at++;
    Modifier modifier;
    while (at < format.size() && std::string_view("-_0^#").find(format[at]) != std::string::npos) {
      if (format[at] == '^' || format[at] == '#') {
        modifier.upper = true;
      } else {
        modifier.padding = format[at];
      }
      ++at;
    }
    const size_t written = out.size();
    const char directive = at < format.size() ? format[at] : '\0';
    const std::string_view composite = Composite(directive);
    if (!composite.empty()) {
      out += FormatTime(composite, time);
    } else if (!AppendName(directive, time, calendar, out) &&
               !AppendNumber(directive, time, calendar, modifier, out)) {
      out += format.substr(begin, at + 1 - begin);
      continue;
    }
    if (modifier.upper) UpperAscii(out, written);
  }
  return out;
}

}  // namespace tenon::jinja
