#include "tenon/config/option_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tenon/base/text.h"

namespace tenon {
namespace {

template <typename T>
std::optional<T> ParseNumber(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

struct SizeUnit {
  const char* name;
  double bytes;
};
constexpr double kKi = 1024;
constexpr SizeUnit kSizeUnits[] = {
    {"", 1},
    {"b", 1},
    {"k", kKi},
    {"m", kKi* kKi},
    {"g", kKi* kKi* kKi},
    {"t", kKi* kKi* kKi* kKi},
    {"kib", kKi},
    {"mib", kKi* kKi},
    {"gib", kKi* kKi* kKi},
    {"tib", kKi* kKi* kKi* kKi},
    {"kb", 1e3},
    {"mb", 1e6},
    {"gb", 1e9},
    {"tb", 1e12},
};

Status BadSize(std::string_view text) {
  return UsageError(
      fmt::format("'{}' is no size, must be like 8G, 512MiB, 1.5GB or a number of bytes", text));
}

}  // namespace

std::optional<bool> ParseFlag(std::string_view text) {
  for (const char* yes : {"true", "1", "yes", "on"}) {
    if (EqualsIgnoreCase(text, yes)) return true;
  }
  for (const char* no : {"false", "0", "no", "off"}) {
    if (EqualsIgnoreCase(text, no)) return false;
  }
  return std::nullopt;
}

std::optional<double> ParseReal(const OptionRow& row, std::string_view text) {
  const std::optional<double> value = ParseNumber<double>(text);
  if (!value || !std::isfinite(*value) || *value < row.low || *value > row.high)
    return std::nullopt;
  return value;
}

std::optional<int64_t> ParseInteger(const OptionRow& row, const std::vector<std::string>& allowed,
                                    std::string_view text, bool& word) {
  word = !ParseNumber<double>(row.default_text) && EqualsIgnoreCase(text, row.default_text);
  if (word) return 0;
  // More words than the one for null: the numbers are listed.
  if (allowed.size() > 1 && std::find(allowed.begin(), allowed.end(), text) == allowed.end()) {
    return std::nullopt;
  }
  std::optional<int64_t> value;
  if (row.kind == OptionKind::kSize) {
    const Result<int64_t> size = ParseSize(text);
    if (size.ok()) value = *size;
  } else {
    value = ParseNumber<int64_t>(text);
  }
  if (!value || static_cast<double>(*value) < row.low || static_cast<double>(*value) > row.high) {
    return std::nullopt;
  }
  return value;
}

std::optional<std::string> ParseChoice(const std::vector<std::string>& allowed,
                                       std::string_view text) {
  for (const std::string& value : allowed) {
    if (EqualsIgnoreCase(value, text)) return value;
  }
  return std::nullopt;
}

std::optional<std::string> ParseByKey(const OptionRow& row, const std::vector<std::string>& allowed,
                                      std::string_view text) {
  std::vector<std::string> keys;
  for (const std::string_view key : Split(row.keys, '|')) keys.emplace_back(key);
  std::vector<std::string> parts;
  for (const std::string_view part : Split(text, ',')) {
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const auto key = ParseChoice(keys, Trim(part.substr(0, equals)));
    const auto value = ParseChoice(allowed, Trim(part.substr(equals + 1)));
    if (!key || !value) return std::nullopt;
    std::erase(keys, *key);
    parts.push_back(*key + "=" + *value);
  }
  return Join(parts, ",");
}

Result<int64_t> ParseSize(std::string_view text) {
  const std::string_view trimmed = Trim(text);
  const size_t number_end = std::min(trimmed.find_first_not_of("0123456789."), trimmed.size());
  const std::string unit = ToLowerAscii(Trim(trimmed.substr(number_end)));
  const std::optional<double> number = ParseNumber<double>(trimmed.substr(0, number_end));
  const auto row = std::find_if(std::begin(kSizeUnits), std::end(kSizeUnits),
                                [&](const SizeUnit& candidate) { return unit == candidate.name; });
  if (!number || row == std::end(kSizeUnits)) return BadSize(text);
  const double bytes = std::floor(*number * row->bytes);
  if (!(bytes < 0x1p63)) return BadSize(text);
  return static_cast<int64_t>(bytes);
}

}  // namespace tenon
