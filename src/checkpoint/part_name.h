// Names of the parts of a set: "model-00002-of-00004.safetensors", and lists of names in messages.
// Internal to this layer. Pure functions, thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tenon {

struct PartName {
  std::string stem;  // "model", with any directory
  int number = 0;    // 1-based
  int count = 0;
  std::string extension;  // ".safetensors"
  std::string NameOf(int part) const;
};
// False when `file` is not named like a part ("...-00001-of-00003.ext").
bool ParsePartName(std::string_view file, PartName& part);

// "a", "b" and 4 more.
std::string SomeNames(const std::vector<std::string>& names);

}  // namespace tenon
