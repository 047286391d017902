#include "tenon/tokenizer/jinja_tests.h"

#include <fmt/format.h>

#include "tenon/tokenizer/jinja_filters.h"
#include "tenon/tokenizer/jinja_operators.h"
#include "tenon/tokenizer/jinja_print.h"
#include "tenon/tokenizer/jinja_text_tools.h"

namespace tenon::jinja {
namespace {

// A test that only looks at its value.
template <bool (*kHolds)(const Value&)>
Result<bool> Look(Runtime&, const Value& input, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("a test", args, {}).status());
  return kHolds(input);
}

bool IsDefined(const Value& value) { return !value.is_undefined(); }
bool IsUndefined(const Value& value) { return value.is_undefined(); }
bool IsNone(const Value& value) { return value.is_none(); }
bool IsBoolean(const Value& value) { return value.is_bool(); }
bool IsTrue(const Value& value) { return value.is_bool() && value.as_bool(); }
bool IsFalse(const Value& value) { return value.is_bool() && !value.as_bool(); }
bool IsInteger(const Value& value) { return value.is_int(); }
bool IsFloat(const Value& value) { return value.is_float(); }
bool IsNumber(const Value& value) { return value.is_number(); }
bool IsString(const Value& value) { return value.is_text(); }
bool IsMapping(const Value& value) { return value.is_dict(); }
bool IsEscaped(const Value& value) { return value.is_markup(); }

// Has a length and items by index (or key).
bool IsSequence(const Value& value) {
  return value.is_undefined() || value.is_text() || value.is_list() || value.is_tuple() ||
         value.is_dict() || value.is_range();
}

// An undefined value counts as callable: calling it is what reports it.
bool IsCallable(const Value& value) {
  return value.is_undefined() || (value.is_object() && value.object()->callable());
}

Result<bool> HasRemainder(Runtime& runtime, const Value& input, const Value& divisor, int wanted) {
  TN_ASSIGN_OR_RETURN(const Value rest,
                      Calculate(runtime, BinaryOperator::kModulo, input, divisor));
  return Equal(runtime, rest, Value(wanted));
}

template <int kWanted>
Result<bool> Parity(Runtime& runtime, const Value& input, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("odd/even", args, {}).status());
  return HasRemainder(runtime, input, Value(2), kWanted);
}

Result<bool> DivisibleBy(Runtime& runtime, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("divisibleby", args, {"num"}, 1));
  return HasRemainder(runtime, input, *bound[0], 0);
}

template <CompareOperator kOperator>
Result<bool> Relation(Runtime& runtime, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("comparison", args, {"other"}, 1));
  return Compare(runtime, kOperator, input, *bound[0]);
}

Result<bool> SameAs(Runtime&, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("sameas", args, {"other"}, 1));
  return input.IsSame(*bound[0]);
}

template <bool kUpper>
Result<bool> HasCase(Runtime& runtime, const Value& input, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("upper/lower", args, {}).status());
  TN_ASSIGN_OR_RETURN(const std::string text, Str(runtime, input));
  return IsAllCased(text, kUpper);
}

bool NamesFilter(const Value& value) {
  return value.is_text() && FindFilter(value.text()) != nullptr;
}
bool NamesTest(const Value& value) { return value.is_text() && FindTest(value.text()) != nullptr; }

constexpr TestEntry kTests[] = {{"defined", Look<IsDefined>},
                                {"undefined", Look<IsUndefined>},
                                {"none", Look<IsNone>},
                                {"string", Look<IsString>},
                                {"mapping", Look<IsMapping>},
                                {"iterable", Look<Cursor::CanIterate>},
                                {"sequence", Look<IsSequence>},
                                {"boolean", Look<IsBoolean>},
                                {"true", Look<IsTrue>},
                                {"false", Look<IsFalse>},
                                {"integer", Look<IsInteger>},
                                {"float", Look<IsFloat>},
                                {"number", Look<IsNumber>},
                                {"callable", Look<IsCallable>},
                                {"escaped", Look<IsEscaped>},
                                {"filter", Look<NamesFilter>},
                                {"test", Look<NamesTest>},
                                {"odd", Parity<1>},
                                {"even", Parity<0>},
                                {"divisibleby", DivisibleBy},
                                {"upper", HasCase<true>},
                                {"lower", HasCase<false>},
                                {"sameas", SameAs},
                                {"in", Relation<CompareOperator::kIn>},
                                {"==", Relation<CompareOperator::kEqual>},
                                {"eq", Relation<CompareOperator::kEqual>},
                                {"equalto", Relation<CompareOperator::kEqual>},
                                {"!=", Relation<CompareOperator::kNotEqual>},
                                {"ne", Relation<CompareOperator::kNotEqual>},
                                {">", Relation<CompareOperator::kGreater>},
                                {"gt", Relation<CompareOperator::kGreater>},
                                {"greaterthan", Relation<CompareOperator::kGreater>},
                                {">=", Relation<CompareOperator::kGreaterEqual>},
                                {"ge", Relation<CompareOperator::kGreaterEqual>},
                                {"<", Relation<CompareOperator::kLess>},
                                {"lt", Relation<CompareOperator::kLess>},
                                {"lessthan", Relation<CompareOperator::kLess>},
                                {"<=", Relation<CompareOperator::kLessEqual>},
                                {"le", Relation<CompareOperator::kLessEqual>}};

}  // namespace

const TestEntry* FindTest(std::string_view name) {
  for (const TestEntry& entry : kTests) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

Result<bool> CallTest(Runtime& runtime, const TestEntry& test, const Value& input,
                      const Args& args) {
  if (!runtime.Work(1)) return runtime.failure();
  return test.function(runtime, input, args);
}

}  // namespace tenon::jinja
