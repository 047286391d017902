// Which names a key means, in each producer's reading, and what finding that out costs.
#include "tenon/config/quant_keys.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "tenon/config/glob.h"

namespace tenon {
namespace {

using Match = QuantKey::Match;

// As PatternKey of the checkpoint layer makes it.
std::string Numberless(std::string_view name) {
  std::string text;
  for (size_t i = 0; i < name.size();) {
    size_t end = i;
    while (end < name.size() && '0' <= name[end] && name[end] <= '9') ++end;
    const bool is_part =
        end > i && (i == 0 || name[i - 1] == '.') && (end == name.size() || name[end] == '.');
    text += is_part ? "{}" : std::string(1, name[i]);
    i = is_part ? end : i + 1;
  }
  return text;
}

QuantKeySet SetOf(std::vector<QuantKey> keys, const QuantKeySet::Spellings& spellings = {}) {
  Result<QuantKeySet> set = QuantKeySet::Compile(std::move(keys), spellings);
  TN_CHECK(set.ok(), set.message().c_str());
  return *std::move(set);
}

bool Matches(Match match, const std::string& key, std::string_view name) {
  QuantKeySet set = SetOf({{key, match}});
  const Result<std::vector<int>> hits = set.Match({name, Numberless(name)});
  EXPECT_TRUE(hits.ok()) << hits.message();
  return hits.ok() && !hits->empty();
}

TEST(Glob, AsPythonsFnmatch) {
  // pattern, text, fnmatch.fnmatchcase(text, pattern) of Python 3.11
  const std::vector<std::tuple<const char*, const char*, bool>> cases = {
      {"*", "", true},        {"a*c", "abc", true},
      {"a*c", "abcd", false}, {"*gate*", "x.gate", true},
      {"a?c", "a.c", true},   {"a?c", "ac", false},
      {"[ab]x", "bx", true},  {"[!ab]x", "bx", false},
      {"[a-c]", "b", true},   {"[]x]", "]", true},
      {"[x", "[x", true},     {"A", "a", false},
      {"**a**", "bab", true}, {"a\\*", "a\\b", true},
      {"", "", true},         {"", "a", false},
      {"*.*", "ab", false},   {"[a-]", "-", true},
  };
  for (const auto& [pattern, text, expected] : cases) {
    EXPECT_EQ(GlobMatches(pattern, text), expected) << pattern << " on " << text;
  }
  // No more steps than lengths multiply to: this ends.
  std::string stars;
  for (int i = 0; i < 2000; ++i) stars += "*a";
  EXPECT_FALSE(GlobMatches(stars + "b", std::string(4000, 'a')));
}

TEST(QuantKeys, WhatEachReadingMeans) {
  const std::string gate = "model.layers.3.mlp.gate";
  const std::string gate_proj = "model.layers.3.mlp.gate_proj";
  struct Case {
    Match match;
    const char* key;
    std::string name;
    bool expected;
  };
  const std::vector<Case> cases = {
      {Match::kName, "model.layers.3.mlp.gate", gate, true},
      {Match::kName, "model.layers.3.mlp", gate, false},
      // The name, an ancestor, or parts at dots; never a piece of a part.
      {Match::kParts, "lm_head", "lm_head", true},
      {Match::kParts, "model.layers.3", gate, true},
      {Match::kParts, "model.layers.3", "model.layers.31.mlp.gate", false},
      {Match::kParts, "mlp.gate", gate, true},
      {Match::kParts, "mlp.gate", gate_proj, false},
      {Match::kParts, "gate", gate, true},
      {Match::kParts, "ate", gate, false},
      // trtllm.md 4.4: globs cross dots; "x.*" is "x" too; ancestors count.
      {Match::kGlob, "*gate", gate, true},
      {Match::kGlob, "model.*.gate", gate, true},
      {Match::kGlob, "*.mlp", gate, true},
      {Match::kGlob, "model.layers.3*", gate, true},
      {Match::kGlob, "model.layers.3*", "model.layers.31.mlp.gate", true},
      {Match::kGlob, "model.layers.3.*", "model.layers.31.mlp.gate", false},
      {Match::kGlob, "lm_head.*", "lm_head", true},
      {Match::kGlob, "model.layers.3.mlp.gate.*", gate, true},
      {Match::kGlob, "model.layers.?.mlp.gate", gate, true},
      {Match::kGlob, "model.layers.?.mlp.gate", "model.layers.31.mlp.gate", false},
      {Match::kGlob, "LM_HEAD", "lm_head", false},
      // Python's re.match: from the start, not to the end.
      {Match::kRegex, "re:.*gate$", gate, true},
      {Match::kRegex, "re:.*gate$", gate_proj, false},
      {Match::kRegex, "re:.*mlp.gate", gate_proj, true},
      {Match::kRegex, "re:mlp", gate, false},
      {Match::kRegex, "re:model\\.layers\\.[0-2]\\.", gate, false},
      {Match::kRegex, "re:model\\.layers\\.[0-3]\\.", gate, true},
      {Match::kRegex, "re:vision|model", gate, true},
      {Match::kRegex, "re:model\\.layers\\.3?\\.mlp", gate, true},
      {Match::kRegex, "re:model\\.layers\\.3(?=\\.)", gate, true},
      // trtllm.md 4.4: all of the name, or of an ancestor.
      {Match::kRegexTree, "re:.*mlp.gate", gate_proj, false},
      {Match::kRegexTree, "re:.*mlp", gate_proj, true},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Matches(c.match, c.key, c.name), c.expected) << c.key << " on " << c.name;
  }
}

// A pattern that cannot tell numbers apart is tried once; one that can is tried on each.
TEST(QuantKeys, NumbersAreToldApartWherePatternsDo) {
  for (const auto& [match, key, expected] : std::vector<std::tuple<Match, std::string, int>>{
           {Match::kGlob, "*mlp.gate", 20},
           {Match::kGlob, "*layers.1*.mlp.gate", 11},
           {Match::kGlob, "*layers.?.mlp.gate", 10},
           {Match::kRegex, "re:.*layers\\..*\\.mlp\\.gate$", 20},
           {Match::kRegex, "re:.*layers\\.\\d\\.mlp", 10},
           {Match::kRegex, "re:.*layers..\\.mlp", 10},
           {Match::kRegex, "re:.*layers...mlp", 10},
           {Match::kRegex, "re:.*layers\\.(\\d)\\1\\.", 1},
           {Match::kRegex, "re:.*\\.1?5\\.", 2}}) {
    QuantKeySet set = SetOf({{key, match}});
    int hits = 0;
    for (int i = 0; i < 20; ++i) {
      const std::string name = "model.layers." + std::to_string(i) + ".mlp.gate";
      hits += static_cast<int>(set.Match({name, Numberless(name)})->size());
    }
    EXPECT_EQ(hits, expected) << key;
  }
}

TEST(QuantKeys, AllThatMatchAreFoundAndTheOthersKnown) {
  QuantKeySet set = SetOf({{"lm_head", Match::kGlob},
                           {"*head", Match::kGlob},
                           {"tail", Match::kGlob},
                           {"implied", Match::kParts, true}});
  EXPECT_EQ(*set.Match({"lm_head", "lm_head"}), (std::vector<int>{0, 1}));
  EXPECT_EQ(set.Unmatched(), std::vector<int>{2});
}

TEST(QuantKeys, OtherSpellingsOfAKey) {
  QuantKeySet set =
      SetOf({{"language_model.model.norm", Match::kName}}, [](const std::string& name) {
        return std::vector<std::string>{name.substr(name.find("model.norm"))};
      });
  EXPECT_EQ(set.Match({"model.norm", "model.norm"})->size(), 1u);
  EXPECT_EQ(set.FirstInside("model"), 0);
  EXPECT_EQ(set.FirstInside("norm"), -1);
}

TEST(QuantKeys, HostilePatterns) {
  const auto bad = QuantKeySet::Compile({{"re:(", Match::kRegex}}, {});
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.message().find("'(' is no regular expression"), std::string::npos) << bad.message();
  EXPECT_FALSE(QuantKeySet::Compile({{"re:" + std::string(5000, 'a'), Match::kRegex}}, {}).ok());
  EXPECT_FALSE(QuantKeySet::Compile({{"re:" + std::string(3000, '('), Match::kRegex}}, {}).ok());
  QuantKeySet slow = SetOf({{"re:(a+)+$", Match::kRegex}});
  const std::string name = std::string(60, 'a') + "b";
  const auto gave_up = slow.Match({name, name});
  ASSERT_FALSE(gave_up.ok());
  EXPECT_NE(gave_up.message().find("gave up"), std::string::npos);
}

// A set as large as DeepSeek-V3's, every matrix with its own key and lists of patterns beside.
TEST(QuantKeys, CostIsLinearInTheNames) {
  const auto run = [](int layers) {
    std::vector<std::string> names;
    for (int l = 0; l < layers; ++l) {
      for (int e = 0; e < 256; ++e) {
        for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
          names.push_back("model.layers." + std::to_string(l) + ".mlp.experts." +
                          std::to_string(e) + "." + part);
        }
      }
    }
    std::vector<QuantKey> keys;
    for (const std::string& name : names) keys.push_back({name, Match::kName});
    for (int l = 0; l < layers; ++l) {
      keys.push_back({"model.layers." + std::to_string(l) + ".self_attn*", Match::kGlob});
      keys.push_back(
          {"re:model\\.layers\\." + std::to_string(l) + "\\.mlp\\.gate$", Match::kRegex});
    }
    for (const char* glob : {"*router*", "lm_head", "*.mlp.gate"})
      keys.push_back({glob, Match::kGlob});
    std::vector<std::string> numberless;
    for (const std::string& name : names) numberless.push_back(Numberless(name));
    const auto begin = std::chrono::steady_clock::now();
    QuantKeySet set = SetOf(std::move(keys));
    for (size_t i = 0; i < names.size(); ++i) {
      EXPECT_EQ(*set.Match({names[i], numberless[i]}), std::vector<int>{static_cast<int>(i)});
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("%zu names, %lld comparisons, %.3f s\n", names.size(),
                static_cast<long long>(set.comparisons()), took.count());
    return static_cast<double>(set.comparisons()) / static_cast<double>(names.size());
  };
  const double few = run(6);
  const double many = run(60);
  // The name, its 7 ancestors, the layer's glob on each of them, the layer's regex.
  EXPECT_NEAR(many, 1 + 7 + 7 + 1, 0.1);
  EXPECT_NEAR(many, few, 0.1);
}

}  // namespace
}  // namespace tenon
