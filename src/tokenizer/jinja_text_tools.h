// Text operations that methods and filters of the template language share: splitting, replacing,
// counting, justifying. Sizes a template asks for are bounded. Stateless, thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tenon/tokenizer/jinja_runtime.h"

namespace tenon::jinja {

// Non-overlapping occurrences; the needle is not empty.
size_t CountText(std::string_view text, std::string_view needle);
// The first `limit` occurrences (all when negative). An empty `old_text` stands before every code
// point and at the end, as in Python.
Result<std::string> ReplaceText(Runtime& runtime, std::string_view text, std::string_view old_text,
                                std::string_view new_text, Int limit);
// At most `limit` cuts (any number when negative).
std::vector<std::string_view> SplitAt(std::string_view text, std::string_view separator, Int limit);
std::vector<std::string_view> SplitFromEnd(std::string_view text, std::string_view separator,
                                           Int limit);
// At runs of blanks, none at the ends.
std::vector<std::string_view> SplitBlanks(std::string_view text, Int limit);
std::vector<std::string_view> SplitBlanksFromEnd(std::string_view text, Int limit);
// align '<', '>', or '^' (Python's str.center, which is not str.format's '^').
Result<std::string> JustifyText(Runtime& runtime, std::string_view text, char align, Int width,
                                std::string_view fill);
// Cased letters are there and all of them are upper (lower) case.
bool IsAllCased(std::string_view text, bool upper);
// HTML text without comments and tags, blanks joined to one, numeric and the common named entities
// resolved.
std::string StripMarkup(std::string_view html);
// A list of texts with the markup mark of `like`.
Value TextList(Runtime& runtime, const Value& like, const std::vector<std::string_view>& parts);

}  // namespace tenon::jinja
