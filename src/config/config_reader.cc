#include "tenon/config/config_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "tenon/base/text.h"
#include "tenon/config/config_value.h"

namespace tenon {
namespace {

constexpr std::string_view kPlaceholderDetail = "placeholder of an unreadable value";

bool MatchesPattern(std::string_view pattern, std::string_view name) {
  if (pattern.starts_with('*')) return name.ends_with(pattern.substr(1));
  if (pattern.ends_with('*')) return name.starts_with(pattern.substr(0, pattern.size() - 1));
  return name == pattern;
}

template <typename T>
Json ListJson(const std::vector<T>& values) {
  Json::Array array;
  for (const auto& value : values) array.push_back(Json(static_cast<T>(value)));
  return array;
}
template <typename T>
Json PerLayerJson(const PerLayer<T>& value) {
  return value.is_list() ? ListJson(value.values()) : Json(value[0]);
}

}  // namespace

bool IsPlaceholder(const Origin& origin) { return origin.detail == kPlaceholderDetail; }

struct ConfigReader::Shared {
  struct Entry {
    std::string path;
    Json value;
    Origin origin;
    std::string note;
  };
  ConfigSource source;
  std::vector<Entry> record;                         // in the order of the first read
  std::map<std::string, size_t, std::less<>> index;  // path -> record
  std::set<std::string, std::less<>> touched;        // read, null, or second to another alias
  std::set<std::string, std::less<>> opened;  // objects whose members are looked at one by one
  std::vector<std::pair<std::string, std::string>> ignored;  // prefix, pattern
  std::vector<std::string> errors;
  Json absent{Json::Object{}};  // what a nested reader reads when the object is not there
  Json broken{Json::Object{}};  // ... or is no object: its keys are not reported as missing

  std::string OriginText(std::string_view path) const {
    const auto it = source.origins.find(path);
    return it != source.origins.end() ? it->second : fmt::format("{}: {}", source.name, path);
  }
  void Record(const std::string& path, Json value, const Origin& origin, std::string note = {}) {
    const auto [it, is_new] = index.try_emplace(path, record.size());
    if (is_new) record.emplace_back();
    record[it->second] = {path, std::move(value), origin, std::move(note)};
  }
  void AddError(std::string text) {
    // A key may be read twice; one error is enough.
    if (std::find(errors.begin(), errors.end(), text) == errors.end()) {
      errors.push_back(std::move(text));
    }
  }
  bool IsIgnored(std::string_view prefix, std::string_view name) const {
    return std::any_of(ignored.begin(), ignored.end(), [&](const auto& rule) {
      return rule.first == prefix && MatchesPattern(rule.second, name);
    });
  }
};

struct ConfigReader::Access {
  struct Found {
    const Json* value;
    std::string path;
    std::string note;
  };

  // The alias that counts. Marks every alias of the key as looked at.
  static std::optional<Found> Find(ConfigReader& reader, const Keys& keys) {
    std::optional<Found> found;
    for (const auto& [node, prefix] : reader.Places()) {
      for (const std::string& name : keys.names()) {
        const Json* value = node->Find(name);
        if (value == nullptr) continue;
        reader.shared_->touched.insert(prefix + name);
        if (value->is_null()) continue;
        if (!found) {
          found = Found{value, prefix + name, {}};
        } else if (!(*value == *found->value)) {
          found->note = fmt::format("{}{} = {} is not used", prefix, name, ValueText(*value));
        }
      }
    }
    return found;
  }

  static std::string FirstPath(const ConfigReader& reader, const Keys& keys) {
    return keys.names().empty() ? std::string() : reader.prefix_ + keys.names().front();
  }

  // what: a detail of long values ("entry 7 is -1"), or "".
  static void WrongValue(ConfigReader& reader, const Found& found, std::string_view what,
                         std::string_view allowed) {
    Shared& shared = *reader.shared_;
    shared.AddError(fmt::format("{} = {} ({}{}{}), must be {}; set by {}; fix: correct it in {}",
                                found.path, ValueText(*found.value), found.value->KindName(),
                                what.empty() ? "" : ", ", what, allowed,
                                shared.OriginText(found.path), shared.source.name));
  }

  static void Missing(ConfigReader& reader, const Keys& keys, std::string_view allowed) {
    Shared& shared = *reader.shared_;
    if (reader.node_ == &shared.broken) return;
    const std::vector<std::string>& names = keys.names();
    std::string text = fmt::format("{} is missing", shared.OriginText(FirstPath(reader, keys)));
    if (names.size() > 1) {
      text += fmt::format(" (nor is there {})", Join(std::span(names).subspan(1), ", "));
    }
    const std::vector<std::string> near = NearNames(names.front(), reader.MemberNames());
    if (!near.empty()) text += fmt::format(", there is {}", Join(near, ", "));
    shared.AddError(fmt::format("{}; fix: add {}: {}", text, names.front(), allowed));
  }

  // The core of every read. parse(value, out, note) -> false: not `allowed`; `note` then says what
  // is wrong inside a list, else what was converted. `placeholder` stands for unreadable values
  // and, when the key is required, for missing ones.
  template <typename T>
  struct Rule {
    std::string allowed;
    T placeholder;
    std::optional<T> fallback;
    bool required;
    std::optional<Json> fallback_json;
  };
  template <typename T, typename Parse>
  static Sourced<T> Read(ConfigReader& reader, const Keys& keys, const Rule<T>& rule,
                         const Parse& parse) {
    TN_CHECK(!rule.required || !keys.names().empty(), "a required key needs a name");
    const Origin placeholder_origin = {Origin::Kind::kDerived, std::string(kPlaceholderDetail)};
    std::optional<Found> found = Find(reader, keys);
    if (!found) {
      if (!rule.required) {
        return {*rule.fallback, reader.RecordDefault(keys, rule.fallback_json.value_or(Json()))};
      }
      Missing(reader, keys, rule.allowed);
      return {rule.placeholder, placeholder_origin};
    }
    T value{};
    std::string note;
    if (!parse(*found->value, value, note)) {
      WrongValue(reader, *found, note, rule.allowed);
      return {rule.placeholder, placeholder_origin};
    }
    if (!found->note.empty()) note += (note.empty() ? "" : "; ") + found->note;
    Shared& shared = *reader.shared_;
    const Origin origin = {Origin::Kind::kCheckpoint, shared.OriginText(found->path)};
    shared.Record(found->path, *found->value, origin, std::move(note));
    return {std::move(value), origin};
  }

  // X(keys, fallback), RequireX(keys) and XOrNull(keys) out of one parser.
  template <typename T, typename Parse>
  static Sourced<T> WithDefault(ConfigReader& reader, const Keys& keys, T fallback,
                                std::string allowed, const Parse& parse) {
    Json json = AsJson(fallback);
    return Read<T>(reader, keys, {std::move(allowed), fallback, fallback, false, std::move(json)},
                   parse);
  }
  template <typename T, typename Parse>
  static Sourced<T> Required(ConfigReader& reader, const Keys& keys, T placeholder,
                             std::string allowed, const Parse& parse) {
    return Read<T>(reader, keys, {std::move(allowed), placeholder, {}, true, {}}, parse);
  }
  template <typename T, typename Parse>
  static Sourced<std::optional<T>> OrNull(ConfigReader& reader, const Keys& keys,
                                          std::string allowed, const Parse& parse) {
    const auto parse_optional = [&](const Json& value, std::optional<T>& out, std::string& note) {
      T plain{};
      if (!parse(value, plain, note)) return false;
      out = std::move(plain);
      return true;
    };
    return Read<std::optional<T>>(
        reader, keys, {std::move(allowed), {}, std::optional<T>(), false, {}}, parse_optional);
  }

  static Json AsJson(int64_t value) { return value; }
  static Json AsJson(double value) { return value; }
  static Json AsJson(bool value) { return value; }
  static Json AsJson(const std::string& value) { return value; }
  template <typename T>
  static Json AsJson(const std::vector<T>& values) {
    return ListJson(values);
  }
  template <typename T>
  static Json AsJson(const PerLayer<T>& value) {
    return PerLayerJson(value);
  }

  static auto IntParser(IntRange range) {
    return [range](const Json& value, int64_t& out, std::string& note) {
      return ToInt(value, range, out, note);
    };
  }
  static auto RealParser(RealRange range) {
    return
        [range](const Json& value, double& out, std::string&) { return ToReal(value, range, out); };
  }
  static bool ParseBool(const Json& value, bool& out, std::string& note) {
    return ToBool(value, out, note);
  }
  static bool ParseString(const Json& value, std::string& out, std::string&) {
    if (!value.is_string()) return false;
    out = value.as_string();
    return true;
  }
  // A list whose entries all pass `parse`.
  template <typename T, typename Parse>
  static auto ListParser(Parse parse) {
    return [parse](const Json& value, std::vector<T>& out, std::string& note) {
      if (!value.is_array()) return false;
      for (const Json& entry : value.as_array()) {
        T parsed{};
        if (!parse(entry, parsed, note)) {
          note = fmt::format("entry {} is {}", out.size(), ValueText(entry));
          return false;
        }
        out.push_back(std::move(parsed));
      }
      return true;
    };
  }
  // One value, or a list with one per layer. `allowed` and `placeholder` are of one value.
  template <typename T>
  struct PerLayerRule {
    const Sourced<int64_t>& layers;
    const std::optional<PerLayer<T>>& fallback;
    std::string allowed;
    T placeholder;
  };
  template <typename T, typename Scalar, typename Entry>
  static Sourced<PerLayer<T>> ReadPerLayer(ConfigReader& reader, const Keys& keys,
                                           const PerLayerRule<T>& rule, const Scalar& scalar,
                                           const Entry& entry) {
    const auto parse = [&](const Json& value, PerLayer<T>& out, std::string& note) {
      if (!value.is_array()) {
        T plain{};
        if (!scalar(value, plain, note)) return false;
        out = PerLayer<T>(plain);
        return true;
      }
      std::vector<T> values;
      if (!ListParser<T>(entry)(value, values, note) || values.empty()) return false;
      if (!IsPlaceholder(rule.layers.origin) &&
          static_cast<int64_t>(values.size()) != rule.layers.value) {
        note = fmt::format("it has {}", values.size());
        return false;
      }
      out = PerLayer<T>::List(std::move(values));
      return true;
    };
    const std::string allowed =
        fmt::format("{}, or a list of {} (one per layer)", rule.allowed, rule.layers.value);
    if (rule.fallback)
      return WithDefault<PerLayer<T>>(reader, keys, *rule.fallback, allowed, parse);
    return Required<PerLayer<T>>(reader, keys, PerLayer<T>(rule.placeholder), allowed, parse);
  }

  static void ListUnread(const Shared& shared, const Json& object, const std::string& prefix,
                         std::vector<std::string>& out) {
    for (const auto& [name, value] : object.as_object()) {
      const std::string path = prefix + name;
      if (shared.IsIgnored(prefix, name)) continue;
      if (shared.opened.contains(path) && value.is_object()) {
        ListUnread(shared, value, path + ".", out);
      } else if (!shared.touched.contains(path)) {
        out.push_back(path);
      }
    }
  }
};

ConfigReader::ConfigReader(ConfigSource source) : shared_(std::make_shared<Shared>()) {
  shared_->source = std::move(source);
  node_ = &shared_->source.json;
  if (node_->is_object()) return;
  shared_->AddError(fmt::format(
      "{} is {} ({}), must be an object with keys; fix: use the model's own {}",
      shared_->source.name, ValueText(*node_), node_->KindName(), shared_->source.name));
  shared_->source.json = Json::Object{};
  node_ = &shared_->broken;
}
ConfigReader::ConfigReader(Json config, std::string name)
    : ConfigReader(ConfigSource{.json = std::move(config), .name = std::move(name)}) {}
ConfigReader::ConfigReader(std::shared_ptr<Shared> shared, const Json* node, std::string prefix)
    : shared_(std::move(shared)), node_(node), prefix_(std::move(prefix)) {}

Sourced<int64_t> ConfigReader::Int(const Keys& keys, int64_t fallback, IntRange range) {
  return Access::WithDefault<int64_t>(*this, keys, fallback, Allowed(range),
                                      Access::IntParser(range));
}
Sourced<int64_t> ConfigReader::RequireInt(const Keys& keys, IntRange range) {
  return Access::Required<int64_t>(*this, keys, PlaceholderOf(range), Allowed(range),
                                   Access::IntParser(range));
}
Sourced<std::optional<int64_t>> ConfigReader::IntOrNull(const Keys& keys, IntRange range) {
  return Access::OrNull<int64_t>(*this, keys, Allowed(range) + " or null",
                                 Access::IntParser(range));
}
Sourced<double> ConfigReader::Double(const Keys& keys, double fallback, RealRange range) {
  return Access::WithDefault<double>(*this, keys, fallback, Allowed(range),
                                     Access::RealParser(range));
}
Sourced<double> ConfigReader::RequireDouble(const Keys& keys, RealRange range) {
  return Access::Required<double>(*this, keys, PlaceholderOf(range), Allowed(range),
                                  Access::RealParser(range));
}
Sourced<std::optional<double>> ConfigReader::DoubleOrNull(const Keys& keys, RealRange range) {
  return Access::OrNull<double>(*this, keys, Allowed(range) + " or null",
                                Access::RealParser(range));
}
Sourced<bool> ConfigReader::Bool(const Keys& keys, bool fallback) {
  return Access::WithDefault<bool>(*this, keys, fallback, "true or false", Access::ParseBool);
}
Sourced<bool> ConfigReader::RequireBool(const Keys& keys) {
  return Access::Required<bool>(*this, keys, false, "true or false", Access::ParseBool);
}
Sourced<std::optional<bool>> ConfigReader::BoolOrNull(const Keys& keys) {
  return Access::OrNull<bool>(*this, keys, "true, false or null", Access::ParseBool);
}
Sourced<std::string> ConfigReader::String(const Keys& keys, std::string fallback) {
  return Access::WithDefault<std::string>(*this, keys, std::move(fallback), "a string",
                                          Access::ParseString);
}
Sourced<std::string> ConfigReader::RequireString(const Keys& keys) {
  return Access::Required<std::string>(*this, keys, "", "a string", Access::ParseString);
}
Sourced<std::optional<std::string>> ConfigReader::StringOrNull(const Keys& keys) {
  return Access::OrNull<std::string>(*this, keys, "a string or null", Access::ParseString);
}

Sourced<std::vector<int64_t>> ConfigReader::Ints(const Keys& keys, std::vector<int64_t> fallback,
                                                 IntRange range) {
  return Access::WithDefault<std::vector<int64_t>>(
      *this, keys, std::move(fallback), "a list, each entry " + Allowed(range),
      Access::ListParser<int64_t>(Access::IntParser(range)));
}
Sourced<std::vector<int64_t>> ConfigReader::IntsOrInt(const Keys& keys,
                                                      std::vector<int64_t> fallback,
                                                      IntRange range) {
  const auto parse = [range](const Json& value, std::vector<int64_t>& out, std::string& note) {
    if (value.is_array()) {
      return Access::ListParser<int64_t>(Access::IntParser(range))(value, out, note);
    }
    out.resize(1);
    return ToInt(value, range, out[0], note);
  };
  return Access::WithDefault<std::vector<int64_t>>(*this, keys, std::move(fallback),
                                                   Allowed(range) + ", or a list of such", parse);
}
Sourced<std::vector<double>> ConfigReader::Doubles(const Keys& keys, std::vector<double> fallback,
                                                   RealRange range) {
  return Access::WithDefault<std::vector<double>>(
      *this, keys, std::move(fallback), "a list, each entry " + Allowed(range),
      Access::ListParser<double>(Access::RealParser(range)));
}
Sourced<std::vector<std::string>> ConfigReader::Strings(const Keys& keys,
                                                        std::vector<std::string> fallback) {
  return Access::WithDefault<std::vector<std::string>>(
      *this, keys, std::move(fallback), "a list of strings",
      Access::ListParser<std::string>(Access::ParseString));
}

Sourced<PerLayer<int64_t>> ConfigReader::PerLayerInt(
    const Keys& keys, const Sourced<int64_t>& layers,
    const std::optional<PerLayer<int64_t>>& fallback, IntRange range) {
  const IntRange in_list = {std::min<int64_t>(range.low, 0), range.high};
  return Access::ReadPerLayer<int64_t>(*this, keys,
                                       {layers, fallback, Allowed(range), PlaceholderOf(range)},
                                       Access::IntParser(range), Access::IntParser(in_list));
}
Sourced<PerLayer<bool>> ConfigReader::PerLayerBool(const Keys& keys, const Sourced<int64_t>& layers,
                                                   const std::optional<PerLayer<bool>>& fallback) {
  return Access::ReadPerLayer<bool>(*this, keys, {layers, fallback, "true or false", false},
                                    Access::ParseBool, Access::ParseBool);
}

Sourced<int64_t> ConfigReader::RequireChoice(const Keys& keys,
                                             const std::vector<std::string>& names) {
  const auto parse = [&](const Json& value, int64_t& out, std::string&) {
    if (!value.is_string()) return false;
    const auto it = std::find(names.begin(), names.end(), value.as_string());
    out = it - names.begin();
    return it != names.end();
  };
  return Access::Required<int64_t>(*this, keys, 0, "one of " + Join(names, ", "), parse);
}

bool ConfigReader::Has(const Keys& keys) const { return Peek(keys) != nullptr; }

bool ConfigReader::IsNull(const Keys& keys) const {
  if (Has(keys)) return false;
  for (const auto& [node, prefix] : Places()) {
    for (const std::string& name : keys.names()) {
      if (node->Find(name) != nullptr) return true;
    }
  }
  return false;
}

std::vector<std::pair<const Json*, std::string>> ConfigReader::Places() const {
  std::vector<std::pair<const Json*, std::string>> places = {{node_, prefix_}};
  if (inner_ != nullptr) places.emplace_back(inner_, inner_prefix_);
  return places;
}

const Json* ConfigReader::Peek(const Keys& keys) const {
  for (const auto& [node, prefix] : Places()) {
    for (const std::string& name : keys.names()) {
      const Json* value = node->Find(name);
      if (value != nullptr && !value->is_null()) return value;
    }
  }
  return nullptr;
}

void ConfigReader::NotUsed(const Keys& keys, std::string why) {
  const std::optional<Access::Found> found = Access::Find(*this, keys);
  if (!found) return;
  const Origin origin = {Origin::Kind::kCheckpoint, shared_->OriginText(found->path)};
  shared_->Record(found->path, *found->value, origin, "not used: " + std::move(why));
}

const Json* ConfigReader::Raw(const Keys& keys) {
  const std::optional<Access::Found> found = Access::Find(*this, keys);
  if (!found) return nullptr;
  const Origin origin = {Origin::Kind::kCheckpoint, shared_->OriginText(found->path)};
  shared_->Record(found->path, *found->value, origin, found->note);
  return found->value;
}

ConfigReader ConfigReader::Nested(const Keys& keys) {
  const std::optional<Access::Found> found = Access::Find(*this, keys);
  if (!found) {
    const Json* none = node_ == &shared_->broken ? node_ : &shared_->absent;
    return {shared_, none, Access::FirstPath(*this, keys) + "."};
  }
  shared_->opened.insert(found->path);
  if (found->value->is_object()) return {shared_, found->value, found->path + "."};
  Access::WrongValue(*this, *found, "", "an object");
  return {shared_, &shared_->broken, found->path + "."};
}

void ConfigReader::AlsoLookIn(const Keys& keys) {
  const std::optional<Access::Found> found = Access::Find(*this, keys);
  if (!found || !found->value->is_object()) return;
  shared_->opened.insert(found->path);
  inner_ = found->value;
  inner_prefix_ = found->path + ".";
}

std::vector<std::string> ConfigReader::MemberNames() const {
  std::vector<std::string> names;
  for (const auto& [node, prefix] : Places()) {
    for (const auto& [name, value] : node->as_object()) names.push_back(name);
  }
  return names;
}

void ConfigReader::Ignore(std::span<const char* const> patterns) {
  for (const auto& [node, prefix] : Places()) {
    for (const char* pattern : patterns) shared_->ignored.emplace_back(prefix, pattern);
  }
}

void ConfigReader::Error(const Keys& keys, std::string_view problem) {
  std::string path = Access::FirstPath(*this, keys);
  std::string value_text = "absent";
  if (const std::optional<Access::Found> found = Access::Find(*this, keys)) {
    path = found->path;
    value_text = ValueText(*found->value);
  }
  shared_->AddError(fmt::format("{} = {}: {}; set by {}; fix: correct it in {}", path, value_text,
                                problem, shared_->OriginText(path), shared_->source.name));
}
void ConfigReader::AddError(std::string text) { shared_->AddError(std::move(text)); }
bool ConfigReader::ok() const { return shared_->errors.empty(); }

Status ConfigReader::status() const {
  const std::vector<std::string>& errors = shared_->errors;
  if (errors.empty()) return {};
  if (errors.size() == 1) return Refused(errors[0]);
  std::string text = fmt::format("{} has {} problems:", shared_->source.name, errors.size());
  for (const std::string& error : errors) text += "\n  " + error;
  return Refused(std::move(text));
}

Origin ConfigReader::RecordDerived(const Keys& keys, Json value, std::string how) {
  Origin origin = {Origin::Kind::kDerived, std::move(how)};
  if (!keys.names().empty()) {
    shared_->Record(Access::FirstPath(*this, keys), std::move(value), origin);
  }
  return origin;
}
Origin ConfigReader::RecordDefault(const Keys& keys, Json value) {
  if (keys.names().empty()) return {Origin::Kind::kModelDefault, "the model family"};
  const std::string path = Access::FirstPath(*this, keys);
  Origin origin = {Origin::Kind::kModelDefault,
                   fmt::format("default, {} is absent", shared_->OriginText(path))};
  shared_->Record(path, std::move(value), origin);
  return origin;
}
std::string ConfigReader::OriginText(const Keys& keys) const {
  for (const auto& [node, prefix] : Places()) {
    for (const std::string& name : keys.names()) {
      const Json* value = node->Find(name);
      if (value != nullptr && !value->is_null()) return shared_->OriginText(prefix + name);
    }
  }
  return shared_->OriginText(Access::FirstPath(*this, keys));
}
const std::string& ConfigReader::source_name() const { return shared_->source.name; }

std::vector<std::string> ConfigReader::UnreadKeys() const {
  std::vector<std::string> unread;
  Access::ListUnread(*shared_, shared_->source.json, "", unread);
  unread.insert(unread.end(), shared_->source.unmapped.begin(), shared_->source.unmapped.end());
  return unread;
}

Json ConfigReader::ToJson() const {
  Json::Array read;
  for (const Shared::Entry& entry : shared_->record) {
    Json row;
    row.Set("key", entry.path);
    row.Set("value", entry.value);
    row.Set("origin", entry.origin.Text());
    if (!entry.note.empty()) row.Set("note", entry.note);
    read.push_back(std::move(row));
  }
  Json::Array unread;
  for (std::string& path : UnreadKeys()) unread.emplace_back(std::move(path));
  Json json;
  json.Set("source", shared_->source.name);
  json.Set("read", std::move(read));
  json.Set("unread", std::move(unread));
  return json;
}

}  // namespace tenon
