#include "tenon/tokenizer/jinja_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "tenon/tokenizer/jinja_operators.h"

namespace tenon::jinja {
namespace {

Result<Value> DictGet(Runtime& runtime, const Value& self, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("get", args, {"key", "default"}, 1));
  if (!IsHashable(*bound[0])) {
    return Refused(fmt::format("'{}' cannot be a dictionary key", bound[0]->TypeName()));
  }
  runtime.Work(bound[0]->extent().weight);
  const Value* found = self.dict()->Find(*bound[0]);
  if (found != nullptr) return *found;
  return bound.Has(1) ? *bound[1] : Value();
}

Result<Value> DictItems(Runtime& runtime, const Value& self, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("items", args, {}).status());
  Values items;
  items.reserve(self.dict()->entries.size());
  for (const auto& [key, value] : self.dict()->entries)
    items.push_back(runtime.Tuple({key, value}));
  return runtime.MakeSequence(SequenceType::kItems, std::move(items));
}

Result<Value> DictKeys(Runtime& runtime, const Value& self, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("keys", args, {}).status());
  Values keys;
  keys.reserve(self.dict()->entries.size());
  for (const auto& [key, value] : self.dict()->entries) keys.push_back(key);
  return runtime.MakeSequence(SequenceType::kKeys, std::move(keys));
}

Result<Value> DictValues(Runtime& runtime, const Value& self, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("values", args, {}).status());
  Values values;
  values.reserve(self.dict()->entries.size());
  for (const auto& [key, value] : self.dict()->entries) values.push_back(value);
  return runtime.MakeSequence(SequenceType::kValues, std::move(values));
}

Result<Value> DictFromKeys(Runtime& runtime, const Value&, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("fromkeys", args, {"iterable", "value"}, 1));
  TN_ASSIGN_OR_RETURN(const Values keys, ToItems(runtime, *bound[0]));
  std::vector<Dict::Entry> entries;
  for (const Value& key : keys) {
    if (!IsHashable(key)) {
      return Refused(fmt::format("'{}' cannot be a dictionary key", key.TypeName()));
    }
    entries.emplace_back(key, bound.Has(1) ? *bound[1] : Value());
  }
  return runtime.MakeDict(std::move(entries));
}

// Values are immutable, so a copy is the value itself.
Result<Value> Copy(Runtime&, const Value& self, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("copy", args, {}).status());
  return self;
}

Result<Value> SequenceCount(Runtime& runtime, const Value& self, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("count", args, {"value"}, 1));
  int64_t count = 0;
  for (const Value& item : self.sequence()->items) {
    TN_ASSIGN_OR_RETURN(const bool equal, Equal(runtime, item, *bound[0]));
    count += equal ? 1 : 0;
  }
  return Value(count);
}

Result<Value> SequenceIndex(Runtime& runtime, const Value& self, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("index", args, {"value", "start", "stop"}, 1));
  const auto size = static_cast<Int>(self.sequence()->items.size());
  Int limits[] = {0, size};
  for (size_t i = 0; i < 2; ++i) {
    if (!bound.Has(i + 1)) continue;
    TN_ASSIGN_OR_RETURN(limits[i], IntegerArgument("index", *bound[i + 1]));
    limits[i] = std::clamp<Int>(limits[i] < 0 ? limits[i] + size : limits[i], 0, size);
  }
  for (Int i = limits[0]; i < limits[1]; ++i) {
    const Value& item = self.sequence()->items[static_cast<size_t>(i)];
    TN_ASSIGN_OR_RETURN(const bool equal, Equal(runtime, item, *bound[0]));
    if (equal) return Value(i);
  }
  return Refused("index(): the value is not in the list");
}

Result<Value> FloatIsInteger(Runtime&, const Value& self, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("is_integer", args, {}).status());
  const double value = self.as_double();
  return Value(std::isfinite(value) && value == std::floor(value));
}

Result<Value> IntBitLength(Runtime&, const Value& self, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("bit_length", args, {}).status());
  int bits = 0;
  for (Int rest = self.as_int(); rest != 0; rest /= 2) ++bits;
  return Value(bits);
}

constexpr MethodEntry kDictMethods[] = {
    {"get", DictGet},     {"items", DictItems},       {"keys", DictKeys}, {"values", DictValues},
    {"copy", Copy},       {"fromkeys", DictFromKeys}, {"clear", nullptr}, {"pop", nullptr},
    {"popitem", nullptr}, {"setdefault", nullptr},    {"update", nullptr}};
constexpr MethodEntry kListMethods[] = {
    {"count", SequenceCount}, {"index", SequenceIndex}, {"copy", Copy},      {"append", nullptr},
    {"clear", nullptr},       {"pop", nullptr},         {"remove", nullptr}, {"reverse", nullptr},
    {"insert", nullptr},      {"sort", nullptr},        {"extend", nullptr}};
constexpr MethodEntry kTupleMethods[] = {{"count", SequenceCount}, {"index", SequenceIndex}};
constexpr MethodEntry kIntMethods[] = {{"bit_length", IntBitLength}};
constexpr MethodEntry kFloatMethods[] = {{"is_integer", FloatIsInteger}};

const MethodEntry* FindIn(std::span<const MethodEntry> table, std::string_view name) {
  for (const MethodEntry& entry : table) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

}  // namespace

const MethodEntry* FindMethod(const Value& self, std::string_view name) {
  switch (self.kind()) {
    case Value::Kind::kText:
      return FindTextMethod(name);
    case Value::Kind::kDict:
      return FindIn(kDictMethods, name);
    case Value::Kind::kSequence:
      if (self.is_list()) return FindIn(kListMethods, name);
      return self.is_tuple() ? FindIn(kTupleMethods, name) : nullptr;
    case Value::Kind::kBool:
    case Value::Kind::kInt:
      return FindIn(kIntMethods, name);
    case Value::Kind::kFloat:
      return FindIn(kFloatMethods, name);
    default:
      return nullptr;
  }
}

}  // namespace tenon::jinja
