#include "tenon/config/config_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon {

std::string ValueText(const Json& value) {
  constexpr size_t kLimit = 60;
  if (value.is_object()) return fmt::format("{{{} keys}}", value.as_object().size());
  if (value.is_array() && value.as_array().size() > 8) {
    return fmt::format("[{} values]", value.as_array().size());
  }
  std::string text = value.Dump();
  if (text.size() <= kLimit) return text;
  size_t end = kLimit;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

std::string Allowed(IntRange range) {
  return fmt::format("an integer from {} to {}", range.low, range.high);
}
std::string Allowed(RealRange range) {
  std::string text = range.finite ? "a finite number" : "a number";
  const char* const from = range.above_low ? "above" : "from";
  if (!std::isinf(range.low)) text += fmt::format(" {} {}", from, range.low);
  if (std::isinf(range.high)) return std::isinf(range.low) || range.above_low ? text : text + " up";
  return text + fmt::format("{} {}", std::isinf(range.low) ? " up to" : " to", range.high);
}

bool Contains(RealRange range, double value) {
  if (std::isnan(value) || (range.finite && std::isinf(value))) return false;
  return value <= range.high && (range.above_low ? value > range.low : value >= range.low);
}

int64_t PlaceholderOf(IntRange range) {
  return std::clamp<int64_t>(range.low > 0 ? range.low : 0, range.low, range.high);
}
double PlaceholderOf(RealRange range) {
  if (Contains(range, 1)) return 1;
  return Contains(range, range.low) ? range.low : range.high;
}

bool ToInt(const Json& value, IntRange range, int64_t& out, std::string& note) {
  if (value.is_int()) {
    out = value.as_int();
  } else if (value.is_number()) {
    const double real = value.as_double();
    constexpr double kExact = 9007199254740992.0;  // 2^53
    if (!(std::abs(real) <= kExact) || real != std::floor(real)) return false;
    out = static_cast<int64_t>(real);
  } else {
    return false;
  }
  if (out < range.low || out > range.high) return false;
  if (!value.is_int()) note = fmt::format("{} read as {}", value.Dump(), out);
  return true;
}

bool ToReal(const Json& value, RealRange range, double& out) {
  if (!value.is_number()) return false;
  out = value.as_double();
  return Contains(range, out);
}

bool ToBool(const Json& value, bool& out, std::string& note) {
  if (value.is_bool()) {
    out = value.as_bool();
    return true;
  }
  if (!value.is_number() || (value.as_double() != 0 && value.as_double() != 1)) return false;
  out = value.as_double() == 1;
  note = fmt::format("{} read as {}", value.Dump(), out);
  return true;
}

}  // namespace tenon
