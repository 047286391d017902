// The only place that reads environment variables. docs/options.md lists them. Thread-safe as long
// as nothing changes the environment.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon {

// The variable's value, or nothing when it is unset or empty.
std::optional<std::string> GetEnv(const std::string& name);
// All variables whose names start with `prefix`, as (name, value), sorted; empty ones are left out.
std::vector<std::pair<std::string, std::string>> EnvWithPrefix(std::string_view prefix);

}  // namespace tenon
