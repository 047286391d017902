// Paragraph filling as Python's textwrap does it: words, hyphenated words and dashes go to lines of
// at most a width. Pure function, thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::jinja {

struct WrapOptions {
  size_t width = 79;  // code points, at least 1
  bool break_long_words = true;
  bool break_on_hyphens = true;
};

// A paragraph of blanks or nothing gives no line.
std::vector<std::string> WrapParagraph(std::string_view paragraph, const WrapOptions& options);

}  // namespace tenon::jinja
