#include "tenon/tokenizer/component_json.h"

#include <fmt/format.h>

#include "tenon/base/text.h"
#include "tenon/tokenizer/unicode.h"

namespace tenon {

const Json* ComponentJson::Find(std::string_view key) const {
  const Json* found = json_->Find(key);
  return found != nullptr && found->is_null() ? nullptr : found;
}

bool ComponentJson::Has(std::string_view key) const { return Find(key) != nullptr; }

Status ComponentJson::Error(std::string_view key, std::string_view problem) const {
  const Json* value = Find(key);
  return Refused(fmt::format("{}.{} = {}: {}", place_, key,
                             value == nullptr ? "absent" : value->Dump().substr(0, 200), problem));
}

Status ComponentJson::WrongKind(std::string_view key, std::string_view expected) const {
  const Json* value = Find(key);
  return Error(key, fmt::format("expected {}, found {}", expected,
                                value == nullptr ? "nothing" : value->KindName()));
}

Result<std::string> ComponentJson::String(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr || !value->is_string()) return WrongKind(key, "a string");
  return value->as_string();
}

Result<std::string> ComponentJson::StringOr(std::string_view key, std::string_view absent) const {
  if (!Has(key)) return std::string(absent);
  return String(key);
}

Result<bool> ComponentJson::BoolOr(std::string_view key, bool absent) const {
  const Json* value = Find(key);
  if (value == nullptr) return absent;
  if (!value->is_bool()) return WrongKind(key, "true or false");
  return value->as_bool();
}

Result<int64_t> ComponentJson::IntOr(std::string_view key, int64_t absent) const {
  const Json* value = Find(key);
  if (value == nullptr) return absent;
  if (!value->is_int()) return WrongKind(key, "an integer");
  return value->as_int();
}

Result<double> ComponentJson::NumberOr(std::string_view key, double absent) const {
  const Json* value = Find(key);
  if (value == nullptr) return absent;
  if (!value->is_number()) return WrongKind(key, "a number");
  return value->as_double();
}

Result<Pattern> ComponentJson::PatternField(std::string_view key) const {
  TN_ASSIGN_OR_RETURN(const ComponentJson pattern, Child(key));
  if (pattern.Has("Regex")) {
    TN_ASSIGN_OR_RETURN(const std::string regex, pattern.String("Regex"));
    auto compiled = Pattern::FromRegex(regex);
    if (!compiled.ok()) return compiled.status().WithContext(pattern.place());
    return compiled;
  }
  TN_ASSIGN_OR_RETURN(std::string literal, pattern.String("String"));
  if (literal.empty()) return Error(key, "an empty pattern matches nowhere in particular");
  return Pattern::Literal(std::move(literal));
}

Result<std::string> ComponentJson::CharacterOr(std::string_view key,
                                               std::string_view absent) const {
  TN_ASSIGN_OR_RETURN(std::string text, StringOr(key, absent));
  if (text.empty() || static_cast<size_t>(Utf8Length(text[0])) != text.size()) {
    return Error(key, "expected one character");
  }
  return text;
}

Result<ComponentJson> ComponentJson::Child(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr || !value->is_object()) return WrongKind(key, "an object");
  return ComponentJson(*value, fmt::format("{}.{}", place_, key));
}

Result<std::vector<ComponentJson>> ComponentJson::Children(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr || !value->is_array()) return WrongKind(key, "an array");
  std::vector<ComponentJson> children;
  for (const Json& child : value->as_array()) {
    children.emplace_back(child, fmt::format("{}.{}[{}]", place_, key, children.size()));
  }
  return children;
}

Result<std::vector<int64_t>> ComponentJson::Ints(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr || !value->is_array()) return WrongKind(key, "an array of integers");
  std::vector<int64_t> ints;
  for (const Json& item : value->as_array()) {
    if (!item.is_int()) return WrongKind(key, "an array of integers");
    ints.push_back(item.as_int());
  }
  return ints;
}

Result<int64_t> ComponentJson::TokenIdOfPair(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr || !value->is_array() || value->as_array().size() != 2 ||
      !value->as_array()[1].is_int()) {
    return WrongKind(key, "a [content, id] pair");
  }
  return value->as_array()[1].as_int();
}

Status UnsupportedType(const ComponentJson& json, std::string_view type,
                       std::span<const std::string_view> supported) {
  return Refused(fmt::format("{}.type = '{}' is not supported, supported: {}", json.place(), type,
                             Join(supported, ", ")));
}

}  // namespace tenon
