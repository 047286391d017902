// The values a chat template computes with: Python's none, bool, int, float, str, list, tuple,
// dict, range and generators, plus objects with behaviour (macros, loops, namespaces). Everything
// but objects and generators is immutable, as the sandbox of the Hugging Face renderer demands. Not
// for anything outside the template interpreter. A Value belongs to one render and one thread,
// except constants, which a template shares between renders and nobody changes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tenon/base/status.h"

namespace tenon::jinja {

class Object;
class Runtime;
class Value;

// Integers are exact to 127 bits; a larger result is an error.
using Int = __int128;
using Values = std::vector<Value>;

// Bytes that a value holds; given back when it dies. Empty for constants of a template.
class Charge {
 public:
  Charge() = default;
  Charge(int64_t* live_bytes, int64_t bytes) : live_bytes_(live_bytes), bytes_(bytes) {
    *live_bytes_ += bytes_;
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  Charge(Charge&& other) noexcept
      : live_bytes_(std::exchange(other.live_bytes_, nullptr)), bytes_(other.bytes_) {}
  Charge& operator=(Charge&&) = delete;
  // For a holder that was made without one.
  void Begin(int64_t* live_bytes, int64_t bytes) {
    if (live_bytes_ != nullptr) return;
    live_bytes_ = live_bytes;
    bytes_ = bytes;
    *live_bytes_ += bytes_;
  }
  ~Charge() {
    if (live_bytes_ != nullptr) *live_bytes_ -= bytes_;
  }

 private:
  int64_t* live_bytes_ = nullptr;
  int64_t bytes_ = 0;
};

// How large a value is when every shared part is counted each time it occurs. Bounds recursion and
// work over values like `[a, a]` with a = [b, b] with b = ..., which are cheap to build.
struct Extent {
  int depth = 0;       // levels of containers
  int64_t weight = 1;  // parts, and 64-byte pieces of text
};

struct Text {
  std::string text;  // UTF-8
  bool markup;       // already HTML: escaping leaves it alone
  Charge charge;
};

// Why something is undefined; the message is put together only when it is needed.
struct UndefinedInfo {
  std::string owner;  // "dict object"; empty = a variable
  std::string name;
  std::string hint;  // replaces the message built from the above
  std::string Message() const;
};

enum class SequenceType { kList, kTuple, kGroup, kItems, kKeys, kValues };
struct Sequence;
struct Dict;
struct Range {
  Int start;
  Int stop;
  Int step;
  Int size;
  Int At(Int index) const { return start + index * step; }
};
struct Iterator;

class Value {
 public:
  enum class Kind {
    kUndefined,
    kNone,
    kBool,
    kInt,
    kFloat,
    kText,
    kSequence,
    kDict,
    kRange,
    kIterator,
    kObject
  };

  Value() = default;  // none
  explicit Value(bool value) : data_(value) {}
  explicit Value(int value) : data_(static_cast<int64_t>(value)) {}
  explicit Value(int64_t value) : data_(value) {}
  explicit Value(size_t value) : data_(static_cast<int64_t>(value)) {}
  explicit Value(Int value);
  explicit Value(double value) : data_(value) {}
  explicit Value(std::shared_ptr<const Text> text) : data_(std::move(text)) {}
  explicit Value(std::shared_ptr<const Sequence> items) : data_(std::move(items)) {}
  explicit Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}
  explicit Value(std::shared_ptr<const Range> range) : data_(std::move(range)) {}
  explicit Value(std::shared_ptr<Iterator> iterator) : data_(std::move(iterator)) {}
  explicit Value(std::shared_ptr<Object> object) : data_(std::move(object)) {}

  static Value Undefined(UndefinedInfo info);
  // Not a value of the language: "there is no such attribute, variable or argument".
  static Value Missing() { return Value(std::shared_ptr<const UndefinedInfo>()); }
  // Text outside any render's memory limit: for constants of a template.
  static Value ConstantText(std::string text);

  Kind kind() const { return kKinds[data_.index()]; }
  bool is_missing() const {
    const auto* info = std::get_if<std::shared_ptr<const UndefinedInfo>>(&data_);
    return info != nullptr && *info == nullptr;
  }
  bool is_undefined() const { return kind() == Kind::kUndefined; }
  bool is_none() const { return kind() == Kind::kNone; }
  bool is_bool() const { return kind() == Kind::kBool; }
  bool is_int() const { return kind() == Kind::kInt; }
  bool is_float() const { return kind() == Kind::kFloat; }
  bool is_text() const { return kind() == Kind::kText; }
  bool is_sequence() const { return kind() == Kind::kSequence; }
  bool is_dict() const { return kind() == Kind::kDict; }
  bool is_range() const { return kind() == Kind::kRange; }
  bool is_iterator() const { return kind() == Kind::kIterator; }
  bool is_object() const { return kind() == Kind::kObject; }
  bool is_list() const;
  bool is_tuple() const;  // also a groupby() pair
  bool is_markup() const { return is_text() && text_data().markup; }
  // bool is an int in Python's arithmetic.
  bool is_integral() const { return is_int() || is_bool(); }
  bool is_number() const { return is_integral() || is_float(); }

  // The caller has asked is_...() first.
  const UndefinedInfo& undefined() const {
    return *std::get<std::shared_ptr<const UndefinedInfo>>(data_);
  }
  bool as_bool() const { return std::get<bool>(data_); }
  Int as_int() const;        // of an integral value
  double as_double() const;  // of a number
  const Text& text_data() const { return *std::get<std::shared_ptr<const Text>>(data_); }
  std::string_view text() const { return text_data().text; }
  const std::shared_ptr<const Sequence>& sequence() const {
    return std::get<std::shared_ptr<const Sequence>>(data_);
  }
  const std::shared_ptr<const Dict>& dict() const {
    return std::get<std::shared_ptr<const Dict>>(data_);
  }
  const std::shared_ptr<const Range>& range() const {
    return std::get<std::shared_ptr<const Range>>(data_);
  }
  const std::shared_ptr<Iterator>& iterator() const {
    return std::get<std::shared_ptr<Iterator>>(data_);
  }
  const std::shared_ptr<Object>& object() const { return std::get<std::shared_ptr<Object>>(data_); }

  // Python's class name ("str", "NoneType"), for messages.
  std::string_view TypeName() const;
  Extent extent() const;
  // `a is b`.
  bool IsSame(const Value& other) const;

 private:
  explicit Value(std::shared_ptr<const UndefinedInfo> info) : data_(std::move(info)) {}

  static constexpr Kind kKinds[] = {Kind::kNone, Kind::kUndefined, Kind::kBool,     Kind::kInt,
                                    Kind::kInt,  Kind::kFloat,     Kind::kText,     Kind::kSequence,
                                    Kind::kDict, Kind::kRange,     Kind::kIterator, Kind::kObject};
  std::variant<std::monostate, std::shared_ptr<const UndefinedInfo>, bool, int64_t,
               std::shared_ptr<const Int>, double, std::shared_ptr<const Text>,
               std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>,
               std::shared_ptr<const Range>, std::shared_ptr<Iterator>, std::shared_ptr<Object>>
      data_;
};

struct Sequence {
  SequenceType type;
  Values items;
  Extent extent;
  Charge charge;
};

// Insertion order, as Python. Keys are hashable values; 1, 1.0 and true are one key.
struct Dict {
  using Entry = std::pair<Value, Value>;
  std::vector<Entry> entries;
  std::vector<uint32_t> order;  // entries by KeyLess; empty for small dictionaries
  Extent extent;
  Charge charge;

  // Null when absent. The key is hashable.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
};

// What a generator has left. Reading consumes it, so a second loop over it finds nothing.
struct Iterator {
  Values items;
  size_t next;
  std::string_view type_name;
  Extent extent;
  Charge charge;
};

struct Args {
  Values positional;
  std::vector<std::pair<Value, Value>> named;  // names are text
};

// A value with behaviour.
class Object {
 public:
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;

  virtual std::string_view TypeName() const = 0;
  virtual Status AppendRepr(Runtime& runtime, std::string& out) const;
  // Missing when there is no such attribute.
  virtual Result<Value> Attribute(Runtime& runtime, std::string_view name);
  virtual bool callable() const { return false; }
  virtual Result<Value> Call(Runtime& runtime, const Args& args);
  // Python's len(); an error when it has none.
  virtual Result<int64_t> Length(Runtime& runtime);
  // Lets go of everything that may refer back to this object. Called once, after the render.
  virtual void Release() {}
  Extent extent;  // with the values it holds for good
  Charge charge;
};

// A value that can be a dictionary key.
bool IsHashable(const Value& value);
// A strict order over hashable values, consistent with Python's ==. For look-up, not for sorting.
bool KeyLess(const Value& a, const Value& b);
// Python's == for hashable values.
bool KeyEqual(const Value& a, const Value& b);

}  // namespace tenon::jinja
