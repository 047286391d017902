#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tenon/tokenizer/jinja_format.h"
#include "tenon/tokenizer/jinja_operators.h"
#include "tenon/tokenizer/jinja_print.h"

namespace tenon::jinja {
namespace {

std::string_view SymbolOf(BinaryOperator op) {
  constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<size_t>(op)];
}

Status TypeError(BinaryOperator op, const Value& a, const Value& b) {
  return Refused(fmt::format("unsupported operand types for {}: '{}' and '{}'", SymbolOf(op),
                             a.TypeName(), b.TypeName()));
}
Status Overflow() { return Refused("an integer result needs more than 127 bits"); }
Status DivisionByZero() { return Refused("division by zero"); }

Int FloorDivide(Int a, Int b) {
  const Int quotient = a / b;
  return a % b != 0 && ((a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

Result<Value> IntPower(Int base, Int exponent) {
  if (exponent < 0) {
    if (base == 0) return DivisionByZero();
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  Int result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return Overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return Overflow();
  }
  return Value(result);
}

Result<Value> CalculateInts(BinaryOperator op, Int a, Int b) {
  Int result = 0;
  // The one quotient that does not fit.
  const bool overflows = b == -1 && a == std::numeric_limits<Int>::min();
  switch (op) {
    case BinaryOperator::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return Overflow();
      return Value(result);
    case BinaryOperator::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) return Overflow();
      return Value(result);
    case BinaryOperator::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) return Overflow();
      return Value(result);
    case BinaryOperator::kDivide:
      if (b == 0) return DivisionByZero();
      return Value(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case BinaryOperator::kFloorDivide:
      if (b == 0) return DivisionByZero();
      if (overflows) return Overflow();
      return Value(FloorDivide(a, b));
    case BinaryOperator::kModulo:
      if (b == 0) return DivisionByZero();
      if (overflows) return Value(0);
      return Value(a - FloorDivide(a, b) * b);
    case BinaryOperator::kPower:
      return IntPower(a, b);
  }
  return Overflow();
}

double FloatModulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (b < 0) != (rest < 0) ? rest + b : rest;
}

double FloatFloorDivide(double a, double b) {
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

Result<Value> FloatPower(double a, double b) {
  if (a == 0 && b < 0) return DivisionByZero();
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
    return Refused("a negative number to a fractional power is complex");
  }
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
    return Refused("the result of ** is too large for a float");
  }
  return Value(result);
}

Result<Value> CalculateFloats(BinaryOperator op, double a, double b) {
  switch (op) {
    case BinaryOperator::kAdd:
      return Value(a + b);
    case BinaryOperator::kSubtract:
      return Value(a - b);
    case BinaryOperator::kMultiply:
      return Value(a * b);
    case BinaryOperator::kPower:
      return FloatPower(a, b);
    default:
      break;
  }
  if (b == 0) return DivisionByZero();
  if (op == BinaryOperator::kDivide) return Value(a / b);
  return Value(op == BinaryOperator::kModulo ? FloatModulo(a, b) : FloatFloorDivide(a, b));
}

Result<Value> AddTexts(Runtime& runtime, const Value& a, const Value& b) {
  TN_RETURN_IF_ERROR(
      runtime.Reserve(static_cast<Int>(a.text().size()) + static_cast<Int>(b.text().size())));
  const bool markup = a.is_markup() || b.is_markup();
  std::string text;
  text.reserve(a.text().size() + b.text().size());
  for (const Value* part : {&a, &b}) {
    if (markup && !part->is_markup()) {
      AppendEscaped(part->text(), text);
    } else {
      text += part->text();
    }
  }
  return runtime.String(std::move(text), markup);
}

Result<Value> Add(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is_text() && b.is_text()) return AddTexts(runtime, a, b);
  const bool lists = a.is_list() && b.is_list();
  if (lists || (a.is_tuple() && b.is_tuple())) {
    Values items = a.sequence()->items;
    const Values& more = b.sequence()->items;
    items.insert(items.end(), more.begin(), more.end());
    return lists ? runtime.List(std::move(items)) : runtime.Tuple(std::move(items));
  }
  if (a.is_text()) {
    return Refused(fmt::format("can only concatenate str (not '{}') to str; ~ joins any two values",
                               b.TypeName()));
  }
  return TypeError(BinaryOperator::kAdd, a, b);
}

Result<Value> Repeat(Runtime& runtime, const Value& value, Int count) {
  if (count < 0) count = 0;
  if (count > std::numeric_limits<int64_t>::max()) count = std::numeric_limits<int64_t>::max();
  if (value.is_text()) {
    TN_RETURN_IF_ERROR(runtime.Reserve(count * static_cast<Int>(value.text().size())));
    std::string text;
    if (!value.text().empty()) {
      text.reserve(value.text().size() * static_cast<size_t>(count));
      for (Int i = 0; i < count; ++i) text += value.text();
    }
    return runtime.StringLike(value, std::move(text));
  }
  const Values& unit = value.sequence()->items;
  TN_RETURN_IF_ERROR(
      runtime.Reserve(count * static_cast<Int>(unit.size()) * static_cast<Int>(sizeof(Value))));
  Values items;
  if (!unit.empty()) {
    items.reserve(unit.size() * static_cast<size_t>(count));
    for (Int i = 0; i < count; ++i) items.insert(items.end(), unit.begin(), unit.end());
  }
  return value.is_list() ? runtime.List(std::move(items)) : runtime.Tuple(std::move(items));
}

bool CanRepeat(const Value& value) {
  return value.is_text() || value.is_list() || value.is_tuple();
}

}  // namespace

Status UndefinedError(const Value& value) { return Refused(value.undefined().Message()); }

Result<Value> Calculate(Runtime& runtime, BinaryOperator op, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return CalculateInts(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return CalculateFloats(op, a.as_double(), b.as_double());
  if (op == BinaryOperator::kModulo && a.is_text()) return FormatPercent(runtime, a, b);
  if (a.is_undefined()) return UndefinedError(a);
  if (b.is_undefined()) return UndefinedError(b);
  if (op == BinaryOperator::kAdd) return Add(runtime, a, b);
  if (op == BinaryOperator::kMultiply) {
    if (CanRepeat(a) && b.is_integral()) return Repeat(runtime, a, b.as_int());
    if (CanRepeat(b) && a.is_integral()) return Repeat(runtime, b, a.as_int());
  }
  return TypeError(op, a, b);
}

Result<Value> Negate(const Value& value) {
  if (value.is_undefined()) return UndefinedError(value);
  if (value.is_integral()) return CalculateInts(BinaryOperator::kSubtract, 0, value.as_int());
  if (value.is_float()) return Value(-value.as_double());
  return Refused(fmt::format("bad operand type for unary -: '{}'", value.TypeName()));
}

Result<Value> Plus(const Value& value) {
  if (value.is_undefined()) return UndefinedError(value);
  if (value.is_integral()) return Value(value.as_int());
  if (value.is_float()) return value;
  return Refused(fmt::format("bad operand type for unary +: '{}'", value.TypeName()));
}

}  // namespace tenon::jinja
