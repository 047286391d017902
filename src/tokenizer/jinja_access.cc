#include <fmt/format.h>

#include <algorithm>

#include "tenon/tokenizer/jinja_methods.h"
#include "tenon/tokenizer/jinja_operators.h"
#include "tenon/tokenizer/jinja_print.h"
#include "tenon/tokenizer/jinja_unicode.h"

namespace tenon::jinja {
namespace {

std::string OwnerOf(const Value& value) {
  return value.is_none() ? "None" : fmt::format("{} object", value.TypeName());
}

Value NoAttribute(const Value& owner, std::string_view name) {
  return Value::Undefined({OwnerOf(owner), std::string(name), {}});
}

Result<Value> NoElement(Runtime& runtime, const Value& owner, const Value& key) {
  if (key.is_text()) return NoAttribute(owner, key.text());
  std::string text;
  TN_RETURN_IF_ERROR(AppendRepr(runtime, key, text));
  return Value::Undefined({{}, {}, fmt::format("{} has no element {}", OwnerOf(owner), text)});
}

Value NumberAttribute(const Value& value, std::string_view name) {
  if (name == "real" || (name == "numerator" && value.is_integral())) {
    return value.is_integral() ? Value(value.as_int()) : value;
  }
  if (name == "imag") return value.is_float() ? Value(0.0) : Value(0);
  if (name == "denominator" && value.is_integral()) return Value(1);
  return Value::Missing();
}

// Index into `size` items, counting from the end when negative; -1 when outside.
int64_t WrapIndex(Int index, int64_t size) {
  if (index < 0) index += size;
  return index >= 0 && index < size ? static_cast<int64_t>(index) : -1;
}

// The item `value[key]`, Missing when there is none.
Value ItemOrMissing(Runtime& runtime, const Value& value, const Value& key) {
  if (value.is_dict()) {
    runtime.Work(key.extent().weight);
    const Value* found = IsHashable(key) ? value.dict()->Find(key) : nullptr;
    return found == nullptr ? Value::Missing() : *found;
  }
  if (!key.is_integral()) return Value::Missing();
  if (value.is_list() || value.is_tuple()) {
    const Values& items = value.sequence()->items;
    const int64_t at = WrapIndex(key.as_int(), static_cast<int64_t>(items.size()));
    return at < 0 ? Value::Missing() : items[static_cast<size_t>(at)];
  }
  if (value.is_range()) {
    const Range& range = *value.range();
    const int64_t at = WrapIndex(key.as_int(), static_cast<int64_t>(range.size));
    return at < 0 ? Value::Missing() : Value(range.At(at));
  }
  if (value.is_text()) {
    const std::string_view text = value.text();
    runtime.Work(static_cast<int64_t>(text.size() / 64));
    const int64_t at = WrapIndex(key.as_int(), static_cast<int64_t>(CountCodePoints(text)));
    if (at < 0) return Value::Missing();
    const size_t begin = ByteOffset(text, static_cast<size_t>(at));
    return runtime.StringLike(value,
                              std::string(text.substr(begin, DecodeAt(text, begin).num_bytes)));
  }
  return Value::Missing();
}

// A slice as start, count and step over indices 0..size-1.
struct Slice {
  int64_t start;
  int64_t stop;
  int64_t count;
  int64_t step;  // clamped to the size
  Int full_step;
};

int64_t Clamp(Int value, Int low, Int high) {
  return static_cast<int64_t>(std::clamp(value, low, high));
}

Result<Slice> ResolveSlice(const Value& start, const Value& stop, const Value& step, int64_t size) {
  for (const Value* part : {&start, &stop, &step}) {
    if (part->is_undefined()) return UndefinedError(*part);
    if (!part->is_none() && !part->is_integral()) {
      return Refused(
          fmt::format("slice indices must be integers or none, not '{}'", part->TypeName()));
    }
  }
  const Int wide_step = step.is_none() ? Int{1} : step.as_int();
  if (wide_step == 0) return Refused("slice step cannot be zero");
  Slice slice{};
  // A step beyond the size takes the first item only, so clamping changes nothing.
  slice.full_step = wide_step;
  slice.step = Clamp(wide_step, -size - 1, size + 1);
  const bool forward = slice.step > 0;
  const Int low = forward ? 0 : -1;
  const Int high = forward ? size : size - 1;
  const auto bound = [&](const Value& part, Int absent) {
    if (part.is_none()) return absent;
    const Int index = part.as_int();
    return std::clamp(index < 0 ? index + size : index, low, high);
  };
  slice.start = static_cast<int64_t>(bound(start, forward ? low : high));
  slice.stop = static_cast<int64_t>(bound(stop, forward ? high : low));
  const int64_t span = forward ? slice.stop - slice.start : slice.start - slice.stop;
  const int64_t stride = forward ? slice.step : -slice.step;
  slice.count = span > 0 ? (span + stride - 1) / stride : 0;
  return slice;
}

std::string SliceText(std::string_view text, const Slice& slice, bool ascii) {
  if (slice.step == 1) {
    const size_t begin = ByteOffset(text, static_cast<size_t>(slice.start));
    const size_t length = ByteOffset(text.substr(begin), static_cast<size_t>(slice.count));
    return std::string(text.substr(begin, length));
  }
  std::string out;
  int64_t at = slice.start;
  if (ascii) {
    for (int64_t i = 0; i < slice.count; ++i, at += slice.step)
      out += text[static_cast<size_t>(at)];
    return out;
  }
  std::vector<size_t> offsets;
  for (size_t byte = 0; byte < text.size(); byte += DecodeAt(text, byte).num_bytes) {
    offsets.push_back(byte);
  }
  for (int64_t i = 0; i < slice.count; ++i, at += slice.step) {
    const size_t begin = offsets[static_cast<size_t>(at)];
    out += text.substr(begin, DecodeAt(text, begin).num_bytes);
  }
  return out;
}

Result<Value> GetRangeSlice(const Range& range, const Slice& slice) {
  Range part{range.At(slice.start), range.At(slice.stop), 0, slice.count};
  if (__builtin_mul_overflow(range.step, slice.full_step, &part.step)) {
    return Refused("a slice of a range steps too far");
  }
  return Value(std::make_shared<const Range>(part));
}

}  // namespace

Result<Value> GetOwnAttribute(Runtime& runtime, const Value& value, std::string_view name) {
  if (value.is_undefined()) return UndefinedError(value);
  if (value.is_object()) return value.object()->Attribute(runtime, name);
  if (value.is_number()) {
    Value attribute = NumberAttribute(value, name);
    if (!attribute.is_missing()) return attribute;
  }
  if (value.is_sequence() && value.sequence()->type == SequenceType::kGroup) {
    if (name == "grouper") return value.sequence()->items[0];
    if (name == "list") return value.sequence()->items[1];
  }
  const MethodEntry* method = FindMethod(value, name);
  if (method == nullptr) return Value::Missing();
  if (method->function == nullptr) {
    return Value::Undefined({{},
                             {},
                             fmt::format("'{}' would change a '{}': templates cannot change values",
                                         name, value.TypeName())});
  }
  return runtime.Adopt(std::make_shared<BoundMethod>(value, *method));
}

Result<Value> GetAttribute(Runtime& runtime, const Value& value, std::string_view name) {
  // The common case first: a key of a dictionary that is no method's name.
  if (value.is_dict() && FindMethod(value, name) == nullptr) {
    const Value* found = value.dict()->Find(name);
    return found == nullptr ? NoAttribute(value, name) : *found;
  }
  TN_ASSIGN_OR_RETURN(Value attribute, GetOwnAttribute(runtime, value, name));
  return attribute.is_missing() ? NoAttribute(value, name) : attribute;
}

Result<Value> GetItem(Runtime& runtime, const Value& value, const Value& key) {
  if (value.is_undefined()) return UndefinedError(value);
  Value item = ItemOrMissing(runtime, value, key);
  if (!item.is_missing()) return item;
  if (key.is_text()) {
    TN_ASSIGN_OR_RETURN(Value attribute, GetOwnAttribute(runtime, value, key.text()));
    if (!attribute.is_missing()) return attribute;
  }
  return NoElement(runtime, value, key);
}

Result<Value> GetSlice(Runtime& runtime, const Value& value, const Value& start, const Value& stop,
                       const Value& step) {
  if (value.is_undefined()) return UndefinedError(value);
  if (value.is_text()) {
    const std::string_view text = value.text();
    runtime.Work(static_cast<int64_t>(text.size() / 32));
    const auto size = static_cast<int64_t>(CountCodePoints(text));
    TN_ASSIGN_OR_RETURN(const Slice slice, ResolveSlice(start, stop, step, size));
    if (slice.step != 1) TN_RETURN_IF_ERROR(runtime.Reserve(size * Int{sizeof(size_t)}));
    const bool ascii = static_cast<size_t>(size) == text.size();
    return runtime.StringLike(value, SliceText(text, slice, ascii));
  }
  if (value.is_range()) {
    TN_ASSIGN_OR_RETURN(const Slice slice,
                        ResolveSlice(start, stop, step, static_cast<int64_t>(value.range()->size)));
    return GetRangeSlice(*value.range(), slice);
  }
  if (!value.is_list() && !value.is_tuple()) {
    return Refused(fmt::format("'{}' cannot be sliced", value.TypeName()));
  }
  const Values& items = value.sequence()->items;
  TN_ASSIGN_OR_RETURN(const Slice slice,
                      ResolveSlice(start, stop, step, static_cast<int64_t>(items.size())));
  Values part;
  part.reserve(static_cast<size_t>(slice.count));
  int64_t at = slice.start;
  for (int64_t i = 0; i < slice.count; ++i, at += slice.step) {
    part.push_back(items[static_cast<size_t>(at)]);
  }
  return value.is_list() ? runtime.List(std::move(part)) : runtime.Tuple(std::move(part));
}

Result<int64_t> Length(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return int64_t{0};
    case Value::Kind::kText:
      runtime.Work(static_cast<int64_t>(value.text().size() / 64));
      return static_cast<int64_t>(CountCodePoints(value.text()));
    case Value::Kind::kSequence:
      return static_cast<int64_t>(value.sequence()->items.size());
    case Value::Kind::kDict:
      return static_cast<int64_t>(value.dict()->entries.size());
    case Value::Kind::kRange:
      return static_cast<int64_t>(value.range()->size);
    case Value::Kind::kObject:
      return value.object()->Length(runtime);
    default:
      return Refused(fmt::format("object of type '{}' has no len()", value.TypeName()));
  }
}

bool Cursor::CanIterate(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
    case Value::Kind::kText:
    case Value::Kind::kSequence:
    case Value::Kind::kDict:
    case Value::Kind::kRange:
    case Value::Kind::kIterator:
      return true;
    default:
      return false;
  }
}

Result<Cursor> Cursor::Over(const Value& value) {
  if (CanIterate(value)) return Cursor(value);
  return Refused(fmt::format("'{}' object is not iterable", value.TypeName()));
}

bool Cursor::Next(Runtime& runtime, Value& item) {
  if (!runtime.Work(1)) return false;
  switch (source_.kind()) {
    case Value::Kind::kSequence: {
      const Values& items = source_.sequence()->items;
      if (at_ >= items.size()) return false;
      item = items[at_++];
      return true;
    }
    case Value::Kind::kDict: {
      const auto& entries = source_.dict()->entries;
      if (at_ >= entries.size()) return false;
      item = entries[at_++].first;
      return true;
    }
    case Value::Kind::kText: {
      const std::string_view text = source_.text();
      if (at_ >= text.size()) return false;
      const size_t num_bytes = DecodeAt(text, at_).num_bytes;
      item = runtime.String(std::string(text.substr(at_, num_bytes)));  // markup gives plain text
      at_ += num_bytes;
      return runtime.ok();
    }
    case Value::Kind::kRange: {
      const Range& range = *source_.range();
      if (static_cast<Int>(at_) >= range.size) return false;
      item = Value(range.At(static_cast<Int>(at_++)));
      return true;
    }
    case Value::Kind::kIterator: {
      Iterator& iterator = *source_.iterator();
      if (iterator.next >= iterator.items.size()) return false;
      item = iterator.items[iterator.next++];
      return true;
    }
    default:
      return false;
  }
}

std::optional<int64_t> Cursor::Length() const {
  switch (source_.kind()) {
    case Value::Kind::kUndefined:
      return 0;
    case Value::Kind::kText:
      return static_cast<int64_t>(CountCodePoints(source_.text()));
    case Value::Kind::kSequence:
      return static_cast<int64_t>(source_.sequence()->items.size());
    case Value::Kind::kDict:
      return static_cast<int64_t>(source_.dict()->entries.size());
    case Value::Kind::kRange:
      return static_cast<int64_t>(source_.range()->size);
    default:
      return std::nullopt;
  }
}

Result<Values> ToItems(Runtime& runtime, const Value& value) {
  TN_ASSIGN_OR_RETURN(Cursor cursor, Cursor::Over(value));
  const std::optional<int64_t> length = cursor.Length();
  TN_RETURN_IF_ERROR(runtime.Reserve(Int{sizeof(Value)} * length.value_or(0)));
  Values items;
  items.reserve(static_cast<size_t>(length.value_or(0)));
  Value item;
  while (cursor.Next(runtime, item)) items.push_back(std::move(item));
  if (!runtime.ok()) return runtime.failure();
  return items;
}

}  // namespace tenon::jinja
