// Loads the tokenizer goldens (format: see goldens_tokenizer in the shared folder) and the
// tokenizers they belong to. Test helper.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "support/paths.h"
#include "tenon/base/file.h"
#include "tenon/base/json.h"
#include "tenon/tokenizer/tokenizer.h"

namespace tenon::test {

// One tokenizer with its goldens. The tiny ones are in the repository, the others are optional.
struct GoldenSet {
  std::string name;
  bool tiny = false;

  std::string TokenizerPath() const {
    return tiny ? DataPath("goldens/tokenizers_tiny/" + name + "/tokenizer.json")
                : SharedPath("tokenizers/" + name + "/tokenizer.json.xz");
  }
  std::string GoldenPath() const {
    return tiny ? DataPath("goldens/tokenizers_tiny/" + name + "/goldens.json")
                : SharedPath("goldens_tokenizer/" + name + ".json");
  }
  bool IsPresent() const { return tiny || (!TokenizerPath().empty() && FileExists(GoldenPath())); }
};

inline void PrintTo(const GoldenSet& set, std::ostream* out) { *out << set.name; }

// What the command line tool xz makes of a file.
inline std::string ReadXz(const std::string& path) {
  const std::string command = "xz -dkc '" + path + "'";
  std::FILE* pipe = popen(command.c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  std::string text;
  std::vector<char> buffer(1 << 20);
  for (size_t read = 0; (read = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    text.append(buffer.data(), read);
  }
  EXPECT_EQ(pclose(pipe), 0) << command;
  return text;
}

inline std::shared_ptr<const Tokenizer> LoadTokenizer(const GoldenSet& set) {
  auto tokenizer = set.tiny ? Tokenizer::FromFile(set.TokenizerPath())
                            : Tokenizer::FromJson(ReadXz(set.TokenizerPath()));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.message();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

inline std::vector<int64_t> ReadIds(const Json& json, std::string_view key) {
  std::vector<int64_t> ids;
  for (const Json& id : json.Find(key)->as_array()) ids.push_back(id.as_int());
  return ids;
}

inline std::vector<std::string> ReadStrings(const Json& json, std::string_view key) {
  std::vector<std::string> strings;
  for (const Json& item : json.Find(key)->as_array()) strings.push_back(item.as_string());
  return strings;
}

}  // namespace tenon::test
