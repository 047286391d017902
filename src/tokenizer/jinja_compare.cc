#include <fmt/format.h>

#include <algorithm>

#include "tenon/tokenizer/jinja_operators.h"
#include "tenon/tokenizer/jinja_unicode.h"

namespace tenon::jinja {
namespace {

Result<bool> EqualItems(Runtime& runtime, const Values& a, const Values& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    TN_ASSIGN_OR_RETURN(const bool equal, Equal(runtime, a[i], b[i]));
    if (!equal) return false;
  }
  return true;
}

Result<bool> EqualDicts(Runtime& runtime, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.Find(key);
    if (other == nullptr) return false;
    TN_ASSIGN_OR_RETURN(const bool equal, Equal(runtime, value, *other));
    if (!equal) return false;
  }
  return true;
}

bool SameSequenceKind(const Value& a, const Value& b) {
  return (a.is_tuple() && b.is_tuple()) || a.sequence()->type == b.sequence()->type;
}

bool EqualRanges(const Range& a, const Range& b) {
  if (a.size != b.size) return false;
  if (a.size == 0) return true;
  return a.start == b.start && (a.size == 1 || a.step == b.step);
}

bool HoldsFor(CompareOperator op, int order) {
  switch (op) {
    case CompareOperator::kLess:
      return order < 0;
    case CompareOperator::kLessEqual:
      return order <= 0;
    case CompareOperator::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

template <typename Number>
bool CompareNumbers(CompareOperator op, Number a, Number b) {
  switch (op) {
    case CompareOperator::kLess:
      return a < b;
    case CompareOperator::kLessEqual:
      return a <= b;
    case CompareOperator::kGreater:
      return a > b;
    default:
      return a >= b;
  }
}

Result<bool> CompareItems(Runtime& runtime, CompareOperator op, const Values& a, const Values& b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    TN_ASSIGN_OR_RETURN(const bool equal, Equal(runtime, a[i], b[i]));
    if (!equal) return Compare(runtime, op, a[i], b[i]);
  }
  return CompareNumbers(op, a.size(), b.size());
}

Result<bool> Order(Runtime& runtime, CompareOperator op, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return CompareNumbers(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return CompareNumbers(op, a.as_double(), b.as_double());
  // UTF-8 bytes order as their code points do.
  if (a.is_text() && b.is_text()) {
    runtime.Work(static_cast<int64_t>(std::min(a.text().size(), b.text().size()) / 256));
    return HoldsFor(op, a.text().compare(b.text()));
  }
  if (a.is_undefined()) return UndefinedError(a);
  if (b.is_undefined()) return UndefinedError(b);
  if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) {
    return CompareItems(runtime, op, a.sequence()->items, b.sequence()->items);
  }
  constexpr std::string_view kSymbols[] = {"==", "!=", "<", "<=", ">", ">="};
  return Refused(fmt::format("'{}' is not supported between '{}' and '{}'",
                             kSymbols[static_cast<size_t>(op)], a.TypeName(), b.TypeName()));
}

}  // namespace

int64_t SearchCost(std::string_view text, std::string_view needle) {
  // The library's search may compare up to 256 bytes of the needle at every position.
  const auto per_position = static_cast<int64_t>(std::min<size_t>(needle.size(), 256) / 16 + 1);
  return 1 + static_cast<int64_t>(text.size() / 64) * per_position;
}

bool Truth(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
    case Value::Kind::kNone:
      return false;
    case Value::Kind::kBool:
      return value.as_bool();
    case Value::Kind::kInt:
      return value.as_int() != 0;
    case Value::Kind::kFloat:
      return value.as_double() != 0;
    case Value::Kind::kText:
      return !value.text().empty();
    case Value::Kind::kSequence:
      return !value.sequence()->items.empty();
    case Value::Kind::kDict:
      return !value.dict()->entries.empty();
    case Value::Kind::kRange:
      return value.range()->size > 0;
    case Value::Kind::kIterator:
    case Value::Kind::kObject:
      return true;
  }
  return true;
}

Result<bool> Equal(Runtime& runtime, const Value& a, const Value& b) {
  if (!runtime.Work(1)) return runtime.failure();
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    return a.as_double() == b.as_double();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Value::Kind::kUndefined:
    case Value::Kind::kNone:
      return true;
    case Value::Kind::kText:
      if (a.text().size() != b.text().size()) return false;
      if (!runtime.Work(static_cast<int64_t>(a.text().size() / 256))) return runtime.failure();
      return a.text() == b.text();
    case Value::Kind::kSequence:
      if (a.sequence() == b.sequence()) return true;
      if (!SameSequenceKind(a, b)) return false;
      return EqualItems(runtime, a.sequence()->items, b.sequence()->items);
    case Value::Kind::kDict:
      if (a.dict() == b.dict()) return true;
      return EqualDicts(runtime, *a.dict(), *b.dict());
    case Value::Kind::kRange:
      return EqualRanges(*a.range(), *b.range());
    default:
      return a.IsSame(b);
  }
}

Result<bool> Compare(Runtime& runtime, CompareOperator op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOperator::kEqual:
      return Equal(runtime, a, b);
    case CompareOperator::kNotEqual: {
      TN_ASSIGN_OR_RETURN(const bool equal, Equal(runtime, a, b));
      return !equal;
    }
    case CompareOperator::kIn:
      return Contains(runtime, b, a);
    case CompareOperator::kNotIn: {
      TN_ASSIGN_OR_RETURN(const bool contains, Contains(runtime, b, a));
      return !contains;
    }
    default:
      if (!runtime.Work(1)) return runtime.failure();
      return Order(runtime, op, a, b);
  }
}

Result<bool> Contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.is_text()) {
    if (!item.is_text()) {
      return Refused(fmt::format("'in' a str needs a str on the left, not '{}'", item.TypeName()));
    }
    if (!runtime.Work(SearchCost(container.text(), item.text()))) return runtime.failure();
    return FindText(container.text(), item.text()) != std::string_view::npos;
  }
  if (container.is_dict()) {
    if (!IsHashable(item)) {
      return Refused(fmt::format("'{}' cannot be a dictionary key", item.TypeName()));
    }
    if (!runtime.Work(item.extent().weight)) return runtime.failure();
    return container.dict()->Find(item) != nullptr;
  }
  if (!Cursor::CanIterate(container)) {
    return Refused(
        fmt::format("'in' needs a container on the right, not '{}'", container.TypeName()));
  }
  TN_ASSIGN_OR_RETURN(Cursor cursor, Cursor::Over(container));
  Value member;
  while (cursor.Next(runtime, member)) {
    TN_ASSIGN_OR_RETURN(const bool equal, Equal(runtime, member, item));
    if (equal) return true;
  }
  if (!runtime.ok()) return runtime.failure();
  return false;
}

}  // namespace tenon::jinja
