// Reads the YAML of a --config file into flat settings. Knows no option. Pure function;
// thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tenon/base/status.h"

namespace tenon {

struct YamlSetting {
  std::string key;
  std::vector<std::string> values;  // one, unless it is a list
  bool is_list = false;
  int line = 0;  // 1-based
};

// One mapping from names to scalars or lists of scalars; a null value counts as not written. Errors
// say the line (kUsage).
Result<std::vector<YamlSetting>> ParseOptionsYaml(const std::string& text);

}  // namespace tenon
