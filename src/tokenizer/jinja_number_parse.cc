#include "tenon/tokenizer/jinja_number_parse.h"

#include <charconv>
#include <limits>

#include "tenon/base/text.h"
#include "tenon/tokenizer/jinja_unicode.h"

namespace tenon::jinja {
namespace {

int DigitValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

// Drops underscores; absent when one does not stand between two digits.
std::optional<std::string> WithoutUnderscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const bool between = i > 0 && i + 1 < text.size() && DigitValue(text[i - 1]) < 36 &&
                         DigitValue(text[i + 1]) < 36;
    if (!between) return std::nullopt;
  }
  return out;
}

bool TakeSign(std::string_view& text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  return negative;
}

int PrefixBase(std::string_view text) {
  if (text.size() < 2 || text[0] != '0') return 0;
  switch (text[1] | 0x20) {
    case 'b':
      return 2;
    case 'o':
      return 8;
    case 'x':
      return 16;
    default:
      return 0;
  }
}

}  // namespace

std::optional<Int> ParseInt(std::string_view text, int base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  text = StripLeft(StripRight(text));
  const bool negative = TakeSign(text);
  const int prefix_base = PrefixBase(text);
  if (prefix_base != 0 && (base == 0 || base == prefix_base)) {
    base = prefix_base;
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
  }
  if (base == 0) {
    base = 10;
    const bool leading_zero = text.size() > 1 && text[0] == '0';
    if (leading_zero && text.find_first_not_of("0_") != std::string_view::npos) return std::nullopt;
  }
  const std::optional<std::string> digits = WithoutUnderscores(text);
  if (!digits || digits->empty()) return std::nullopt;
  Int value = 0;
  for (const char c : *digits) {
    if (DigitValue(c) >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, base, &value) ||
        __builtin_add_overflow(value, DigitValue(c), &value)) {
      return std::nullopt;
    }
  }
  return negative ? -value : value;
}

std::optional<double> ParseFloat(std::string_view text) {
  text = StripLeft(StripRight(text));
  const bool negative = TakeSign(text);
  const std::optional<std::string> digits = WithoutUnderscores(text);
  if (!digits || digits->empty()) return std::nullopt;
  const std::string word = ToLowerAscii(*digits);
  double value = 0;
  if (word == "inf" || word == "infinity") {
    value = std::numeric_limits<double>::infinity();
  } else if (word == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    if (word.find_first_not_of("0123456789.e+-") != std::string::npos || word[0] == '-' ||
        word[0] == '+') {
      return std::nullopt;
    }
    const char* end = word.data() + word.size();
    const auto parsed = std::from_chars(word.data(), end, value);
    if (parsed.ptr != end) return std::nullopt;
    if (parsed.ec == std::errc::result_out_of_range) {
      const size_t e = word.find('e');
      const bool tiny = e != std::string::npos && word[e + 1] == '-';
      value = tiny ? 0.0 : std::numeric_limits<double>::infinity();
    } else if (parsed.ec != std::errc()) {
      return std::nullopt;
    }
  }
  return negative ? -value : value;
}

}  // namespace tenon::jinja
