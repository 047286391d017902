#include "tenon/config/option_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "tenon/base/file.h"
#include "tenon/base/machine_profile.h"
#include "tenon/base/text.h"
#include "tenon/config/option_rows.h"
#include "tenon/config/option_value.h"
#include "tenon/config/options_yaml.h"

namespace tenon {
namespace {

// By bit.
constexpr const char* kCommandNames[] = {"run",    "explain", "models", "logits",  "tokenize",
                                         "render", "inspect", "bench",  "backends"};

constexpr std::string_view kEnvPrefix = "TENON_";

// Set-ness: the kinds of origins are ordered by precedence.
template <typename T>
void Offer(Sourced<T>& field, T value, const Origin& origin) {
  if (origin.kind <= field.origin.kind) field = {std::move(value), origin};
}

Json ValueJson(bool value) { return value; }
Json ValueJson(int64_t value) { return value; }
Json ValueJson(double value) { return value; }
Json ValueJson(const std::string& value) { return value; }
Json ValueJson(const std::vector<std::string>& values) {
  return Json::Array(values.begin(), values.end());
}

// The text that names a place of a config file: "tenon.yaml: threads".
std::string InFile(const std::string& path, const std::string& key) { return path + ": " + key; }

// ", nearest: --threads": compared without prefixes, which would make all names alike. spell(row)
// -> as the user writes it.
template <typename Spell>
std::string Nearest(std::string_view name, const Spell& spell) {
  std::vector<std::string> names;
  for (const OptionRow& row : kOptionRows) names.emplace_back(row.name);
  std::string text;
  for (const std::string& near : NearNames(name, names)) {
    const auto row = std::find_if(std::begin(kOptionRows), std::end(kOptionRows),
                                  [&](const OptionRow& r) { return near == r.name; });
    text += (text.empty() ? ", nearest: " : ", ") + spell(*row);
  }
  return text;
}
bool PluginsMayName(const OptionRow& row) {
  return std::string_view(row.allowed).find("{attn-backend}") != std::string_view::npos;
}
std::string WithoutPrefix(const OptionRow& row) { return row.name; }
std::string WithDashes(const OptionRow& row) { return std::string("--") + row.name; }

}  // namespace

std::string_view NameOf(OptionKind kind) {
  switch (kind) {
    case OptionKind::kFlag:
      return "flag";
    case OptionKind::kInt:
      return "int";
    case OptionKind::kReal:
      return "float";
    case OptionKind::kString:
      return "string";
    case OptionKind::kSize:
      return "size";
    case OptionKind::kEnum:
      return "enum";
    case OptionKind::kList:
      return "list";
    case OptionKind::kPath:
      return "path";
  }
  return "unknown";
}

std::string_view NameOf(OptionStatus status) {
  switch (status) {
    case OptionStatus::kStable:
      return "stable";
    case OptionStatus::kBeta:
      return "beta";
    case OptionStatus::kExperimental:
      return "experimental";
  }
  return "unknown";
}

std::string CommandNames(uint32_t commands) {
  if (commands == kAllCommands) return "all";
  std::vector<std::string> names;
  for (size_t bit = 0; bit < std::size(kCommandNames); ++bit) {
    if ((commands >> bit & 1u) != 0) names.emplace_back(kCommandNames[bit]);
  }
  return Join(names, ", ");
}

OptionTable::OptionTable(OptionChoices choices) : choices_(std::move(choices)) {}

std::span<const OptionRow> OptionTable::rows() const { return kOptionRows; }

const OptionRow* OptionTable::Find(std::string_view name) const {
  for (const OptionRow& row : kOptionRows) {
    if (name == row.name || (!name.empty() && name == row.short_name)) return &row;
  }
  return nullptr;
}

std::string OptionTable::EnvNameOf(const OptionRow& row) {
  std::string name = std::string(kEnvPrefix) + row.name;
  for (char& c : name) {
    if (c == '-') c = '_';
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return name;
}

std::vector<std::string> OptionTable::AllowedValues(const OptionRow& row) const {
  std::vector<std::string> values;
  if (*row.allowed == '\0') return values;
  for (const std::string_view part : Split(row.allowed, '|')) {
    if (part == "{attn-backend}") {
      values.insert(values.end(), choices_.attention_backends.begin(),
                    choices_.attention_backends.end());
    } else if (part == "{isa}") {
      for (const Isa isa : {Isa::kReference, Isa::kBaseline, Isa::kAvx2, Isa::kAvx512,
                            Isa::kAvx512Bf16Vnni, Isa::kAmx}) {
        values.emplace_back(NameOf(isa));
      }
    } else {
      values.emplace_back(part);
    }
  }
  return values;
}

std::string OptionTable::AllowedText(const OptionRow& row) const {
  std::vector<std::string> parts = AllowedValues(row);
  const bool is_number = row.kind == OptionKind::kInt || row.kind == OptionKind::kReal;
  if (is_number && parts.size() <= 1) {
    parts.insert(parts.begin(), std::isinf(row.high) ? fmt::format(">= {}", row.low)
                                                     : fmt::format("{} .. {}", row.low, row.high));
  }
  if (row.kind == OptionKind::kSize) parts.insert(parts.begin(), "a size (8G, 512MiB)");
  if (row.kind == OptionKind::kFlag) parts = {"true", "false"};
  std::string text = Join(parts, " | ");
  if (*row.keys == '\0') return text;
  std::vector<std::string> by_key;
  for (const std::string_view key : Split(row.keys, '|'))
    by_key.push_back(fmt::format("{}=NAME", key));
  return fmt::format("{}, or by kind as {}", text, Join(by_key, ","));
}

Status OptionTable::Set(const OptionRow& row, std::string_view text, const Origin& origin,
                        EngineOptions& options) const {
  const std::vector<std::string> allowed = AllowedValues(row);
  const bool is_set = std::visit(
      [&](auto member) {
        auto& field = options.*member;
        using T = std::decay_t<decltype(field.value)>;
        if constexpr (std::is_same_v<T, bool>) {
          const std::optional<bool> value = ParseFlag(text);
          if (value) Offer(field, *value, origin);
          return value.has_value();
        } else if constexpr (std::is_same_v<T, double>) {
          const std::optional<double> value = ParseReal(row, text);
          if (value) Offer(field, *value, origin);
          return value.has_value();
        } else if constexpr (std::is_same_v<T, std::string>) {
          std::optional<std::string> value = std::string(text);
          if (row.kind == OptionKind::kEnum) value = ParseChoice(allowed, text);
          if (!value && *row.keys != '\0') value = ParseByKey(row, allowed, text);
          if (!value && PluginsMayName(row)) value = std::string(text);  // checked at the end
          if (value) Offer(field, *value, origin);
          return value.has_value();
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          if (text.empty()) return false;
          // One source's entries collect.
          T values = field.origin == origin ? field.value : T();
          values.emplace_back(text);
          Offer(field, std::move(values), origin);
          return true;
        } else {
          bool word = false;
          const std::optional<int64_t> value = ParseInteger(row, allowed, text, word);
          if (value) Offer(field, word ? T() : T(*value), origin);
          return value.has_value();
        }
      },
      row.field);
  return is_set ? Status() : CannotBe(row, text, origin);
}

Status OptionTable::CannotBe(const OptionRow& row, std::string_view text,
                             const Origin& origin) const {
  return UsageError(
      fmt::format("{} = '{}', must be {}; set by {}; fix: give such a value", row.name, text,
                  row.kind == OptionKind::kList ? "a text that is not empty" : AllowedText(row),
                  origin.Text()));
}

// Without plugins nobody else can know such a name; with them PlanModel checks it.
void OptionTable::CheckNames(const EngineOptions& options, std::vector<std::string>& errors) const {
  if (!options.custom_module_dirs.value.empty()) return;
  for (const OptionRow& row : kOptionRows) {
    if (!PluginsMayName(row)) continue;
    const auto& field = options.*std::get<Sourced<std::string> EngineOptions::*>(row.field);
    if (ParseChoice(AllowedValues(row), field.value)) continue;
    errors.push_back(CannotBe(row, field.value, field.origin).message());
  }
}

// A list in one text is taken apart first.
Status OptionTable::SetText(const OptionRow& row, std::string_view text, const Origin& origin,
                            EngineOptions& options) const {
  if (row.kind != OptionKind::kList || row.separator == 0) return Set(row, text, origin, options);
  for (const std::string_view part : Split(text, row.separator)) {
    TN_RETURN_IF_ERROR(Set(row, Trim(part), origin, options));
  }
  return {};
}

EngineOptions OptionTable::Defaults() const {
  EngineOptions options;
  for (const OptionRow& row : kOptionRows) {
    if (row.kind == OptionKind::kList || *row.default_text == '\0') continue;
    const Status status = Set(row, row.default_text, Origin{}, options);
    TN_CHECK(status.ok(), status.message().c_str());
  }
  return options;
}

void OptionTable::ApplyFile(const std::string& path, EngineOptions& options,
                            std::vector<std::string>& errors) const {
  const auto error = [&](const Status& status) { errors.push_back(status.message()); };
  const Result<std::string> text = ReadFile(path);
  if (!text.ok()) return error(text.status().WithContext(options.config.origin.Text()));
  const Result<std::vector<YamlSetting>> settings = ParseOptionsYaml(*text);
  if (!settings.ok()) return error(settings.status().WithContext(path));
  for (const YamlSetting& setting : *settings) {
    const Origin origin = {Origin::Kind::kConfigFile, InFile(path, setting.key)};
    const OptionRow* row = Find(setting.key);
    if (row == nullptr || row->name != setting.key) {
      errors.push_back(fmt::format("{} line {}: unknown option '{}'{}; fix: correct or remove it",
                                   path, setting.line, setting.key,
                                   Nearest(setting.key, WithoutPrefix)));
    } else if (row->kind == OptionKind::kPath && setting.key == "config") {
      errors.push_back(fmt::format("{} line {}: a config file names no other; fix: remove config",
                                   path, setting.line));
    } else if (setting.is_list && row->kind != OptionKind::kList) {
      errors.push_back(
          fmt::format("{} line {}: {} takes one value, not a list; set by {}; fix: "
                      "write `{}: value`",
                      path, setting.line, row->name, origin.Text(), row->name));
    } else {
      for (const std::string& value : setting.values) {
        const Status status = setting.is_list ? Set(*row, value, origin, options)
                                              : SetText(*row, value, origin, options);
        if (!status.ok()) error(status);
      }
    }
  }
}

Result<EngineOptions> OptionTable::Resolve(const OptionInputs& inputs) const {
  EngineOptions options = Defaults();
  std::vector<std::string> errors;
  for (const auto& [name, value] : inputs.command_line) {
    const OptionRow* row = Find(name);
    if (row == nullptr) {
      errors.push_back(
          fmt::format("unknown option --{}{}; fix: see --help", name, Nearest(name, WithDashes)));
    } else if (inputs.command != 0 && (row->commands & inputs.command) == 0) {
      errors.push_back(fmt::format("--{} is no option of {}, it is one of {}; fix: remove it",
                                   row->name, CommandNames(inputs.command),
                                   CommandNames(row->commands)));
    } else {
      const Origin origin = {Origin::Kind::kUser, std::string("--") + row->name};
      const Status status = SetText(*row, value, origin, options);
      if (!status.ok()) errors.push_back(status.message());
    }
  }
  for (const auto& variable : inputs.environment) {
    const std::string& name = variable.first;
    const std::string& value = variable.second;
    const auto row = std::find_if(std::begin(kOptionRows), std::end(kOptionRows),
                                  [&](const OptionRow& r) { return EnvNameOf(r) == name; });
    if (row == std::end(kOptionRows)) {
      std::string bare = name.substr(std::min(name.size(), kEnvPrefix.size()));
      std::replace(bare.begin(), bare.end(), '_', '-');
      errors.push_back(fmt::format("unknown environment variable {}{}; fix: correct or unset it",
                                   name, Nearest(bare, OptionTable::EnvNameOf)));
      continue;
    }
    const Status status = SetText(*row, value, {Origin::Kind::kEnvironment, name}, options);
    if (!status.ok()) errors.push_back(status.message());
  }
  if (!options.config.value.empty()) ApplyFile(options.config.value, options, errors);
  CheckNames(options, errors);
  if (errors.empty()) return options;
  if (errors.size() == 1) return UsageError(errors[0]);
  return UsageError(
      fmt::format("{} problems with options:\n  {}", errors.size(), Join(errors, "\n  ")));
}

Status OptionTable::OfferModelDefaults(std::span<const OptionDefault> defaults,
                                       EngineOptions& options) const {
  for (const OptionDefault& wish : defaults) {
    const OptionRow* row = Find(wish.name);
    if (row == nullptr) {
      return InternalError(fmt::format("a model's default names no option: {}", wish.name));
    }
    const Origin origin = {Origin::Kind::kModelDefault, "model default: " + wish.why};
    TN_RETURN_IF_ERROR(SetText(*row, wish.value, origin, options));
  }
  return {};
}

void OptionTable::OfferGeneration(const GenerationConfig& generation,
                                  EngineOptions& options) const {
  const auto offer = [](auto& field, const auto& source) {
    using T = std::decay_t<decltype(field.value)>;
    if (source.value) Offer(field, T(*source.value), source.origin);
  };
  // Hugging Face samples only when told to; temperature alone does not start it.
  if (generation.do_sample.value.has_value()) {
    const bool samples = *generation.do_sample.value;
    const bool has_temperature = samples && generation.temperature.value.has_value();
    Offer(options.temp, has_temperature ? *generation.temperature.value : (samples ? 1.0 : 0.0),
          has_temperature ? generation.temperature.origin : generation.do_sample.origin);
  }
  offer(options.top_k, generation.top_k);
  offer(options.top_p, generation.top_p);
  offer(options.min_p, generation.min_p);
  offer(options.repetition_penalty, generation.repetition_penalty);
  offer(options.max_new_tokens, generation.max_new_tokens);
  if (!generation.stop_strings.value.empty()) {
    Offer(options.stop, generation.stop_strings.value, generation.stop_strings.origin);
  }
}

namespace {

// A row's value, as JSON, and where it comes from.
std::pair<Json, Origin> ValueOf(const OptionRow& row, const EngineOptions& options) {
  return std::visit(
      [&](auto member) -> std::pair<Json, Origin> {
        const auto& field = options.*member;
        using T = std::decay_t<decltype(field.value)>;
        if constexpr (std::is_same_v<T, std::optional<int64_t>>) {
          return {field.value ? Json(*field.value) : Json(row.default_text), field.origin};
        } else {
          return {ValueJson(field.value), field.origin};
        }
      },
      row.field);
}

}  // namespace

OptionTable::State OptionTable::StateOf(const OptionRow& row, const EngineOptions& options) const {
  auto [value, origin] = ValueOf(row, options);
  return {value.is_string() ? value.as_string() : value.Dump(), std::move(origin)};
}

Json OptionTable::ToJson(const EngineOptions& options) const {
  Json::Array array;
  for (const OptionRow& row : kOptionRows) {
    auto [value, origin] = ValueOf(row, options);
    Json entry;
    entry.Set("option", row.name);
    entry.Set("value", std::move(value));
    entry.Set("origin", origin.Text());
    array.push_back(std::move(entry));
  }
  return array;
}

std::string OptionTable::Markdown() const {
  std::string text =
      "| Option | Type | Default | Allowed | Commands | Environment | Status | What it does |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (const OptionRow& row : kOptionRows) {
    std::string name = fmt::format("`--{}`", row.name);
    if (*row.short_name != '\0') name += fmt::format(", `-{}`", row.short_name);
    std::string type(NameOf(row.kind));
    if (*row.unit != '\0') type += fmt::format(" ({})", row.unit);
    std::string allowed = AllowedText(row);
    for (size_t at = 0; (at = allowed.find('|', at)) != std::string::npos; at += 2) {
      allowed.insert(at, "\\");  // a bare bar would end the cell
    }
    text +=
        fmt::format("| {} | {} | {} | {} | {} | `{}` | {} | {} |\n", name, type,
                    *row.default_text == '\0' ? "" : fmt::format("`{}`", row.default_text), allowed,
                    CommandNames(row.commands), EnvNameOf(row), NameOf(row.status), row.help);
  }
  return text;
}

}  // namespace tenon
