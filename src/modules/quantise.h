// The phase that gives every weight matrix its scheme, between construction and SelectAttention.
// Excludes count first, then the keys of single layers (names before patterns), then the scheme for
// all. Each matrix of a fused layer and of an expert is asked for by itself. Not thread-safe.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/config/quant_keys.h"
#include "tenon/config/quant_rules.h"
#include "tenon/modules/module.h"

namespace tenon {

// The names by which the settings may mean a matrix.
struct LinearName {
  std::string path;     // its own
  std::string fused;    // the module that reads its input in one product; may be the same
  std::string experts;  // of an expert's matrix: the module of all experts; else empty
  // Of heads and routers, which many writers leave out without saying so: the scheme for all layers
  // holds where the file has scales.
  bool only_where_scaled = false;
};

class Quantiser {
 public:
  // skippable: tensors that the family does not need, as patterns; keys may name them.
  Quantiser(LoadContext& context, const QuantRules& rules, std::span<const std::string> skippable);

  const LoadContext& context() const { return context_; }
  // Never null; lives as long as the rules.
  const QuantScheme* SchemeOf(const LinearName& name);
  // Keys that meant nothing are errors; what was decided is recorded.
  void Finish();
  int64_t comparisons() const {
    return (excludes_ ? excludes_->comparisons() : 0) + (layers_ ? layers_->comparisons() : 0);
  }

 private:
  enum class Reason { kGlobal, kOwnKey, kFusedKey, kExpertsKey, kExcluded, kUnscaled };
  struct Group {  // matrices that differ in numbers only, decided alike
    std::string numberless;
    const QuantScheme* scheme;
    Reason reason;
    int64_t matrices;
  };
  static std::string_view TextOf(Reason reason);

  const QuantScheme* Decide(const LinearName& name, Reason& reason);
  const QuantScheme* SchemeOfLayer(const LinearName& name, Reason& reason);
  const QuantScheme* SchemeOfExperts(const LinearName& name);
  std::vector<int> Match(std::optional<QuantKeySet>& keys, std::string_view module);
  // Of the matrix by its canonical and its stored name.
  std::vector<int> MatchSpellings(std::optional<QuantKeySet>& keys, std::string_view path);
  bool IsExcluded(const LinearName& name);
  bool HasScales(const std::string& path, const QuantScheme& scheme) const;
  const QuantScheme* BestOf(const std::vector<int>& hits) const;
  void Count(const std::string& path, const QuantScheme* scheme, Reason reason);
  void CheckUnmatched();
  void Complain(const QuantKey& key, std::string_view kind);
  void RecordDecisions();

  LoadContext& context_;
  const QuantRules& rules_;
  std::span<const std::string> skippable_;
  std::optional<QuantKeySet> excludes_;  // empty: the keys were in error
  std::optional<QuantKeySet> layers_;
  std::vector<Group> groups_;
  std::map<std::string, std::vector<size_t>, std::less<>> groups_of_;  // by numberless name
  bool failed_ = false;
};

// Runs it over the tree; without a quantisation method nothing changes.
void QuantiseModules(LoadContext& context, const QuantRules& rules,
                     std::span<const std::string> skippable);

}  // namespace tenon
