// QuantKeySet: a list of quantisation keys, compiled so that a name finds those that match it by
// hash: neither names nor keys are scanned, only patterns that begin with a wildcard are tried one
// by one, once for all names that differ in numbers where the pattern cannot tell. Remembers which
// keys matched something. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tenon/base/status.h"
#include "tenon/config/name_regex.h"
#include "tenon/config/quant_rules.h"

namespace tenon {

// A module's name, and the same with every number as `{}`.
struct ModuleName {
  std::string_view name;
  std::string_view numberless;
};

class QuantKeySet {
 public:
  // Other spellings of a name or a glob: what a family's name table makes of it.
  using Spellings = std::function<std::vector<std::string>(const std::string& name)>;
  // kRefused: a pattern that is none.
  static Result<QuantKeySet> Compile(std::vector<QuantKey> keys, const Spellings& spellings);

  // The numbers of the keys that match, ascending. kRefused: a pattern gave up.
  Result<std::vector<int>> Match(const ModuleName& name);
  // Is there a key that names something inside of it? The first such, else -1.
  int FirstInside(std::string_view module) const;
  std::span<const QuantKey> keys() const { return keys_; }
  // Keys that no name matched, and that are not the producer's defaults.
  std::vector<int> Unmatched() const;
  void MarkMatched(int key) { matched_[static_cast<size_t>(key)] = true; }
  // Look-ups and trials of patterns so far.
  int64_t comparisons() const { return comparisons_; }

 private:
  struct Pattern {
    int key;
    std::string text;                  // of a glob, in one of its spellings
    std::unique_ptr<NameRegex> regex;  // null: a glob
    bool sees_numbers;                 // names that differ in numbers may differ in the answer
  };
  using ByName = std::unordered_map<std::string, std::vector<int>>;

  Status Add(int key, const Spellings& spellings);
  Status AddPattern(int key, const QuantKey& spelled);
  Status TryPattern(const Pattern& pattern, std::string_view name, std::vector<int>& hits);
  Status TryPatterns(const ModuleName& name, std::vector<int>& hits);

  std::vector<QuantKey> keys_;
  std::vector<bool> matched_;  // as keys_
  ByName names_;               // keys that are whole names
  ByName parts_;               // keys that may stand anywhere inside
  std::set<size_t> part_counts_;
  std::unordered_map<std::string, int> first_inside_;  // by each ancestor of a name
  std::vector<Pattern> patterns_;
  std::unordered_map<std::string, std::vector<size_t>>
      by_start_;                                                  // patterns_ by a literal ancestor
  std::vector<size_t> unbound_;                                   // the others that see numbers
  std::vector<size_t> unbound_blind_;                             // and those that do not
  std::unordered_map<std::string, std::vector<int>> blind_hits_;  // by numberless name
  int64_t comparisons_ = 0;
};

}  // namespace tenon
