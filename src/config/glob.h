// Shell patterns over names: `*` is any run of characters, dots and none included, `?` one
// character, `[abc]`, `[a-c]`, `[!a]` one of a set. Case counts; nothing is escaped, as in Python's
// fnmatch. Not for file names. A pure function, thread-safe.
#pragma once

#include <string_view>

namespace tenon {

// Of the whole text; at most pattern length times text length steps.
bool GlobMatches(std::string_view pattern, std::string_view text);

}  // namespace tenon
