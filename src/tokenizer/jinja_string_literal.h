// The escapes of a string literal in a template: those of a Python string. Pure function.
#pragma once

#include <string>
#include <string_view>

#include "tenon/base/status.h"

namespace tenon::jinja {

// `body` is what stands between the quotes. Errors: an incomplete escape, half of a surrogate pair,
// a code point beyond Unicode, \N{name}.
Result<std::string> UnescapeString(std::string_view body);

}  // namespace tenon::jinja
