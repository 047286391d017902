#include "tenon/checkpoint/part_name.h"

#include <fmt/format.h>

#include <charconv>

#include "tenon/base/text.h"
#include "tenon/checkpoint/file_kind.h"

namespace tenon {

std::string PartName::NameOf(int part) const {
  return fmt::format("{}-{:05}-of-{:05}{}", stem, part, count, extension);
}

bool ParsePartName(std::string_view file, PartName& part) {
  constexpr size_t kDigits = 5;
  constexpr std::string_view kMiddle = "-of-";
  constexpr size_t kTail = 1 + kDigits + kMiddle.size() + kDigits;  // "-00001-of-00003"
  const size_t dot = file.rfind('.');
  if (dot == std::string_view::npos || dot <= kTail) return false;
  const std::string_view tail = file.substr(dot - kTail, kTail);
  if (tail[0] != '-' || tail.substr(1 + kDigits, kMiddle.size()) != kMiddle) return false;
  const auto parse = [](std::string_view digits, int& number) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + kDigits, number);
    return error == std::errc() && end == digits.data() + kDigits && number > 0;
  };
  if (!parse(tail.substr(1), part.number) || !parse(tail.substr(kTail - kDigits), part.count)) {
    return false;
  }
  part.stem = file.substr(0, dot - kTail);
  part.extension = file.substr(dot);
  return part.number <= part.count;
}

std::string SomeNames(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  std::vector<std::string> shown;
  for (const std::string& name : names) {
    if (shown.size() == kShown) break;
    shown.push_back(QuotedName(name));
  }
  std::string text = Join(shown, ", ");
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

}  // namespace tenon
