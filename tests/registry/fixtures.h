// A small made-up zoo for the tests of this folder: three families, one that the build leaves out,
// names that are known and not built or removed, and providers that count how often they run. Not
// models: none of these computes.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/words.h"
#include "tenon/registry/registry.h"

namespace tenon::test {

struct FakeConfig : ModelConfig {
  FakeConfig(ConfigReader& /*reader*/, Container /*container*/) {}
};

class FakeModel final : public Model {
 public:
  using Config = FakeConfig;
  FakeModel(const Scope& scope, const FakeConfig& /*config*/) : Model(scope) {}
  Value Forward(tenon::Forward& /*pass*/) const override { return {}; }
  static NameTable Names(const FakeConfig& /*config*/, Container /*container*/) { return {}; }
};

inline constexpr ArchitectureRow kRows[] = {
    {"AlphaForCausalLM", "alpha", "alpha", ModelKind::kCausalLm, ModelStatus::kStable, "0.1"},
    {"AlphaForMaskedLM", "alpha_masked", "alpha", ModelKind::kEncoder, ModelStatus::kStable, "0.1"},
    {"BetaForCausalLM", "beta", "beta", ModelKind::kCausalLm, ModelStatus::kStable, "0.1"},
    {"BetaForConditionalGeneration", "beta", "beta", ModelKind::kEncoderDecoder,
     ModelStatus::kStable, "0.1"},
    {"GammaForCausalLM", "gamma", "gamma", ModelKind::kCausalLm, ModelStatus::kStable, "0.1"},
    {"PlannedForCausalLM", "planned", "planned", ModelKind::kCausalLm, ModelStatus::kNotBuilt},
    {"OldForCausalLM", "old", "old", ModelKind::kCausalLm, ModelStatus::kRemoved, "0.3"},
    {"Eagle3OmegaForCausalLM", "", "drafts", ModelKind::kDraft, ModelStatus::kNotBuilt},
    {"EAGLE3AlphaForCausalLM", "", "alpha", ModelKind::kDraft, ModelStatus::kStable, "0.1"},
    {"AbsentForCausalLM", "absent", "absent", ModelKind::kCausalLm, ModelStatus::kStable, "0.1"},
};
inline constexpr GgufRow kGgufRows[] = {{"alpha", "alpha"}, {"beta", "beta"}, {"absent", "absent"}};
inline constexpr ModelTypeRow kTypeRows[] = {{"alpha_next", "AlphaForCausalLM"}};
inline constexpr DraftRow kDraftRows[] = {{"MTP", "beta", ModelStatus::kStable},
                                          {"PARD", "drafts", ModelStatus::kNotBuilt},
                                          {"OWN", "", ModelStatus::kStable}};
inline constexpr TargetRow kTargetRows[] = {{"GammaForCausalLM", "gamma_fast"}};
inline constexpr StaticIndex kIndex = {.architectures = kRows,
                                       .model_types = kTypeRows,
                                       .drafts = kDraftRows,
                                       .gguf = kGgufRows,
                                       .targets = kTargetRows};

// What a provider does when it opens.
struct Script {
  std::vector<std::pair<std::string, std::string>> models;  // architecture, model_type
  std::vector<std::pair<std::string, std::string>> gguf;    // GGUF's name, architecture
  std::function<Status(Registrar&)> then = {};  // after the registrations; its error fails them
};

// Providers by these scripts; how often each ran. The registry may not outlive it.
class FakeZoo {
 public:
  Provider Make(std::string name, Script script, bool builtin = true) {
    runs_.emplace_back(name, std::make_unique<std::atomic<int>>(0));
    std::atomic<int>* count = runs_.back().second.get();
    return {std::move(name), builtin, [script = std::move(script), count](Registrar& registrar) {
              ++*count;
              for (const auto& [architecture, type] : script.models) {
                registrar.Model<FakeModel>(architecture, ModelKind::kCausalLm,
                                           {.model_type = type});
              }
              for (const auto& [gguf, architecture] : script.gguf) {
                registrar.Gguf(gguf, [architecture = architecture](const GgufMetadata&) {
                  return Result<std::string>(architecture);
                });
              }
              return script.then ? script.then(registrar) : Status();
            }};
  }
  Provider External(std::string name, Script script) {
    return Make(std::move(name), std::move(script), /*builtin=*/false);
  }
  // Of all providers of this name together.
  int Runs(std::string_view name) const {
    int runs = 0;
    for (const auto& [key, count] : runs_) runs += key == name ? count->load() : 0;
    return runs;
  }
  int Runs() const {
    int runs = 0;
    for (const auto& [key, count] : runs_) runs += count->load();
    return runs;
  }
  // alpha, beta and gamma as the index says.
  std::vector<Provider> Builtins() {
    return {Make("alpha",
                 {.models = {{"AlphaForCausalLM", "alpha"}, {"AlphaForMaskedLM", "alpha_masked"}},
                  .gguf = {{"alpha", "AlphaForCausalLM"}}}),
            Make("beta",
                 {.models = {{"BetaForCausalLM", "beta"}, {"BetaForConditionalGeneration", "beta"}},
                  .gguf = {{"beta", "BetaForCausalLM"}}}),
            Make("gamma", {.models = {{"GammaForCausalLM", "gamma"}}})};
  }

 private:
  std::vector<std::pair<std::string, std::unique_ptr<std::atomic<int>>>> runs_;
};

inline std::string ProviderOf(Registry& registry, std::string_view architecture) {
  const auto found = registry.Find(architecture);
  return found.ok() ? found->provider : "error: " + found.message();
}

// The refusal holds every one of the words.
template <typename T>
void ExpectRefusal(const Result<T>& result, std::initializer_list<std::string_view> words) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.code(), StatusCode::kRefused) << result.message();
  ExpectWords(result.message(), words);
}

}  // namespace tenon::test
