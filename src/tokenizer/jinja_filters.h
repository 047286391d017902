// The filters of the template language (`value | name(...)`), by name. `tojson` is the one of the
// Hugging Face renderer: json.dumps without HTML escaping. `random`, `urlize` are known but
// refused. Tables of plain functions, thread-safe.
#pragma once

#include <string_view>

#include "tenon/tokenizer/jinja_runtime.h"

namespace tenon::jinja {

using Filter = Result<Value> (*)(Runtime& runtime, const Value& input, const Args& args);

struct FilterEntry {
  std::string_view name;
  Filter function;
};

// Null when there is no such filter.
const FilterEntry* FindFilter(std::string_view name);
Result<Value> CallFilter(Runtime& runtime, const FilterEntry& filter, const Value& input,
                         const Args& args);

// The tables, one file each.
const FilterEntry* FindTextFilter(std::string_view name);
const FilterEntry* FindSequenceFilter(std::string_view name);
const FilterEntry* FindSelectionFilter(std::string_view name);

}  // namespace tenon::jinja
