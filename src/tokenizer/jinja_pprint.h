// Values laid out over lines of 80 columns, as Python's pprint does, with sorted keys. For looking
// at a value while a template is written. Stateless but for the Runtime's account.
#pragma once

#include <string>

#include "tenon/tokenizer/jinja_runtime.h"

namespace tenon::jinja {

Result<std::string> PrettyRepr(Runtime& runtime, const Value& value);

}  // namespace tenon::jinja
