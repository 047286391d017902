// The tests of the template language (`value is name(...)`), by name. Tables of plain functions,
// thread-safe.
#pragma once

#include <string_view>

#include "tenon/tokenizer/jinja_runtime.h"

namespace tenon::jinja {

using Test = Result<bool> (*)(Runtime& runtime, const Value& input, const Args& args);

struct TestEntry {
  std::string_view name;
  Test function;
};

// Null when there is no such test.
const TestEntry* FindTest(std::string_view name);
Result<bool> CallTest(Runtime& runtime, const TestEntry& test, const Value& input,
                      const Args& args);

}  // namespace tenon::jinja
