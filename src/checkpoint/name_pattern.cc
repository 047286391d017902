#include "tenon/checkpoint/name_pattern.h"

#include <algorithm>
#include <charconv>

#include "tenon/base/check.h"

namespace tenon {
namespace {

// "0", "17"; not "007" (it would not come back as written) and not beyond nine digits.
bool ParseNumber(std::string_view part, int64_t& number) {
  if (part.empty() || part.size() > 9 || (part[0] == '0' && part.size() > 1)) return false;
  for (const char c : part) {
    if (c < '0' || c > '9') return false;
  }
  std::from_chars(part.data(), part.data() + part.size(), number);
  return true;
}

}  // namespace

std::string PatternKey(std::string_view name, std::vector<int64_t>& numbers) {
  numbers.clear();
  std::string key;
  key.reserve(name.size());
  for (size_t begin = 0;;) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    int64_t number = kPlaceholder;
    if (part == "{}" || ParseNumber(part, number)) {
      numbers.push_back(number);
      key += "{}";
    } else {
      key += part;
    }
    if (end == name.size()) return key;
    key += '.';
    begin = end + 1;
  }
}

std::string FillPattern(std::string_view pattern, std::span<const int64_t> numbers) {
  std::string name;
  name.reserve(pattern.size() + 8);
  size_t next = 0;
  for (size_t begin = 0;;) {
    const size_t at = pattern.find("{}", begin);
    name += pattern.substr(begin, at - begin);
    if (at == std::string_view::npos) return name;
    TN_CHECK(next < numbers.size(), "a number for every placeholder");
    name += numbers[next] == kPlaceholder ? "{}" : std::to_string(numbers[next]);
    ++next;
    begin = at + 2;
  }
}

}  // namespace tenon
