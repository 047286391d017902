// Numbers and texts laid out in a field: what the specifications of % and str.format share.
// Internal to the two formatters. Pure functions, thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "tenon/base/status.h"
#include "tenon/tokenizer/jinja_value.h"

namespace tenon::jinja {

// One parsed specification.
struct FieldSpec {
  std::string fill = " ";
  char align = 0;  // '<', '>', '^', '=' or 0 = the type's own
  char sign = '-';
  bool alternate = false;
  char grouping = 0;   // ',' or '_'
  int64_t width = 0;   // code points
  int precision = -1;  // -1 = not given
  char type = 0;
};

// Pads `sign` + `body` to the width; '=' puts the padding between the two.
std::string PadField(const FieldSpec& spec, char default_align, std::string_view sign,
                     std::string_view body);
// Digits of an integer in the base of spec.type (b, o, d, x, X) with prefix and grouping.
std::string FormatInt(const FieldSpec& spec, Int value);
// A float by spec.type (e, f, g, % and their capitals; 0 = as str() does).
std::string FormatFloat(const FieldSpec& spec, double value);

// Widths and precisions beyond these are refused before anything is laid out.
inline constexpr int kMaxPrecision = 1000;

}  // namespace tenon::jinja
