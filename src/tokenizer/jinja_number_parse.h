// Text to numbers as Python's int() and float() read it: blanks around, a sign, underscores between
// digits. Pure functions, thread-safe.
#pragma once

#include <optional>
#include <string_view>

#include "tenon/tokenizer/jinja_value.h"

namespace tenon::jinja {

// base 2 to 36, or 0 to go by the prefix 0b, 0o, 0x. Absent when the text is no integer, or one of
// more than 127 bits.
std::optional<Int> ParseInt(std::string_view text, int base);
std::optional<double> ParseFloat(std::string_view text);

}  // namespace tenon::jinja
