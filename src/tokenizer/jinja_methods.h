// The methods of Python's built-in types that templates call: str, dict, list, tuple, int, float.
// Methods that would change their object are known by name and refused, as the sandbox does. Not
// for filters (jinja_filters.h). Tables of plain functions, thread-safe.
#pragma once

#include <string_view>

#include "tenon/tokenizer/jinja_runtime.h"

namespace tenon::jinja {

using Method = Result<Value> (*)(Runtime& runtime, const Value& self, const Args& args);

struct MethodEntry {
  std::string_view name;
  Method function;  // null: exists in Python, but would change the object
};

// Null when values of this kind have no such method.
const MethodEntry* FindMethod(const Value& self, std::string_view name);

// A method taken from its object without being called.
class BoundMethod : public Object {
 public:
  BoundMethod(Value self, const MethodEntry& method) : self_(std::move(self)), method_(method) {
    extent = self_.extent();
    ++extent.depth;
  }
  std::string_view TypeName() const override { return "builtin_function_or_method"; }
  bool callable() const override { return true; }
  Result<Value> Call(Runtime& runtime, const Args& args) override {
    return method_.function(runtime, self_, args);
  }

 private:
  Value self_;
  const MethodEntry& method_;
};

// The tables, one file each.
const MethodEntry* FindTextMethod(std::string_view name);

}  // namespace tenon::jinja
