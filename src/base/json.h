// Json: an immutable-by-habit JSON tree of our own, so that no library type is in a header. Objects
// keep the file's order. The parser accepts what Hugging Face writes (bare Infinity, -Infinity,
// NaN) and refuses nesting beyond kMaxJsonDepth. Not for very large files (tokenizer.json,
// safetensors headers use simdjson). A value; thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tenon/base/status.h"

namespace tenon {

inline constexpr int kMaxJsonDepth = 200;

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;
  Json(std::nullptr_t) {}                                   // NOLINT(google-explicit-constructor)
  Json(bool value) : value_(value) {}                       // NOLINT(google-explicit-constructor)
  Json(int value) : value_(static_cast<int64_t>(value)) {}  // NOLINT(google-explicit-constructor)
  Json(int64_t value) : value_(value) {}                    // NOLINT(google-explicit-constructor)
  Json(uint64_t value);                                     // NOLINT(google-explicit-constructor)
  Json(double value) : value_(value) {}                     // NOLINT(google-explicit-constructor)
  Json(std::string value) : value_(std::move(value)) {}     // NOLINT(google-explicit-constructor)
  Json(std::string_view value)
      : value_(std::string(value)) {}                      // NOLINT(google-explicit-constructor)
  Json(const char* value) : value_(std::string(value)) {}  // NOLINT(google-explicit-constructor)
  Json(Array value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Json(Object value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }
  // An integer of 2^63 to 2^64 - 1. It is a number but not is_int(): most readers treat it as out
  // of range; chat templates have to print it digit by digit.
  bool is_large_int() const { return std::holds_alternative<uint64_t>(value_); }
  bool is_number() const {
    return is_int() || is_large_int() || std::holds_alternative<double>(value_);
  }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  // The caller has asked is_…() first; a wrong kind is our bug.
  bool as_bool() const { return std::get<bool>(value_); }
  int64_t as_int() const { return std::get<int64_t>(value_); }
  uint64_t as_large_int() const { return std::get<uint64_t>(value_); }
  double as_double() const {
    if (is_large_int()) return static_cast<double>(as_large_int());
    return is_int() ? static_cast<double>(as_int()) : std::get<double>(value_);
  }
  const std::string& as_string() const { return std::get<std::string>(value_); }
  const Array& as_array() const { return std::get<Array>(value_); }
  const Object& as_object() const { return std::get<Object>(value_); }
  Array& as_array() { return std::get<Array>(value_); }
  Object& as_object() { return std::get<Object>(value_); }

  // The member `key`, or null when this is no object or has none. Pointer into this value.
  const Json* Find(std::string_view key) const;
  // Sets (replaces or appends) a member; makes a null value an object.
  void Set(std::string_view key, Json value);
  // "null", "boolean", "integer", "number", "string", "array", "object": for messages.
  std::string_view KindName() const;
  // Compact text (indent < 0) or pretty with `indent` blanks. Infinity and NaN print as Python
  // does.
  std::string Dump(int indent = -1) const;

  friend bool operator==(const Json&, const Json&) = default;

 private:
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, Array, Object> value_;
};

// Errors say line, column and what was expected. A repeated key keeps its last value, as Python
// does.
Result<Json> ParseJson(std::string_view text);
// Reads a whole file, with its path as the error's context.
Result<Json> ReadJsonFile(const std::string& path);
// A JSON string literal with quotes.
std::string JsonQuote(std::string_view text);

}  // namespace tenon
