#include "tenon/tokenizer/jinja_runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace tenon::jinja {
namespace {

constexpr int64_t kMaxWeight = 4'000'000;
constexpr size_t kMaxUnindexedEntries = 8;

int64_t BytesOf(const Values& items) {
  return static_cast<int64_t>(items.capacity() * sizeof(Value)) + 96;
}

struct EntryLess {
  const std::vector<Dict::Entry>* entries;
  bool operator()(uint32_t a, uint32_t b) const {
    return KeyLess((*entries)[a].first, (*entries)[b].first);
  }
};

void DropRepeats(std::vector<Dict::Entry>& entries) {
  for (size_t i = 1; i < entries.size();) {
    const auto earlier =
        std::find_if(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(i),
                     [&](const Dict::Entry& e) { return KeyEqual(e.first, entries[i].first); });
    if (earlier == entries.begin() + static_cast<std::ptrdiff_t>(i)) {
      ++i;
      continue;
    }
    earlier->second = std::move(entries[i].second);
    entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// Drops repeated keys and returns the entries' order by key (empty when few).
std::vector<uint32_t> IndexEntries(std::vector<Dict::Entry>& entries) {
  if (entries.size() <= kMaxUnindexedEntries) {
    DropRepeats(entries);
    return {};
  }
  std::vector<Dict::Entry> unique;
  unique.reserve(entries.size());
  std::vector<uint32_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0);
  // Stable, so that within equal keys the first occurrence leads and the last value ends the run.
  std::stable_sort(order.begin(), order.end(), EntryLess{&entries});
  std::vector<uint32_t> first_of(entries.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const bool repeats = i > 0 && KeyEqual(entries[order[i - 1]].first, entries[order[i]].first);
    first_of[order[i]] = repeats ? first_of[order[i - 1]] : order[i];
  }
  for (uint32_t i = 0; i < entries.size(); ++i) {
    if (first_of[i] != i) entries[first_of[i]].second = std::move(entries[i].second);
  }
  std::vector<uint32_t> place(entries.size());
  for (uint32_t i = 0; i < entries.size(); ++i) {
    place[i] = static_cast<uint32_t>(unique.size());
    if (first_of[i] == i) unique.push_back(std::move(entries[i]));
  }
  std::vector<uint32_t> index;
  if (unique.size() > kMaxUnindexedEntries) {
    index.reserve(unique.size());
    for (const uint32_t at : order) {
      if (first_of[at] == at) index.push_back(place[at]);
    }
  }
  entries = std::move(unique);
  return index;
}

}  // namespace

bool Runtime::OutOfSteps() {
  Fail(Refused(
      fmt::format("the template takes more than {} steps (limit max_steps)", limits_.max_steps)));
  return false;
}

void Runtime::CheckMemory() {
  if (live_bytes_ <= limits_.max_live_bytes) return;
  Fail(Refused(fmt::format("the template's values take more than {} bytes (limit max_live_bytes)",
                           limits_.max_live_bytes)));
}

Status Runtime::Reserve(Int bytes) {
  if (bytes <= limits_.max_live_bytes - live_bytes_) return {};
  return Refused(
      fmt::format("an operation makes a value of {} bytes, {} are allowed (limit "
                  "max_live_bytes)",
                  bytes, limits_.max_live_bytes));
}

Value Runtime::String(std::string text, bool markup) {
  const auto bytes = static_cast<int64_t>(text.capacity()) + 96;
  Work(bytes / 64);
  Value value(
      std::make_shared<const Text>(Text{std::move(text), markup, Charge(&live_bytes_, bytes)}));
  CheckMemory();
  return value;
}

Extent Runtime::ExtentOf(const Values& items, Extent so_far) {
  for (const Value& item : items) {
    const Extent extent = item.extent();
    so_far.depth = std::max(so_far.depth, extent.depth + 1);
    so_far.weight = std::min(so_far.weight + extent.weight, kMaxWeight + 1);
  }
  CheckExtent(so_far);
  return so_far;
}

void Runtime::CheckExtent(const Extent& extent) {
  if (extent.depth > kMaxValueDepth) {
    Fail(Refused(fmt::format("a value is nested deeper than {} levels", kMaxValueDepth)));
  }
  if (extent.weight > kMaxWeight) {
    Fail(Refused(fmt::format("a value has more than {} parts", kMaxWeight)));
  }
}

Value Runtime::Adopt(std::shared_ptr<Object> object) {
  constexpr int64_t kObjectBytes = 256;
  object->charge.Begin(&live_bytes_, kObjectBytes);
  CheckExtent(object->extent);
  CheckMemory();
  return ok() ? Value(std::move(object)) : Value();
}

Value Runtime::MakeSequence(SequenceType type, Values items) {
  Work(static_cast<int64_t>(items.size() / 4));
  const Extent extent = ExtentOf(items);
  if (!ok()) return {};
  const int64_t bytes = BytesOf(items);
  Value value(std::make_shared<const Sequence>(
      Sequence{type, std::move(items), extent, Charge(&live_bytes_, bytes)}));
  CheckMemory();
  return value;
}

Value Runtime::MakeDict(std::vector<Dict::Entry> entries) {
  Work(static_cast<int64_t>(entries.size()));
  Extent extent;
  for (const auto& [key, value] : entries) {
    for (const Extent& part : {key.extent(), value.extent()}) {
      extent.depth = std::max(extent.depth, part.depth + 1);
      extent.weight = std::min(extent.weight + part.weight, kMaxWeight + 1);
    }
  }
  extent = ExtentOf({}, extent);
  if (!ok()) return {};
  std::vector<uint32_t> order = IndexEntries(entries);
  const auto bytes = static_cast<int64_t>(entries.capacity() * sizeof(Dict::Entry) +
                                          order.capacity() * sizeof(uint32_t) + 128);
  Value value(std::make_shared<const Dict>(
      Dict{std::move(entries), std::move(order), extent, Charge(&live_bytes_, bytes)}));
  CheckMemory();
  return value;
}

Value Runtime::MakeIterator(Values items, std::string_view type_name) {
  Work(static_cast<int64_t>(items.size() / 4));
  const Extent extent = ExtentOf(items);
  if (!ok()) return {};
  const int64_t bytes = BytesOf(items);
  Value value(std::make_shared<Iterator>(
      Iterator{std::move(items), 0, type_name, extent, Charge(&live_bytes_, bytes)}));
  CheckMemory();
  return value;
}

Status Nesting::Error() const {
  return Refused(fmt::format(
      "recursion of {} levels is too deep (limits max_depth, max_stack_bytes)", runtime_.nesting));
}

Result<Bound> Bind(std::string_view function, const Args& args,
                   std::initializer_list<std::string_view> parameters, size_t num_required) {
  Bound bound;
  if (args.positional.size() > parameters.size()) {
    return Refused(fmt::format("{}: takes at most {} arguments, {} given", function,
                               parameters.size(), args.positional.size()));
  }
  for (size_t i = 0; i < args.positional.size(); ++i) bound.values[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    const auto* found = std::find(parameters.begin(), parameters.end(), name.text());
    if (found == parameters.end()) {
      return Refused(fmt::format("{}: unexpected argument '{}'", function, name.text()));
    }
    const auto at = static_cast<size_t>(found - parameters.begin());
    if (bound.values[at] != nullptr) {
      return Refused(fmt::format("{}: two values for the argument '{}'", function, name.text()));
    }
    bound.values[at] = &value;
  }
  for (size_t i = 0; i < num_required; ++i) {
    if (bound.values[i] == nullptr) {
      return Refused(
          fmt::format("{}: the argument '{}' is missing", function, parameters.begin()[i]));
    }
  }
  return bound;
}

Result<Int> IntegerArgument(std::string_view function, const Value& value) {
  if (value.is_integral()) return value.as_int();
  if (value.is_undefined()) return Refused(value.undefined().Message());
  return Refused(fmt::format("{}: wants an integer, not '{}'", function, value.TypeName()));
}

Result<std::string_view> TextArgument(std::string_view function, const Value& value) {
  if (value.is_text()) return value.text();
  if (value.is_undefined()) return Refused(value.undefined().Message());
  return Refused(fmt::format("{}: wants a str, not '{}'", function, value.TypeName()));
}

}  // namespace tenon::jinja
