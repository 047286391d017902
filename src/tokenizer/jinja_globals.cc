#include "tenon/tokenizer/jinja_globals.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/tokenizer/jinja_methods.h"
#include "tenon/tokenizer/jinja_operators.h"
#include "tenon/tokenizer/jinja_print.h"

namespace tenon::jinja {
namespace {

using Function = Result<Value> (*)(Runtime& runtime, const Args& args);

class FunctionObject : public Object {
 public:
  explicit FunctionObject(Function function) : function_(function) {}
  std::string_view TypeName() const override { return "function"; }
  bool callable() const override { return true; }
  Result<Value> Attribute(Runtime& runtime, std::string_view name) override;
  Result<Value> Call(Runtime& runtime, const Args& args) override {
    return function_(runtime, args);
  }

 private:
  Function function_;
};

// joiner(): nothing the first time, the separator from then on.
class JoinerObject : public Object {
 public:
  explicit JoinerObject(Value separator) : separator_(std::move(separator)) {
    extent = separator_.extent();
    ++extent.depth;
  }
  std::string_view TypeName() const override { return "Joiner"; }
  bool callable() const override { return true; }
  Result<Value> Call(Runtime& runtime, const Args& args) override {
    TN_RETURN_IF_ERROR(Bind("joiner", args, {}).status());
    return std::exchange(used_, true) ? separator_ : runtime.String("");
  }

 private:
  Value separator_;
  bool used_ = false;
};

// cycler(a, b, ...): .next() walks in a circle, .current peeks, .reset() starts again.
class CyclerObject : public Object, public std::enable_shared_from_this<CyclerObject> {
 public:
  explicit CyclerObject(Values items) : items_(std::move(items)) {
    for (const Value& item : items_) {
      const Extent part = item.extent();
      extent.depth = std::max(extent.depth, part.depth + 1);
      extent.weight += part.weight;
    }
  }
  std::string_view TypeName() const override { return "Cycler"; }
  Result<Value> Attribute(Runtime& runtime, std::string_view name) override;
  Value Next() {
    const size_t at = at_;
    at_ = (at_ + 1) % items_.size();
    return items_[at];
  }
  void Reset() { at_ = 0; }

 private:
  Values items_;
  size_t at_ = 0;
};

class CyclerMethod : public Object {
 public:
  CyclerMethod(std::shared_ptr<CyclerObject> cycler, bool is_next)
      : cycler_(std::move(cycler)), is_next_(is_next) {
    extent = cycler_->extent;
    ++extent.depth;
  }
  std::string_view TypeName() const override { return "method"; }
  bool callable() const override { return true; }
  Result<Value> Call(Runtime&, const Args& args) override {
    TN_RETURN_IF_ERROR(Bind(is_next_ ? "next" : "reset", args, {}).status());
    if (is_next_) return cycler_->Next();
    cycler_->Reset();
    return Value();
  }

 private:
  std::shared_ptr<CyclerObject> cycler_;
  bool is_next_;
};

template <typename Made, typename... Arguments>
Value MakeObject(Runtime& runtime, Arguments&&... arguments) {
  return runtime.Adopt(std::make_shared<Made>(std::forward<Arguments>(arguments)...));
}

Result<Value> CyclerObject::Attribute(Runtime& runtime, std::string_view name) {
  if (name == "current") return items_[at_];
  if (name == "next" || name == "reset") {
    return MakeObject<CyclerMethod>(runtime, shared_from_this(), name == "next");
  }
  return Value::Missing();
}

Result<Value> MakeRange(Runtime&, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("range", args, {"start", "stop", "step"}, 1));
  Int parts[] = {0, 0, 1};
  for (size_t i = 0; i < 3; ++i) {
    if (!bound.Has(i)) continue;
    if (bound[i]->is_undefined()) return UndefinedError(*bound[i]);
    TN_ASSIGN_OR_RETURN(parts[i], IntegerArgument("range", *bound[i]));
    // Keeps the arithmetic below from overflowing; no such range is small enough anyway.
    constexpr Int kLimit = Int{1} << 100;
    if (parts[i] > kLimit || parts[i] < -kLimit) return Refused("range(): a number is too large");
  }
  Range range{parts[0], parts[1], parts[2], 0};
  if (!bound.Has(1)) range = Range{0, parts[0], 1, 0};
  if (range.step == 0) return Refused("range(): step cannot be zero");
  const Int span = range.step > 0 ? range.stop - range.start : range.start - range.stop;
  const Int stride = range.step > 0 ? range.step : -range.step;
  range.size = span > 0 ? (span - 1) / stride + 1 : 0;
  if (range.size > kMaxRange) {
    return Refused(fmt::format("range(): {} items, at most {} are allowed", range.size, kMaxRange));
  }
  return Value(std::make_shared<const Range>(range));
}

// Entries of dict(...) and namespace(...): one mapping or iterable of pairs, then named ones.
Result<std::vector<Dict::Entry>> EntriesOf(Runtime& runtime, std::string_view function,
                                           const Args& args) {
  std::vector<Dict::Entry> entries;
  if (args.positional.size() > 1) {
    return Refused(fmt::format("{}() takes at most 1 positional argument", function));
  }
  if (!args.positional.empty() && args.positional[0].is_dict()) {
    entries = args.positional[0].dict()->entries;
  } else if (!args.positional.empty()) {
    TN_ASSIGN_OR_RETURN(const Values items, ToItems(runtime, args.positional[0]));
    for (const Value& item : items) {
      TN_ASSIGN_OR_RETURN(Values pair, ToItems(runtime, item));
      if (pair.size() != 2 || !IsHashable(pair[0])) {
        return Refused(fmt::format("{}() wants pairs of a key and a value", function));
      }
      entries.emplace_back(std::move(pair[0]), std::move(pair[1]));
    }
  }
  for (const auto& [name, value] : args.named) entries.emplace_back(name, value);
  return entries;
}

Result<Value> MakeDictionary(Runtime& runtime, const Args& args) {
  TN_ASSIGN_OR_RETURN(std::vector<Dict::Entry> entries, EntriesOf(runtime, "dict", args));
  return runtime.MakeDict(std::move(entries));
}

Result<Value> FunctionObject::Attribute(Runtime& runtime, std::string_view name) {
  if (function_ != MakeDictionary || name != "fromkeys") return Value::Missing();
  const Value empty = runtime.MakeDict({});
  if (!empty.is_dict()) return runtime.failure();
  return MakeObject<BoundMethod>(runtime, empty, *FindMethod(empty, name));
}

Result<Value> MakeNamespace(Runtime& runtime, const Args& args) {
  TN_ASSIGN_OR_RETURN(const std::vector<Dict::Entry> entries,
                      EntriesOf(runtime, "namespace", args));
  runtime.Work(8);
  auto made = std::make_shared<NamespaceObject>();
  runtime.Track(made);
  for (const auto& [key, value] : entries) {
    if (!key.is_text()) return Refused("namespace(): attribute names must be str");
    TN_RETURN_IF_ERROR(made->Set(runtime, key.text(), value));
  }
  return runtime.Adopt(std::move(made));
}

Result<Value> MakeJoiner(Runtime& runtime, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("joiner", args, {"sep"}));
  return MakeObject<JoinerObject>(runtime, bound.Has(0) ? *bound[0] : runtime.String(", "));
}

Result<Value> MakeCycler(Runtime& runtime, const Args& args) {
  if (args.positional.empty() || !args.named.empty()) {
    return Refused("cycler() wants at least one value");
  }
  return MakeObject<CyclerObject>(runtime, args.positional);
}

Result<Value> RaiseException(Runtime& runtime, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("raise_exception", args, {"message"}, 1));
  TN_ASSIGN_OR_RETURN(std::string message, Str(runtime, *bound[0]));
  return UsageError(std::move(message));
}

Result<Value> StrftimeNow(Runtime& runtime, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("strftime_now", args, {"format"}, 1));
  TN_ASSIGN_OR_RETURN(const std::string_view format, TextArgument("strftime_now", *bound[0]));
  TN_RETURN_IF_ERROR(runtime.Reserve(static_cast<Int>(format.size()) * 16));
  return runtime.String(FormatTime(format, runtime.now()));
}

Result<Value> Lipsum(Runtime&, const Args&) {
  return Refused("lipsum() is random text, which a chat template cannot have here");
}

}  // namespace

Value FindGlobal(Runtime& runtime, std::string_view name) {
  struct Row {
    std::string_view name;
    Function function;
  };
  constexpr Row kRows[] = {{"range", MakeRange},          {"dict", MakeDictionary},
                           {"namespace", MakeNamespace},  {"joiner", MakeJoiner},
                           {"cycler", MakeCycler},        {"raise_exception", RaiseException},
                           {"strftime_now", StrftimeNow}, {"lipsum", Lipsum}};
  for (const Row& row : kRows) {
    if (row.name == name) return MakeObject<FunctionObject>(runtime, row.function);
  }
  return Value::Missing();
}

Value* NamespaceObject::Find(Runtime& runtime, std::string_view name) {
  runtime.Work(static_cast<int64_t>(members_.size() / 8));
  for (auto& [key, value] : members_) {
    if (key == name) return &value;
  }
  return nullptr;
}

Result<Value> NamespaceObject::Attribute(Runtime& runtime, std::string_view name) {
  const Value* found = Find(runtime, name);
  return found == nullptr ? Value::Missing() : *found;
}

Status NamespaceObject::Set(Runtime& runtime, std::string_view name, Value value) {
  if (name.starts_with('_')) {
    return Refused(
        fmt::format("'{}': an attribute of a namespace cannot start with an underscore", name));
  }
  if (Value* found = Find(runtime, name)) {
    *found = std::move(value);
  } else {
    members_.emplace_back(std::string(name), std::move(value));
  }
  return {};
}

Status NamespaceObject::AppendRepr(Runtime& runtime, std::string& out) const {
  out += "<Namespace {";
  for (size_t i = 0; i < members_.size(); ++i) {
    if (i > 0) out += ", ";
    out += TextRepr(members_[i].first);
    out += ": ";
    TN_RETURN_IF_ERROR(jinja::AppendRepr(runtime, members_[i].second, out));
  }
  out += "}>";
  return {};
}

}  // namespace tenon::jinja
