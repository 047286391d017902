#include <fmt/format.h>

#include "tenon/tokenizer/jinja_filters.h"
#include "tenon/tokenizer/jinja_operators.h"
#include "tenon/tokenizer/jinja_sorting.h"
#include "tenon/tokenizer/jinja_tests.h"

namespace tenon::jinja {
namespace {

// The rest of the arguments, for the filter or test that is applied.
Args RestOf(const Args& args, size_t from) {
  Args rest;
  if (args.positional.size() > from) {
    rest.positional.assign(args.positional.begin() + static_cast<std::ptrdiff_t>(from),
                           args.positional.end());
  }
  rest.named = args.named;
  return rest;
}

Result<Value> MapAttribute(Runtime& runtime, Cursor cursor, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("map", args, {"attribute", "default"}, 1));
  TN_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(runtime, *bound[0]));
  const Value* fallback = bound.HasValue(1) ? bound[1] : nullptr;
  Values mapped;
  Value item;
  while (cursor.Next(runtime, item)) {
    TN_ASSIGN_OR_RETURN(Value part, path.Get(runtime, item, fallback));
    mapped.push_back(std::move(part));
  }
  return runtime.MakeIterator(std::move(mapped));
}

Result<Value> Map(Runtime& runtime, const Value& input, const Args& args) {
  if (!Truth(input)) return runtime.MakeIterator({});
  TN_ASSIGN_OR_RETURN(Cursor cursor, Cursor::Over(input));
  bool by_attribute = false;
  for (const auto& [name, value] : args.named) {
    by_attribute = by_attribute || name.text() == "attribute";
  }
  if (args.positional.empty() && by_attribute) {
    return MapAttribute(runtime, std::move(cursor), args);
  }
  if (args.positional.empty()) return Refused("map wants the name of a filter or attribute=");
  TN_ASSIGN_OR_RETURN(const std::string_view name, TextArgument("map", args.positional[0]));
  const FilterEntry* filter = FindFilter(name);
  if (filter == nullptr) return Refused(fmt::format("no filter named '{}'", name));
  const Args rest = RestOf(args, 1);
  const Nesting nesting(runtime);  // map('map', 'map', ...) recurses
  if (nesting.too_deep()) return nesting.Error();
  Values mapped;
  Value item;
  while (cursor.Next(runtime, item)) {
    TN_ASSIGN_OR_RETURN(Value result, CallFilter(runtime, *filter, item, rest));
    mapped.push_back(std::move(result));
  }
  return runtime.MakeIterator(std::move(mapped));
}

// select, reject; with an attribute: selectattr, rejectattr.
template <bool kKeep, bool kAttribute>
Result<Value> Select(Runtime& runtime, const Value& input, const Args& args) {
  if (!Truth(input)) return runtime.MakeIterator({});
  constexpr size_t kTestAt = kAttribute ? 1 : 0;
  AttributePath path;
  if (kAttribute) {
    if (args.positional.empty()) return Refused("selectattr wants the name of an attribute");
    TN_ASSIGN_OR_RETURN(path, AttributePath::Parse(runtime, args.positional[0]));
  }
  const TestEntry* test = nullptr;
  if (args.positional.size() > kTestAt) {
    TN_ASSIGN_OR_RETURN(const std::string_view name,
                        TextArgument("select", args.positional[kTestAt]));
    test = FindTest(name);
    if (test == nullptr) return Refused(fmt::format("no test named '{}'", name));
  }
  const Args rest = RestOf(args, kTestAt + 1);
  TN_ASSIGN_OR_RETURN(Cursor cursor, Cursor::Over(input));
  Values selected;
  Value item;
  while (cursor.Next(runtime, item)) {
    TN_ASSIGN_OR_RETURN(const Value part, path.Get(runtime, item));
    bool holds = Truth(part);
    if (test != nullptr) {
      TN_ASSIGN_OR_RETURN(holds, CallTest(runtime, *test, part, rest));
    }
    if (holds == kKeep) selected.push_back(item);
  }
  return runtime.MakeIterator(std::move(selected));
}

constexpr FilterEntry kFilters[] = {{"map", Map},
                                    {"select", Select<true, false>},
                                    {"reject", Select<false, false>},
                                    {"selectattr", Select<true, true>},
                                    {"rejectattr", Select<false, true>}};

}  // namespace

const FilterEntry* FindSelectionFilter(std::string_view name) {
  for (const FilterEntry& entry : kFilters) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

}  // namespace tenon::jinja
