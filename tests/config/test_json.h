// JSON literals for the config tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "tenon/base/json.h"

namespace tenon::test {

inline Json J(std::string_view text) {
  const Result<Json> json = ParseJson(text);
  EXPECT_TRUE(json.ok()) << text << ": " << json.message();
  return json.ok() ? *json : Json();
}

// `base` with the members of `patch` set over it.
inline Json Patched(Json base, const Json& patch) {
  for (const auto& [key, value] : patch.as_object()) base.Set(key, value);
  return base;
}

inline bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace tenon::test
