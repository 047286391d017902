#include "tenon/checkpoint/gguf.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>

#include "tenon/base/text.h"
#include "tenon/checkpoint/file_kind.h"

namespace tenon {
namespace {

constexpr size_t kArrayHead = 12;  // element type and count before an array's elements

template <typename T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// One integer at `at`; nothing for other types and for values of 2^63 and more.
std::optional<int64_t> LoadInt(GgufType type, const std::byte* at) {
  switch (type) {
    case GgufType::kUint8:
      return Load<uint8_t>(at);
    case GgufType::kInt8:
      return Load<int8_t>(at);
    case GgufType::kUint16:
      return Load<uint16_t>(at);
    case GgufType::kInt16:
      return Load<int16_t>(at);
    case GgufType::kUint32:
      return Load<uint32_t>(at);
    case GgufType::kInt32:
      return Load<int32_t>(at);
    case GgufType::kInt64:
      return Load<int64_t>(at);
    case GgufType::kUint64: {
      const auto value = Load<uint64_t>(at);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    case GgufType::kFloat32:
    case GgufType::kFloat64:
    case GgufType::kBool:
    case GgufType::kString:
    case GgufType::kArray:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<double> LoadFloat(GgufType type, const std::byte* at) {
  if (type == GgufType::kFloat32) return Load<float>(at);
  if (type == GgufType::kFloat64) return Load<double>(at);
  if (type == GgufType::kUint64) return static_cast<double>(Load<uint64_t>(at));
  const std::optional<int64_t> integer = LoadInt(type, at);
  if (!integer.has_value()) return std::nullopt;
  return static_cast<double>(*integer);
}

std::optional<bool> LoadBool(GgufType type, const std::byte* at) {
  if (type != GgufType::kBool) return std::nullopt;
  return Load<uint8_t>(at) != 0;
}

// Every element of an array of fixed-size values through `load`, all of them or nothing.
template <typename T, typename LoadFn>
std::optional<std::vector<T>> LoadAll(const GgufValue& value, LoadFn load) {
  if (!value.is_array()) return std::nullopt;
  const int64_t step = FixedBytes(value.element_type());
  // An empty array has no kind to object to.
  if (value.count() > 0 && step == 0) return std::nullopt;
  std::vector<T> out;
  out.reserve(static_cast<size_t>(value.count()));
  const std::byte* at = value.encoded().data() + kArrayHead;
  for (int64_t i = 0; i < value.count(); ++i, at += step) {
    const std::optional<T> element = load(value.element_type(), at);
    if (!element.has_value()) return std::nullopt;
    out.push_back(*element);
  }
  return out;
}

std::string_view LoadString(const std::byte* at) {
  return {reinterpret_cast<const char*>(at + sizeof(uint64_t)), Load<uint64_t>(at)};
}

// Bytes of the (verified) value of `type` at `at`.
size_t EncodedBytes(GgufType type, const std::byte* at) {
  if (type == GgufType::kString) return sizeof(uint64_t) + Load<uint64_t>(at);
  if (type != GgufType::kArray) return static_cast<size_t>(FixedBytes(type));
  const auto element_type = static_cast<GgufType>(Load<uint32_t>(at));
  const uint64_t count = Load<uint64_t>(at + sizeof(uint32_t));
  if (FixedBytes(element_type) > 0) {
    return kArrayHead + count * static_cast<uint64_t>(FixedBytes(element_type));
  }
  size_t bytes = kArrayHead;
  for (uint64_t i = 0; i < count; ++i) bytes += EncodedBytes(element_type, at + bytes);
  return bytes;
}

template <typename T>
using AsFn = std::optional<T> (GgufValue::*)() const;

template <typename T>
Result<T> Convert(const GgufValue& value, AsFn<T> as, std::string_view key,
                  std::string_view expected) {
  std::optional<T> converted = (value.*as)();
  if (converted.has_value()) return *std::move(converted);
  return Refused(
      fmt::format("GGUF key {} is {}, expected {}", QuotedName(key), value.KindText(), expected));
}

Status AbsentKey(const GgufMetadata& metadata, std::string_view key) {
  constexpr size_t kConsidered = 2000;  // hostile files may hold millions
  std::vector<std::string> keys;
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    if (entry.key.size() <= 2 * key.size() + 8) keys.emplace_back(entry.key);
    if (keys.size() == kConsidered) break;
  }
  const std::vector<std::string> near = NearNames(key, keys);
  return Refused(fmt::format("GGUF key {} is absent{}{}; fix: a complete file", QuotedName(key),
                             near.empty() ? "" : "; near: ", Join(near, ", ")));
}

template <typename T>
Result<T> Get(const GgufMetadata& metadata, AsFn<T> as, std::string_view key,
              std::string_view expected) {
  const GgufValue* value = metadata.Find(key);
  if (value == nullptr) return AbsentKey(metadata, key);
  return Convert<T>(*value, as, key, expected);
}

template <typename T>
Result<std::vector<T>> GetPerLayer(const GgufMetadata& metadata, AsFn<T> as_one,
                                   AsFn<std::vector<T>> as_many, std::string_view key,
                                   int num_layers) {
  const GgufValue* value = metadata.Find(key);
  if (value == nullptr) return AbsentKey(metadata, key);
  if (const std::optional<T> one = (value->*as_one)()) {
    return std::vector<T>(static_cast<size_t>(num_layers), *one);
  }
  const std::string expected = fmt::format("one value or an array of {}", num_layers);
  TN_ASSIGN_OR_RETURN(std::vector<T> many, Convert<std::vector<T>>(*value, as_many, key, expected));
  if (many.size() != static_cast<size_t>(num_layers)) {
    return Refused(fmt::format("GGUF key {} holds {} values, the model has {} layers",
                               QuotedName(key), many.size(), num_layers));
  }
  return many;
}

}  // namespace

std::string_view NameOf(GgufType type) {
  constexpr std::string_view kNames[] = {"uint8",  "int8",    "uint16", "int16",  "uint32",
                                         "int32",  "float32", "bool",   "string", "array",
                                         "uint64", "int64",   "float64"};
  return kNames[static_cast<size_t>(type)];
}

int64_t FixedBytes(GgufType type) {
  constexpr int64_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return kBytes[static_cast<size_t>(type)];
}

GgufType GgufValue::element_type() const {
  TN_CHECK(is_array(), "only arrays have elements");
  return static_cast<GgufType>(Load<uint32_t>(encoded_.data()));
}

int64_t GgufValue::count() const {
  return is_array() ? static_cast<int64_t>(Load<uint64_t>(encoded_.data() + sizeof(uint32_t))) : 1;
}

std::string GgufValue::KindText() const {
  if (!is_array()) return std::string(NameOf(type_));
  return fmt::format("array of {} {}", count(), NameOf(element_type()));
}

std::optional<int64_t> GgufValue::AsInt() const { return LoadInt(type_, encoded_.data()); }
std::optional<double> GgufValue::AsFloat() const { return LoadFloat(type_, encoded_.data()); }
std::optional<bool> GgufValue::AsBool() const { return LoadBool(type_, encoded_.data()); }

std::optional<std::string_view> GgufValue::AsString() const {
  if (type_ != GgufType::kString) return std::nullopt;
  return LoadString(encoded_.data());
}

std::optional<std::vector<int64_t>> GgufValue::AsInts() const {
  return LoadAll<int64_t>(*this, LoadInt);
}
std::optional<std::vector<double>> GgufValue::AsFloats() const {
  return LoadAll<double>(*this, LoadFloat);
}
std::optional<std::vector<bool>> GgufValue::AsBools() const {
  return LoadAll<bool>(*this, LoadBool);
}

std::optional<std::vector<std::string_view>> GgufValue::AsStrings() const {
  if (!is_array()) return std::nullopt;
  if (count() > 0 && element_type() != GgufType::kString) return std::nullopt;
  std::vector<std::string_view> out;
  out.reserve(static_cast<size_t>(count()));
  const std::byte* at = encoded_.data() + kArrayHead;
  for (int64_t i = 0; i < count(); ++i) {
    out.push_back(LoadString(at));
    at += sizeof(uint64_t) + out.back().size();
  }
  return out;
}

std::optional<std::vector<GgufValue>> GgufValue::AsArray() const {
  if (!is_array()) return std::nullopt;
  std::vector<GgufValue> out;
  out.reserve(static_cast<size_t>(count()));
  size_t at = kArrayHead;
  for (int64_t i = 0; i < count(); ++i) {
    const size_t bytes = EncodedBytes(element_type(), encoded_.data() + at);
    out.emplace_back(element_type(), encoded_.subspan(at, bytes));
    at += bytes;
  }
  return out;
}

GgufMetadata::GgufMetadata(std::string path, uint32_t version, std::vector<Entry> entries)
    : path_(std::move(path)), version_(version), entries_(std::move(entries)) {
  by_key_.reserve(entries_.size());
  for (size_t i = 0; i < entries_.size(); ++i) {
    by_key_.emplace(entries_[i].key, static_cast<int>(i));
  }
}

const GgufValue* GgufMetadata::Find(std::string_view key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : &entries_[static_cast<size_t>(found->second)].value;
}

Result<int64_t> GgufMetadata::Int(std::string_view key) const {
  return Get<int64_t>(*this, &GgufValue::AsInt, key, "an integer below 2^63").WithContext(path_);
}
Result<double> GgufMetadata::Float(std::string_view key) const {
  return Get<double>(*this, &GgufValue::AsFloat, key, "a number").WithContext(path_);
}
Result<bool> GgufMetadata::Bool(std::string_view key) const {
  return Get<bool>(*this, &GgufValue::AsBool, key, "bool").WithContext(path_);
}
Result<std::string_view> GgufMetadata::String(std::string_view key) const {
  return Get<std::string_view>(*this, &GgufValue::AsString, key, "string").WithContext(path_);
}
Result<std::vector<int64_t>> GgufMetadata::Ints(std::string_view key) const {
  return Get<std::vector<int64_t>>(*this, &GgufValue::AsInts, key, "an array of integers")
      .WithContext(path_);
}
Result<std::vector<double>> GgufMetadata::Floats(std::string_view key) const {
  return Get<std::vector<double>>(*this, &GgufValue::AsFloats, key, "an array of numbers")
      .WithContext(path_);
}
Result<std::vector<bool>> GgufMetadata::Bools(std::string_view key) const {
  return Get<std::vector<bool>>(*this, &GgufValue::AsBools, key, "an array of bool")
      .WithContext(path_);
}
Result<std::vector<std::string_view>> GgufMetadata::Strings(std::string_view key) const {
  return Get<std::vector<std::string_view>>(*this, &GgufValue::AsStrings, key, "an array of string")
      .WithContext(path_);
}

Result<std::vector<int64_t>> GgufMetadata::IntsPerLayer(std::string_view key,
                                                        int num_layers) const {
  return GetPerLayer<int64_t>(*this, &GgufValue::AsInt, &GgufValue::AsInts, key, num_layers)
      .WithContext(path_);
}
Result<std::vector<double>> GgufMetadata::FloatsPerLayer(std::string_view key,
                                                         int num_layers) const {
  return GetPerLayer<double>(*this, &GgufValue::AsFloat, &GgufValue::AsFloats, key, num_layers)
      .WithContext(path_);
}
Result<std::vector<bool>> GgufMetadata::BoolsPerLayer(std::string_view key, int num_layers) const {
  return GetPerLayer<bool>(*this, &GgufValue::AsBool, &GgufValue::AsBools, key, num_layers)
      .WithContext(path_);
}

}  // namespace tenon
