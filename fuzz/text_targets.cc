// Small text formats: JSON and the options' YAML.
#include <algorithm>

#include "support.h"
#include "targets.h"
#include "tenon/config/options_yaml.h"
#include "tenon/plan/options.h"

namespace tenon::fuzz {
namespace {

// NaN is unequal to itself, and a number beyond double's range reads as infinity.
bool IsOrdinary(const Json& json) {
  if (json.is_array()) return std::ranges::all_of(json.as_array(), IsOrdinary);
  if (json.is_object()) {
    return std::ranges::all_of(json.as_object(),
                               [](const Json::Member& m) { return IsOrdinary(m.second); });
  }
  return !json.is_number() || json.as_double() == json.as_double();
}

void WalkJson(const Json& json) {
  Read(json.KindName());
  if (json.is_array()) {
    for (const Json& element : json.as_array()) WalkJson(element);
  } else if (json.is_object()) {
    for (const auto& [name, value] : json.as_object()) {
      TN_CHECK(json.Find(name) == &value, "a member is found by its name, once");
      WalkJson(value);
    }
  }
}

void CheckRoundTrip(const Json& json, int indent) {
  const Result<Json> again = ParseJson(json.Dump(indent));
  TN_CHECK(again.ok(), again.message().c_str());
  TN_CHECK(!IsOrdinary(json) || *again == json, "what was written reads back equal");
}

// Names and values of the file, as the environment would give them.
void ResolveAsEnvironment(const OptionTable& table, const std::vector<YamlSetting>& settings) {
  OptionInputs inputs{.command = kRun};
  for (const YamlSetting& setting : settings) {
    const OptionRow* row = table.Find(setting.key);
    if (row == nullptr) continue;
    Read(table.AllowedText(*row));
    for (const std::string& value : setting.values) {
      inputs.environment.emplace_back(OptionTable::EnvNameOf(*row), value);
      const Result<int64_t> size = ParseSize(value);
      if (!size.ok()) CheckError(size.status());
    }
  }
  const Result<EngineOptions> resolved = table.Resolve(inputs);
  if (!resolved.ok()) CheckError(resolved.status());
}

}  // namespace

void FuzzJson(std::string_view bytes) {
  const Result<Json> quoted = ParseJson(JsonQuote(bytes));
  TN_CHECK(quoted.ok() && quoted->is_string(), "a quoted text is a JSON string");
  const Result<Json> json = ParseJson(bytes);
  if (!json.ok()) return CheckError(json.status());
  WalkJson(*json);
  CheckRoundTrip(*json, -1);
  CheckRoundTrip(*json, 2);
}

void FuzzOptionsYaml(std::string_view bytes) {
  static const ScratchFolder folder;
  static const OptionTable table = EngineOptionTable();
  const auto settings = ParseOptionsYaml(std::string(bytes));
  if (!settings.ok()) return CheckError(settings.status());
  ResolveAsEnvironment(table, *settings);
  OptionInputs inputs{.command = kRun};
  inputs.command_line.push_back({"config", folder.Write("options.yaml", bytes)});
  const Result<EngineOptions> resolved = table.Resolve(inputs);
  if (!resolved.ok()) return CheckError(resolved.status());
  Read(table.ToJson(*resolved).Dump());
}

}  // namespace tenon::fuzz
