// The only place that reads environment variables. docs/options.md lists them. Thread-safe as long
// as nothing changes the environment.
#pragma once

#include <optional>
#include <string>

namespace tenon {

// The variable's value, or nothing when it is unset or empty.
std::optional<std::string> GetEnv(const std::string& name);

}  // namespace tenon
