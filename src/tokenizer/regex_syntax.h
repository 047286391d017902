// Translation of the regular expressions that Hugging Face tokenizers run (Oniguruma's Ruby syntax,
// UTF-8) into PCRE2's syntax with the same meaning: \s, \w, \d, \h, \b by Oniguruma's tables, class
// intersections and nested classes, (?m), properties. Not a parser of regular expressions: what
// both engines read alike is passed through, what PCRE2 cannot read is its compile error. Pure,
// thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "tenon/base/status.h"

namespace tenon {

// `with_additions`: properties also hold for the characters that PCRE2 does not know yet
// (unicode_additions.h), which makes matching slower. Errors (kRefused) name the construct that has
// no translation.
Result<std::string> TranslateToPcre2(std::string_view pattern, bool with_additions);

}  // namespace tenon
