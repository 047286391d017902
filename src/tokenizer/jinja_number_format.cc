#include "tenon/tokenizer/jinja_number_format.h"

#include <fmt/format.h>

#include <cmath>

#include "tenon/tokenizer/jinja_print.h"
#include "tenon/tokenizer/jinja_unicode.h"

namespace tenon::jinja {
namespace {

std::string Repeated(std::string_view unit, int64_t count) {
  std::string out;
  for (int64_t i = 0; i < count; ++i) out += unit;
  return out;
}

std::string_view SignText(const FieldSpec& spec, bool negative) {
  if (negative) return "-";
  if (spec.sign == '+') return "+";
  return spec.sign == ' ' ? " " : "";
}

// Inserts the grouping sign into the leading run of digits.
std::string Grouped(const FieldSpec& spec, std::string digits, size_t group) {
  if (spec.grouping == 0) return digits;
  size_t whole = 0;
  while (whole < digits.size() && std::isxdigit(static_cast<unsigned char>(digits[whole])) != 0) {
    ++whole;
  }
  for (size_t at = whole; at > group;) {
    at -= group;
    digits.insert(at, 1, spec.grouping);
  }
  return digits;
}

std::string Digits(const FieldSpec& spec, Int magnitude) {
  const auto value = static_cast<unsigned __int128>(magnitude);
  switch (spec.type) {
    case 'b':
      return fmt::format("{:b}", value);
    case 'o':
      return fmt::format("{:o}", value);
    case 'x':
      return fmt::format("{:x}", value);
    case 'X':
      return fmt::format("{:X}", value);
    default:
      return fmt::format("{}", value);
  }
}

std::string FloatDigits(const FieldSpec& spec, double magnitude) {
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  switch (spec.type) {
    case 'e':
      return spec.alternate ? fmt::format("{:#.{}e}", magnitude, precision)
                            : fmt::format("{:.{}e}", magnitude, precision);
    case 'E':
      return fmt::format("{:.{}E}", magnitude, precision);
    case 'f':
      return spec.alternate ? fmt::format("{:#.{}f}", magnitude, precision)
                            : fmt::format("{:.{}f}", magnitude, precision);
    case 'F':
      return fmt::format("{:.{}F}", magnitude, precision);
    case '%':
      return fmt::format("{:.{}f}%", magnitude * 100, precision);
    case 'G':
      return fmt::format("{:.{}G}", magnitude, precision);
    case 'g':
    case 'n':
      return spec.alternate ? fmt::format("{:#.{}g}", magnitude, precision)
                            : fmt::format("{:.{}g}", magnitude, precision);
    default:
      break;
  }
  if (spec.precision < 0) return FloatText(magnitude);
  // Without a type: like g, but a number without an exponent keeps one digit after the point.
  std::string text = fmt::format("{:.{}g}", magnitude, spec.precision == 0 ? 1 : spec.precision);
  if (std::isfinite(magnitude) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

std::string PadField(const FieldSpec& spec, char default_align, std::string_view sign,
                     std::string_view body) {
  const auto length = static_cast<int64_t>(CountCodePoints(sign) + CountCodePoints(body));
  const int64_t missing = spec.width - length;
  std::string out;
  if (missing <= 0) return out.append(sign).append(body);
  const char align = spec.align == 0 ? default_align : spec.align;
  const int64_t left = align == '>' ? missing : (align == '^' ? missing / 2 : 0);
  out += Repeated(spec.fill, left);
  out += sign;
  if (align == '=') out += Repeated(spec.fill, missing);
  out += body;
  if (align == '<' || align == '^') out += Repeated(spec.fill, missing - left);
  return out;
}

std::string FormatInt(const FieldSpec& spec, Int value) {
  const bool negative = value < 0;
  // The magnitude of the smallest value wraps to the right bits.
  const auto magnitude = static_cast<Int>(negative ? -static_cast<unsigned __int128>(value)
                                                   : static_cast<unsigned __int128>(value));
  std::string digits = Digits(spec, magnitude);
  while (static_cast<int64_t>(digits.size()) < spec.precision) digits.insert(0, 1, '0');
  const bool decimal = spec.type == 0 || spec.type == 'd' || spec.type == 'n';
  digits = Grouped(spec, std::move(digits), decimal ? 3 : 4);
  std::string sign(SignText(spec, negative));
  if (spec.alternate && !decimal) {
    sign += '0';
    sign += spec.type;
  }
  return PadField(spec, '>', sign, digits);
}

std::string FormatFloat(const FieldSpec& spec, double value) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  std::string digits = FloatDigits(spec, std::fabs(value));
  digits = Grouped(spec, std::move(digits), 3);
  return PadField(spec, '>', SignText(spec, negative), digits);
}

}  // namespace tenon::jinja
