// Python's operators over Values: arithmetic, comparison, membership, attribute and item access,
// slicing and iteration, with the sandbox's rules (nothing can be changed through them). Errors
// name the operand types. Stateless but for the Runtime's account.
#pragma once

#include <optional>

#include "tenon/tokenizer/jinja_runtime.h"

namespace tenon::jinja {

enum class BinaryOperator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class CompareOperator {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

Result<Value> Calculate(Runtime& runtime, BinaryOperator op, const Value& a, const Value& b);
Result<Value> Negate(const Value& value);
Result<Value> Plus(const Value& value);

bool Truth(const Value& value);
Result<bool> Equal(Runtime& runtime, const Value& a, const Value& b);
Result<bool> Compare(Runtime& runtime, CompareOperator op, const Value& a, const Value& b);
Result<bool> Contains(Runtime& runtime, const Value& container, const Value& item);

// Work units of a search for `needle` in `text`.
int64_t SearchCost(std::string_view text, std::string_view needle);

// The error of using an undefined value.
Status UndefinedError(const Value& value);

// `value.name`: an attribute or method first, then a key. Undefined when there is neither.
Result<Value> GetAttribute(Runtime& runtime, const Value& value, std::string_view name);
// The attribute or method alone, Missing when there is none.
Result<Value> GetOwnAttribute(Runtime& runtime, const Value& value, std::string_view name);
// `value[key]`: an item first, then an attribute.
Result<Value> GetItem(Runtime& runtime, const Value& value, const Value& key);
// `value[start:stop:step]`; none = absent.
Result<Value> GetSlice(Runtime& runtime, const Value& value, const Value& start, const Value& stop,
                       const Value& step);
Result<int64_t> Length(Runtime& runtime, const Value& value);

// Walks over an iterable. A generator is consumed as it goes.
class Cursor {
 public:
  Cursor() = default;  // nothing
  // Error: not iterable.
  static Result<Cursor> Over(const Value& value);
  static bool CanIterate(const Value& value);
  // False at the end, and when the render has passed a limit.
  bool Next(Runtime& runtime, Value& item);
  // Length of the iterable from its start; absent for generators.
  std::optional<int64_t> Length() const;

 private:
  explicit Cursor(Value source) : source_(std::move(source)) {}
  Value source_ = Value::Undefined({});
  size_t at_ = 0;  // next item; next byte of text
};
Result<Values> ToItems(Runtime& runtime, const Value& value);

}  // namespace tenon::jinja
