#include "tenon/tokenizer/jinja_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tenon::jinja {
namespace {

// Hashable values in classes that never equal each other; numbers share one.
int KeyClass(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kNone:
      return 0;
    case Value::Kind::kBool:
    case Value::Kind::kInt:
    case Value::Kind::kFloat:
      return 1;
    case Value::Kind::kText:
      return 2;
    case Value::Kind::kSequence:
      return 3;
    case Value::Kind::kUndefined:
      return 4;
    case Value::Kind::kRange:
      return 5;
    default:
      return 6;
  }
}

// An order over numbers that puts NaN first, so that it is strict.
int CompareNumbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    return a.as_int() < b.as_int() ? -1 : (a.as_int() > b.as_int() ? 1 : 0);
  }
  const double x = a.as_double();
  const double y = b.as_double();
  if (std::isnan(x) || std::isnan(y)) return (std::isnan(y) ? 1 : 0) - (std::isnan(x) ? 1 : 0);
  return x < y ? -1 : (x > y ? 1 : 0);
}

const void* Identity(const Value& value) {
  if (value.is_object()) return value.object().get();
  if (value.is_iterator()) return value.iterator().get();
  if (value.is_range()) return value.range().get();
  return nullptr;
}

int CompareKeys(const Value& a, const Value& b) {
  const int class_a = KeyClass(a);
  const int class_b = KeyClass(b);
  if (class_a != class_b) return class_a < class_b ? -1 : 1;
  if (class_a == 1) return CompareNumbers(a, b);
  if (class_a == 2) {
    const int order = a.text().compare(b.text());
    return order < 0 ? -1 : (order > 0 ? 1 : 0);
  }
  if (class_a == 3) {
    const Values& x = a.sequence()->items;
    const Values& y = b.sequence()->items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      const int order = CompareKeys(x[i], y[i]);
      if (order != 0) return order;
    }
    return x.size() < y.size() ? -1 : (x.size() > y.size() ? 1 : 0);
  }
  if (class_a >= 5) {
    const void* x = Identity(a);
    const void* y = Identity(b);
    return std::less<const void*>()(x, y) ? -1 : (x == y ? 0 : 1);
  }
  return 0;
}

bool HasNan(const Value& value) { return value.is_float() && std::isnan(value.as_double()); }

}  // namespace

std::string UndefinedInfo::Message() const {
  if (!hint.empty()) return hint;
  if (owner.empty()) return fmt::format("'{}' is undefined", name);
  return fmt::format("'{}' has no attribute '{}'", owner, name);
}

Value::Value(Int value) {
  if (value >= std::numeric_limits<int64_t>::min() &&
      value <= std::numeric_limits<int64_t>::max()) {
    data_ = static_cast<int64_t>(value);
  } else {
    data_ = std::make_shared<const Int>(value);
  }
}

Value Value::Undefined(UndefinedInfo info) {
  return Value(std::make_shared<const UndefinedInfo>(std::move(info)));
}

Value Value::ConstantText(std::string text) {
  return Value(std::make_shared<const Text>(Text{std::move(text), false, {}}));
}

bool Value::is_list() const { return is_sequence() && sequence()->type == SequenceType::kList; }

bool Value::is_tuple() const {
  if (!is_sequence()) return false;
  const SequenceType type = sequence()->type;
  return type == SequenceType::kTuple || type == SequenceType::kGroup;
}

Int Value::as_int() const {
  if (const auto* small = std::get_if<int64_t>(&data_)) return *small;
  if (const auto* truth = std::get_if<bool>(&data_)) return *truth ? 1 : 0;
  return *std::get<std::shared_ptr<const Int>>(data_);
}

double Value::as_double() const {
  if (const auto* real = std::get_if<double>(&data_)) return *real;
  return static_cast<double>(as_int());
}

std::string_view Value::TypeName() const {
  switch (kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kText:
      return is_markup() ? "Markup" : "str";
    case Kind::kSequence: {
      constexpr std::string_view kNames[] = {"list",       "tuple",     "tuple",
                                             "dict_items", "dict_keys", "dict_values"};
      return kNames[static_cast<size_t>(sequence()->type)];
    }
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return iterator()->type_name;
    case Kind::kObject:
      return object()->TypeName();
  }
  return "object";
}

Extent Value::extent() const {
  switch (kind()) {
    case Kind::kUndefined:
      return {0, 4};  // heavier than it looks
    case Kind::kText:
      return {0, 1 + static_cast<int64_t>(text().size() / 64)};
    case Kind::kSequence:
      return sequence()->extent;
    case Kind::kDict:
      return dict()->extent;
    case Kind::kIterator:
      return iterator()->extent;
    case Kind::kObject:
      return object()->extent;
    default:
      return {};
  }
}

bool Value::IsSame(const Value& other) const {
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::kUndefined:
      return data_ == other.data_;
    case Kind::kNone:
      return true;
    case Kind::kBool:
      return as_bool() == other.as_bool();
    case Kind::kInt:
      return as_int() == other.as_int();  // CPython shares small integers only
    case Kind::kText:
      return text() == other.text();  // and interns literals
    default:
      return data_ == other.data_;
  }
}

const Value* Dict::Find(const Value& key) const {
  if (HasNan(key)) return nullptr;
  if (order.empty()) {
    for (const Entry& entry : entries) {
      if (KeyEqual(entry.first, key)) return &entry.second;
    }
    return nullptr;
  }
  const auto found = std::lower_bound(
      order.begin(), order.end(), key,
      [this](uint32_t at, const Value& wanted) { return KeyLess(entries[at].first, wanted); });
  if (found == order.end() || !KeyEqual(entries[*found].first, key)) return nullptr;
  return &entries[*found].second;
}

const Value* Dict::Find(std::string_view key) const {
  constexpr int kTextClass = 2;
  const auto equals = [&](const Value& other) { return other.is_text() && other.text() == key; };
  if (order.empty()) {
    for (const Entry& entry : entries) {
      if (equals(entry.first)) return &entry.second;
    }
    return nullptr;
  }
  const auto found = std::lower_bound(
      order.begin(), order.end(), key, [this](uint32_t at, std::string_view wanted) {
        const Value& other = entries[at].first;
        return other.is_text() ? other.text() < wanted : KeyClass(other) < kTextClass;
      });
  if (found == order.end() || !equals(entries[*found].first)) return nullptr;
  return &entries[*found].second;
}

Status Object::AppendRepr(Runtime&, std::string& out) const {
  out += fmt::format("<{} object>", TypeName());
  return {};
}
Result<Value> Object::Attribute(Runtime&, std::string_view) { return Value::Missing(); }
Result<Value> Object::Call(Runtime&, const Args&) {
  return Refused(fmt::format("'{}' object is not callable", TypeName()));
}
Result<int64_t> Object::Length(Runtime&) {
  return Refused(fmt::format("object of type '{}' has no len()", TypeName()));
}

bool IsHashable(const Value& value) {
  if (value.is_dict()) return false;
  if (!value.is_sequence()) return true;
  if (!value.is_tuple()) return false;
  const Values& items = value.sequence()->items;
  return std::all_of(items.begin(), items.end(), IsHashable);
}

bool KeyLess(const Value& a, const Value& b) { return CompareKeys(a, b) < 0; }
bool KeyEqual(const Value& a, const Value& b) { return !HasNan(a) && CompareKeys(a, b) == 0; }

}  // namespace tenon::jinja
