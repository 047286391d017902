// Python's two ways of formatting text: `format % values` and `format.format(values)`. Sizes that a
// template asks for (widths, precisions) are bounded by the render's memory limit. Not for str()
// and repr() (jinja_print.h). Stateless but for the Runtime's account.
#pragma once

#include "tenon/tokenizer/jinja_runtime.h"

namespace tenon::jinja {

// `values` is a tuple, a dictionary for %(name)s, or a single value. Errors: too few or too many
// values, a value of the wrong type, an unknown conversion.
Result<Value> FormatPercent(Runtime& runtime, const Value& format, const Value& values);
// str.format, with attribute and item access under the sandbox's rules.
Result<Value> FormatBraces(Runtime& runtime, const Value& format, const Args& args);

}  // namespace tenon::jinja
