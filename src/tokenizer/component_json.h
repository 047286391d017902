// ComponentJson: one component object of tokenizer.json ({"type": "Split", ...}) with typed access
// to its fields, and the look-up of its type in a table of makers. Not for the vocabulary and
// merges (tokenizer_json.cc reads those with simdjson). Errors name the place, the value and what
// is allowed.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/base/json.h"
#include "tenon/base/status.h"
#include "tenon/tokenizer/pattern.h"

namespace tenon {

class ComponentJson {
 public:
  // `place` is how messages call it: "pre_tokenizer.pretokenizers[1]". `json` outlives this.
  ComponentJson(const Json& json, std::string place) : json_(&json), place_(std::move(place)) {}

  const std::string& place() const { return place_; }
  bool is_null() const { return json_->is_null(); }

  Result<std::string> String(std::string_view key) const;
  // Null and absent are the same. Absent fields take `absent`.
  Result<std::string> StringOr(std::string_view key, std::string_view absent) const;
  Result<bool> BoolOr(std::string_view key, bool absent) const;
  Result<int64_t> IntOr(std::string_view key, int64_t absent) const;
  Result<double> NumberOr(std::string_view key, double absent) const;
  // {"String": text} or {"Regex": text}.
  Result<Pattern> PatternField(std::string_view key) const;
  // A string of exactly one character.
  Result<std::string> CharacterOr(std::string_view key, std::string_view absent) const;
  Result<std::vector<ComponentJson>> Children(std::string_view key) const;
  Result<ComponentJson> Child(std::string_view key) const;  // absent: an error
  bool Has(std::string_view key) const;
  Result<std::vector<int64_t>> Ints(std::string_view key) const;
  // The id of a ["content", id] pair.
  Result<int64_t> TokenIdOfPair(std::string_view key) const;

  Status Error(std::string_view key, std::string_view problem) const;

 private:
  const Json* Find(std::string_view key) const;  // null when absent or JSON null
  Status WrongKind(std::string_view key, std::string_view expected) const;

  const Json* json_;
  std::string place_;
};

// One row of a component table: the "type" in the file and what makes it.
template <typename Component>
struct ComponentMaker {
  std::string_view type;
  Result<std::unique_ptr<const Component>> (*make)(const ComponentJson& json);
};

// The refusal for a type that no row has; `supported` in table order.
Status UnsupportedType(const ComponentJson& json, std::string_view type,
                       std::span<const std::string_view> supported);

template <typename Component>
Result<std::unique_ptr<const Component>> MakeComponent(
    const ComponentJson& json, std::span<const ComponentMaker<Component>> makers) {
  TN_ASSIGN_OR_RETURN(const std::string type, json.String("type"));
  std::vector<std::string_view> supported;
  for (const auto& maker : makers) {
    if (maker.type == type) return maker.make(json);
    supported.push_back(maker.type);
  }
  return UnsupportedType(json, type, supported);
}

// Makes every child of a Sequence, in order.
template <typename Component>
Result<std::vector<std::unique_ptr<const Component>>> MakeChildren(
    const ComponentJson& json, std::string_view key,
    std::span<const ComponentMaker<Component>> makers) {
  TN_ASSIGN_OR_RETURN(const std::vector<ComponentJson> children, json.Children(key));
  std::vector<std::unique_ptr<const Component>> components;
  for (const ComponentJson& child : children) {
    TN_ASSIGN_OR_RETURN(auto component, MakeComponent<Component>(child, makers));
    components.push_back(std::move(component));
  }
  return components;
}

}  // namespace tenon
