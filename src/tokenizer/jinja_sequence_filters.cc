#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tenon/tokenizer/jinja_filters.h"
#include "tenon/tokenizer/jinja_operators.h"
#include "tenon/tokenizer/jinja_print.h"
#include "tenon/tokenizer/jinja_sorting.h"
#include "tenon/tokenizer/jinja_unicode.h"

namespace tenon::jinja {
namespace {

Value NoItem(std::string_view what) { return Value::Undefined({{}, {}, std::string(what)}); }

Result<Value> List(Runtime& runtime, const Value& input, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("list", args, {}).status());
  TN_ASSIGN_OR_RETURN(Values items, ToItems(runtime, input));
  return runtime.List(std::move(items));
}

Result<Value> First(Runtime& runtime, const Value& input, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("first", args, {}).status());
  TN_ASSIGN_OR_RETURN(Cursor cursor, Cursor::Over(input));
  Value item;
  if (cursor.Next(runtime, item)) return item;
  return NoItem("no first item, the sequence was empty");
}

Result<Value> Last(Runtime& runtime, const Value& input, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("last", args, {}).status());
  if (input.is_iterator()) {
    return Refused("last: a generator cannot be read from its end; use | list | last");
  }
  if (input.is_text() && !input.text().empty()) {
    const std::string_view text = input.text();
    const size_t num_bytes = DecodeBefore(text, text.size()).num_bytes;
    return runtime.StringLike(input, std::string(text.substr(text.size() - num_bytes)));
  }
  if (input.is_dict() && !input.dict()->entries.empty()) return input.dict()->entries.back().first;
  if (input.is_range() && input.range()->size > 0) {
    return Value(input.range()->At(input.range()->size - 1));
  }
  if (input.is_sequence() && !input.sequence()->items.empty())
    return input.sequence()->items.back();
  TN_RETURN_IF_ERROR(Cursor::Over(input).status());
  return NoItem("no last item, the sequence was empty");
}

Result<Value> Reverse(Runtime& runtime, const Value& input, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("reverse", args, {}).status());
  if (input.is_text()) return GetSlice(runtime, input, Value(), Value(), Value(-1));
  TN_ASSIGN_OR_RETURN(Values items, ToItems(runtime, input));
  std::reverse(items.begin(), items.end());
  return input.is_iterator() ? runtime.List(std::move(items))
                             : runtime.MakeIterator(std::move(items), "reversed");
}

Result<Value> Join(Runtime& runtime, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("join", args, {"d", "attribute"}));
  TN_ASSIGN_OR_RETURN(const AttributePath path,
                      AttributePath::Parse(runtime, bound.Has(1) ? *bound[1] : Value()));
  TN_ASSIGN_OR_RETURN(Cursor cursor, Cursor::Over(input));
  Values items;
  Value item;
  bool markup = runtime.autoescape && bound.Has(0) && bound[0]->is_markup();
  while (cursor.Next(runtime, item)) {
    TN_ASSIGN_OR_RETURN(Value part, path.Get(runtime, item));
    markup = markup || (runtime.autoescape && part.is_markup());
    items.push_back(std::move(part));
  }
  if (!runtime.ok()) return runtime.failure();
  const auto append = [&](const Value& value, std::string& out) {
    return markup ? AppendEscapedValue(runtime, value, out) : AppendStr(runtime, value, out);
  };
  std::string separator;
  if (bound.Has(0)) TN_RETURN_IF_ERROR(append(*bound[0], separator));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += separator;
    TN_RETURN_IF_ERROR(append(items[i], out));
    if (i % 64 == 0) TN_RETURN_IF_ERROR(runtime.Reserve(static_cast<Int>(out.size())));
  }
  return runtime.String(std::move(out), markup);
}

Result<Value> Items(Runtime& runtime, const Value& input, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("items", args, {}).status());
  Values pairs;
  if (input.is_dict()) {
    for (const auto& [key, value] : input.dict()->entries) {
      pairs.push_back(runtime.Tuple({key, value}));
    }
  } else if (!input.is_undefined()) {
    return Refused(fmt::format("items wants a dictionary, not '{}'", input.TypeName()));
  }
  return runtime.MakeIterator(std::move(pairs));
}

// How many items to put together; bounded, since the caller may allocate as many.
Result<int64_t> CountArgument(Runtime& runtime, std::string_view filter, const Value& value) {
  TN_ASSIGN_OR_RETURN(const Int count, IntegerArgument(filter, value));
  if (count < 1) return Refused(fmt::format("{}(): the number must be at least 1", filter));
  TN_RETURN_IF_ERROR(runtime.Reserve(count * Int{sizeof(Value)}));
  return static_cast<int64_t>(count);
}

Result<Value> Batch(Runtime& runtime, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("batch", args, {"linecount", "fill_with"}, 1));
  const bool fills = bound.HasValue(1);
  Int count = 0;
  TN_ASSIGN_OR_RETURN(count, IntegerArgument("batch", *bound[0]));
  if (fills) TN_RETURN_IF_ERROR(CountArgument(runtime, "batch", *bound[0]).status());
  TN_ASSIGN_OR_RETURN(Cursor cursor, Cursor::Over(input));
  Values batches;
  Values batch;
  Value item;
  while (cursor.Next(runtime, item)) {
    if (static_cast<Int>(batch.size()) == count) {
      batches.push_back(runtime.List(std::exchange(batch, {})));
    }
    batch.push_back(std::move(item));
  }
  if (!runtime.ok()) return runtime.failure();
  if (!batch.empty()) {
    if (fills && static_cast<Int>(batch.size()) < count) {
      batch.resize(static_cast<size_t>(count), *bound[1]);
    }
    batches.push_back(runtime.List(std::move(batch)));
  }
  return runtime.MakeIterator(std::move(batches));
}

Result<Value> Slice(Runtime& runtime, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("slice", args, {"slices", "fill_with"}, 1));
  TN_ASSIGN_OR_RETURN(const int64_t count, CountArgument(runtime, "slice", *bound[0]));
  TN_ASSIGN_OR_RETURN(const Values items, ToItems(runtime, input));
  const auto size = static_cast<int64_t>(items.size());
  const int64_t with_extra = size % count;
  Values slices;
  int64_t begin = 0;
  for (int64_t i = 0; i < count && runtime.ok(); ++i) {
    const int64_t end = begin + size / count + (i < with_extra ? 1 : 0);
    Values slice(items.begin() + begin, items.begin() + end);
    if (bound.HasValue(1) && i >= with_extra) slice.push_back(*bound[1]);
    slices.push_back(runtime.List(std::move(slice)));
    begin = end;
  }
  return runtime.MakeIterator(std::move(slices));
}

Result<Value> Sort(Runtime& runtime, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound,
                      Bind("sort", args, {"reverse", "case_sensitive", "attribute"}));
  const bool case_sensitive = bound.Has(1) && Truth(*bound[1]);
  TN_ASSIGN_OR_RETURN(const std::vector<AttributePath> paths,
                      ParsePaths(runtime, bound.Has(2) ? *bound[2] : Value()));
  TN_ASSIGN_OR_RETURN(const Values items, ToItems(runtime, input));
  std::vector<Keyed> keyed;
  keyed.reserve(items.size());
  for (const Value& item : items) {
    Keyed entry{{}, item};
    for (const AttributePath& path : paths) {
      TN_ASSIGN_OR_RETURN(Value key, path.Get(runtime, item));
      entry.key.push_back(case_sensitive ? key : IgnoreCase(runtime, key));
    }
    keyed.push_back(std::move(entry));
  }
  TN_RETURN_IF_ERROR(SortByKey(runtime, keyed, bound.Has(0) && Truth(*bound[0]), true));
  Values sorted;
  sorted.reserve(keyed.size());
  for (Keyed& entry : keyed) sorted.push_back(std::move(entry.item));
  return runtime.List(std::move(sorted));
}

Result<Value> DictSort(Runtime& runtime, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound,
                      Bind("dictsort", args, {"case_sensitive", "by", "reverse"}));
  if (input.is_undefined()) return UndefinedError(input);
  if (!input.is_dict()) {
    return Refused(fmt::format("dictsort wants a dictionary, not '{}'", input.TypeName()));
  }
  const bool case_sensitive = bound.Has(0) && Truth(*bound[0]);
  std::string_view by = "key";
  if (bound.Has(1)) {
    TN_ASSIGN_OR_RETURN(by, TextArgument("dictsort", *bound[1]));
  }
  if (by != "key" && by != "value") {
    return Refused(fmt::format("dictsort(): by = '{}', must be key or value", by));
  }
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : input.dict()->entries) {
    const Value& part = by == "key" ? key : value;
    keyed.push_back(
        {{case_sensitive ? part : IgnoreCase(runtime, part)}, runtime.Tuple({key, value})});
  }
  TN_RETURN_IF_ERROR(SortByKey(runtime, keyed, bound.Has(2) && Truth(*bound[2])));
  Values sorted;
  for (Keyed& entry : keyed) sorted.push_back(std::move(entry.item));
  return runtime.List(std::move(sorted));
}

Result<Value> GroupBy(Runtime& runtime, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound,
                      Bind("groupby", args, {"attribute", "default", "case_sensitive"}, 1));
  const bool case_sensitive = bound.Has(2) && Truth(*bound[2]);
  const Value* fallback = bound.HasValue(1) ? bound[1] : nullptr;
  TN_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(runtime, *bound[0]));
  TN_ASSIGN_OR_RETURN(const Values items, ToItems(runtime, input));
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    TN_ASSIGN_OR_RETURN(Value key, path.Get(runtime, item, fallback));
    keyed.push_back({{case_sensitive ? key : IgnoreCase(runtime, key)}, item});
  }
  TN_RETURN_IF_ERROR(SortByKey(runtime, keyed, false));
  Values groups;
  for (size_t begin = 0; begin < keyed.size();) {
    size_t end = begin;
    Values members;
    for (; end < keyed.size(); ++end) {
      TN_ASSIGN_OR_RETURN(const bool same, Equal(runtime, keyed[end].key[0], keyed[begin].key[0]));
      if (!same && end > begin) break;
      members.push_back(keyed[end].item);
    }
    TN_ASSIGN_OR_RETURN(Value grouper, path.Get(runtime, members[0], fallback));
    groups.push_back(runtime.MakeSequence(SequenceType::kGroup,
                                          {std::move(grouper), runtime.List(std::move(members))}));
    begin = end;
  }
  return runtime.List(std::move(groups));
}

struct KeyLessOrder {
  bool operator()(const Value& a, const Value& b) const { return KeyLess(a, b); }
};

Result<Value> Unique(Runtime& runtime, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("unique", args, {"case_sensitive", "attribute"}));
  const bool case_sensitive = bound.Has(0) && Truth(*bound[0]);
  TN_ASSIGN_OR_RETURN(const AttributePath path,
                      AttributePath::Parse(runtime, bound.Has(1) ? *bound[1] : Value()));
  TN_ASSIGN_OR_RETURN(const Values items, ToItems(runtime, input));
  std::set<Value, KeyLessOrder> seen;
  Values unique;
  for (const Value& item : items) {
    TN_ASSIGN_OR_RETURN(Value key, path.Get(runtime, item));
    if (!IsHashable(key)) {
      return Refused(fmt::format("unique: '{}' cannot be compared by key", key.TypeName()));
    }
    if (!runtime.Work(4 + key.extent().weight)) return runtime.failure();
    if (seen.insert(case_sensitive ? key : IgnoreCase(runtime, key)).second) unique.push_back(item);
  }
  return runtime.MakeIterator(std::move(unique));
}

template <bool kMax>
Result<Value> Extreme(Runtime& runtime, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("min/max", args, {"case_sensitive", "attribute"}));
  const bool case_sensitive = bound.Has(0) && Truth(*bound[0]);
  TN_ASSIGN_OR_RETURN(const AttributePath path,
                      AttributePath::Parse(runtime, bound.Has(1) ? *bound[1] : Value()));
  TN_ASSIGN_OR_RETURN(Cursor cursor, Cursor::Over(input));
  Value best = Value::Missing();
  Value best_key;
  Value item;
  while (cursor.Next(runtime, item)) {
    TN_ASSIGN_OR_RETURN(Value key, path.Get(runtime, item));
    if (!case_sensitive) key = IgnoreCase(runtime, key);
    bool better = best.is_missing();
    if (!better) {
      TN_ASSIGN_OR_RETURN(
          better, Compare(runtime, kMax ? CompareOperator::kGreater : CompareOperator::kLess, key,
                          best_key));
    }
    if (!better) continue;
    best = item;
    best_key = std::move(key);
  }
  if (!runtime.ok()) return runtime.failure();
  return best.is_missing() ? NoItem("no item, the sequence was empty") : best;
}

Result<Value> Sum(Runtime& runtime, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("sum", args, {"attribute", "start"}));
  TN_ASSIGN_OR_RETURN(const AttributePath path,
                      AttributePath::Parse(runtime, bound.Has(0) ? *bound[0] : Value()));
  Value total = bound.Has(1) ? *bound[1] : Value(0);
  if (total.is_text()) return Refused("sum cannot add texts; use join");
  TN_ASSIGN_OR_RETURN(Cursor cursor, Cursor::Over(input));
  Value item;
  while (cursor.Next(runtime, item)) {
    TN_ASSIGN_OR_RETURN(const Value part, path.Get(runtime, item));
    TN_ASSIGN_OR_RETURN(total, Calculate(runtime, BinaryOperator::kAdd, total, part));
  }
  if (!runtime.ok()) return runtime.failure();
  return total;
}

constexpr FilterEntry kFilters[] = {
    {"list", List},          {"first", First},       {"last", Last},       {"join", Join},
    {"items", Items},        {"reverse", Reverse},   {"batch", Batch},     {"slice", Slice},
    {"sort", Sort},          {"dictsort", DictSort}, {"groupby", GroupBy}, {"unique", Unique},
    {"min", Extreme<false>}, {"max", Extreme<true>}, {"sum", Sum}};

}  // namespace

const FilterEntry* FindSequenceFilter(std::string_view name) {
  for (const FilterEntry& entry : kFilters) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

}  // namespace tenon::jinja
