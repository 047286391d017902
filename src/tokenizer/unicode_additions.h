// Characters that Unicode 15.0, 15.1 and 16.0 added, with their general categories. The libraries
// that Tenon is built with stop at Unicode 14 (PCRE2 10.42) and 15.0 (utf8proc 2.8), while Hugging
// Face's tokenizers know 16.0. Not for older characters. Constant data.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tenon {

struct UnicodeAddition {
  char32_t first;
  char32_t last;
  std::string_view category;  // "Lo"
};

// In ascending order.
std::span<const UnicodeAddition> UnicodeAdditions();
// Whether one of them occurs in `text` (valid UTF-8).
bool HasUnicodeAdditions(std::string_view text);
// The row of a character, or null.
const UnicodeAddition* FindUnicodeAddition(char32_t character);

// The members of `category` ("Lo", or "L" for all letters) among them, as the body of a PCRE2
// character class; empty when there are none.
std::string AdditionsOfCategory(std::string_view category);

}  // namespace tenon
