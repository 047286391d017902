#include "tenon/config/options_yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

namespace tenon {
namespace {

int LineOf(const YAML::Node& node) { return node.Mark().line + 1; }

Status BadValue(const std::string& key, int line) {
  return UsageError(fmt::format(
      "line {}: the value of {} must be one value or a list of values; fix: write `{}: value`",
      line, key, key));
}

Result<YamlSetting> ReadSetting(const YAML::Node& key, const YAML::Node& value) {
  if (!key.IsScalar())
    return UsageError(fmt::format("line {}: a name must be plain text", LineOf(key)));
  YamlSetting setting;
  setting.key = key.Scalar();
  setting.line = LineOf(key);
  if (value.IsNull()) return setting;
  if (value.IsScalar()) {
    setting.values.push_back(value.Scalar());
    return setting;
  }
  if (!value.IsSequence()) return BadValue(setting.key, setting.line);
  setting.is_list = true;
  for (const YAML::Node& entry : value) {
    if (!entry.IsScalar()) return BadValue(setting.key, setting.line);
    setting.values.push_back(entry.Scalar());
  }
  return setting;
}

Result<std::vector<YamlSetting>> ReadMapping(const YAML::Node& root) {
  std::vector<YamlSetting> settings;
  if (root.IsNull()) return settings;
  if (!root.IsMap()) {
    return UsageError("line 1: must be lines of `name: value`");
  }
  for (const auto& member : root) {
    TN_ASSIGN_OR_RETURN(YamlSetting setting, ReadSetting(member.first, member.second));
    const auto twin = std::find_if(settings.begin(), settings.end(),
                                   [&](const auto& have) { return have.key == setting.key; });
    if (twin != settings.end()) {
      return UsageError(fmt::format("line {}: {} is already set in line {}; fix: remove one",
                                    setting.line, setting.key, twin->line));
    }
    settings.push_back(std::move(setting));
  }
  std::erase_if(settings,
                [](const auto& setting) { return setting.values.empty() && !setting.is_list; });
  return settings;
}

}  // namespace

Result<std::vector<YamlSetting>> ParseOptionsYaml(const std::string& text) {
  // The library throws; nothing of ours does.
  try {
    return ReadMapping(YAML::Load(text));
  } catch (const YAML::Exception& error) {
    return UsageError(fmt::format("line {}: not valid YAML: {}", error.mark.line + 1, error.msg));
  }
}

}  // namespace tenon
