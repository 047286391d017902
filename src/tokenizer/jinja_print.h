// Values as text: Python's str() and repr(), HTML escaping, and json.dumps; and the way back from
// tenon::Json. Not for number formatting with a specification (jinja_format.h). Stateless but for
// the Runtime's account.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tenon/base/json.h"
#include "tenon/tokenizer/jinja_runtime.h"

namespace tenon::jinja {

// Errors: too deep or too large only.
Status AppendStr(Runtime& runtime, const Value& value, std::string& out);
Status AppendRepr(Runtime& runtime, const Value& value, std::string& out);
Result<std::string> Str(Runtime& runtime, const Value& value);

std::string IntText(Int value);
// The shortest text that reads back equal, laid out as Python does ("1e-05", "2.0", "inf").
std::string FloatText(double value);
std::string TextRepr(std::string_view text);

// & < > ' " as HTML entities.
void AppendEscaped(std::string_view text, std::string& out);
// The value's text, escaped unless it is markup.
Status AppendEscapedValue(Runtime& runtime, const Value& value, std::string& out);
Result<Value> Escape(Runtime& runtime, const Value& value);

// json.dumps' options.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// Errors: a kind that JSON does not have (undefined, range, generator, object).
Result<std::string> ToJson(Runtime& runtime, const Value& value, const JsonStyle& style);

// Invalid UTF-8 becomes U+FFFD. Too deep a value ends the render (Runtime::ok).
Value FromJson(Runtime& runtime, const Json& json);

}  // namespace tenon::jinja
