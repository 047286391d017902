// Opening: the index is data, a provider runs on the first look-up that needs it, once, and what it
// registers counts together or not at all; every reason for not finding something is a kind of its
// own.
#include "tenon/registry/registry.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "registry/fixtures.h"

namespace tenon {
namespace {

using test::ExpectRefusal;
using test::FakeZoo;
using test::kIndex;
using test::ProviderOf;

TEST(Registry, ReadingTheIndexRunsNoProvider) {
  FakeZoo zoo;
  Registry registry(kIndex, zoo.Builtins());
  ASSERT_NE(registry.FindRow("BetaForCausalLM"), nullptr);
  EXPECT_EQ(registry.FindRow("BetaForCausalLM")->provider, "beta");
  EXPECT_EQ(registry.FindRow("DeltaForCausalLM"), nullptr);
  EXPECT_EQ(registry.ArchitecturesOfModelType("beta"),
            (std::vector<std::string>{"BetaForCausalLM", "BetaForConditionalGeneration"}));
  EXPECT_TRUE(registry.ArchitecturesOfModelType("delta").empty());
  for (const ArchitectureRow& row : registry.index().architectures) {
    const bool served = row.status < ModelStatus::kNotBuilt && row.provider != "absent";
    EXPECT_EQ(registry.IsServed(row), served) << row.architecture;
  }
  EXPECT_EQ(zoo.Runs(), 0);
  EXPECT_EQ(registry.opened(), 0);
}

TEST(Registry, ALookUpOpensItsProviderOnceAndNoOther) {
  FakeZoo zoo;
  Registry registry(kIndex, zoo.Builtins());
  const auto first = registry.Find("BetaForCausalLM");
  ASSERT_TRUE(first.ok()) << first.message();
  EXPECT_EQ(first->provider, "beta");
  EXPECT_EQ(first->entry->architecture, "BetaForCausalLM");
  EXPECT_EQ(first->entry->traits.model_type, "beta");
  const auto again = registry.Find("BetaForCausalLM");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->entry, first->entry);
  EXPECT_EQ(ProviderOf(registry, "BetaForConditionalGeneration"), "beta");
  EXPECT_EQ(zoo.Runs("beta"), 1);
  EXPECT_EQ(zoo.Runs(), 1);
  EXPECT_EQ(registry.opened(), 1);
}

TEST(Registry, EightThreadsOpenAProviderOnce) {
  FakeZoo zoo;
  std::vector<Provider> builtins;
  builtins.push_back(zoo.Make(
      "alpha", {.models = {{"AlphaForCausalLM", "alpha"}, {"AlphaForMaskedLM", "alpha_masked"}},
                .then = [](Registrar&) {
                  std::this_thread::sleep_for(std::chrono::milliseconds(20));
                  return Status();
                }}));
  Registry registry(kIndex, std::move(builtins));
  std::atomic<int> waiting = 0;
  std::vector<std::shared_ptr<const ModelEntry>> entries(8);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < entries.size(); ++t) {
    threads.emplace_back([&, t] {
      ++waiting;
      while (waiting < 8) std::this_thread::yield();
      const auto found = registry.Find(t % 2 == 0 ? "AlphaForCausalLM" : "AlphaForMaskedLM");
      if (found.ok()) entries[t] = found->entry;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(zoo.Runs("alpha"), 1);
  ASSERT_NE(entries[0], nullptr);
  ASSERT_NE(entries[1], nullptr);
  EXPECT_EQ(entries[0]->architecture, "AlphaForCausalLM");
  EXPECT_EQ(entries[1]->architecture, "AlphaForMaskedLM");
  for (size_t t = 2; t < entries.size(); ++t) EXPECT_EQ(entries[t], entries[t % 2]);
}

TEST(Registry, AFailedProviderKeepsItsCause) {
  FakeZoo zoo;
  std::vector<Provider> builtins;
  builtins.push_back(zoo.Make(
      "alpha", {.models = {{"AlphaForCausalLM", "alpha"}},
                .then = [](Registrar&) { return IoError("libquux.so.3: no such file"); }}));
  builtins.push_back(zoo.Make("beta", {.models = {{"BetaForCausalLM", "beta"}}}));
  Registry registry(kIndex, std::move(builtins));
  const auto first = registry.Find("AlphaForCausalLM");
  ExpectRefusal(first, {"provider 'alpha'", "libquux.so.3: no such file"});
  EXPECT_EQ(first.message().find("unknown"), std::string::npos) << first.message();
  const auto other = registry.Find("AlphaForMaskedLM");
  ExpectRefusal(other, {"provider 'alpha'", "libquux.so.3: no such file"});
  EXPECT_EQ(registry.Find("AlphaForCausalLM").message(), first.message());
  ExpectRefusal(registry.ArchitectureOfGguf("alpha", GgufMetadata()), {"libquux.so.3"});
  EXPECT_EQ(zoo.Runs("alpha"), 1);
  EXPECT_EQ(ProviderOf(registry, "BetaForCausalLM"), "beta");
}

TEST(Registry, RegistrationsAreCommittedTogetherOrNotAtAll) {
  FakeZoo zoo;
  Registry registry(kIndex, zoo.Builtins());
  ASSERT_EQ(ProviderOf(registry, "GammaForCausalLM"), "gamma");
  const Provider broken = zoo.External(
      "/p/broken.so", {.models = {{"GammaForCausalLM", "gamma"}, {"DeltaForCausalLM", "delta"}},
                       .gguf = {{"alpha", "DeltaForCausalLM"}},
                       .then = [](Registrar&) { return IoError("no symbol f"); }});
  const Status status = registry.AddExternal(broken);
  EXPECT_EQ(status.code(), StatusCode::kRefused);
  EXPECT_NE(status.message().find("no symbol f"), std::string::npos) << status.message();
  EXPECT_EQ(ProviderOf(registry, "GammaForCausalLM"), "gamma");
  ExpectRefusal(registry.Find("DeltaForCausalLM"), {"unknown"});
  EXPECT_EQ(*registry.ArchitectureOfGguf("alpha", GgufMetadata()), "AlphaForCausalLM");
  EXPECT_TRUE(registry.notes().empty());
  // Given once more, it is neither run again nor forgiven.
  EXPECT_EQ(registry.AddExternal(broken).message(), status.message());
  EXPECT_EQ(zoo.Runs("/p/broken.so"), 1);
}

TEST(Registry, KnownButNotBuiltIsItsOwnError) {
  FakeZoo zoo;
  Registry registry(kIndex, zoo.Builtins());
  const auto found = registry.Find("AbsentForCausalLM");
  ExpectRefusal(found, {"'AbsentForCausalLM' is known", "'absent'", "TENON_ZOO"});
  EXPECT_EQ(found.message().find("unknown"), std::string::npos) << found.message();
  ExpectRefusal(registry.ArchitectureOfGguf("absent", GgufMetadata()), {"is known", "'absent'"});
  EXPECT_EQ(zoo.Runs(), 0);
}

TEST(Registry, AnUnknownNameGetsNearNames) {
  FakeZoo zoo;
  Registry registry(kIndex, zoo.Builtins());
  ExpectRefusal(registry.Find("AlphaForCausalML"), {"unknown", "did you mean AlphaForCausalLM"});
  ExpectRefusal(registry.Find("Zzz"), {"'Zzz' is unknown", "tenon models"});
  EXPECT_EQ(registry.Find("Zzz").message().find("did you mean"), std::string::npos);
  ExpectRefusal(registry.ArchitectureOfGguf("alphas", GgufMetadata()), {"did you mean alpha"});
  ExpectRefusal(registry.ArchitectureOfGguf("zzzzzz", GgufMetadata()), {"known: alpha, beta"});
  EXPECT_EQ(zoo.Runs(), 0);
  // What only an external serves is near, too.
  ASSERT_TRUE(
      registry.AddExternal(zoo.External("/p/omega.so", {.models = {{"Omega", "omega"}}})).ok());
  ExpectRefusal(registry.Find("Omegas"), {"did you mean Omega?"});
}

TEST(Registry, AProviderMayReuseAnotherFamily) {
  FakeZoo zoo;
  std::vector<Provider> builtins = zoo.Builtins();
  std::shared_ptr<const ModelEntry> reused;
  builtins[1] = zoo.Make("beta", {.models = {{"BetaForCausalLM", "beta"}},
                                  .then = [&](Registrar& registrar) -> Status {
                                    TN_ASSIGN_OR_RETURN(reused, registrar.Find("AlphaForCausalLM"));
                                    return {};
                                  }});
  Registry registry(kIndex, std::move(builtins));
  EXPECT_EQ(ProviderOf(registry, "BetaForCausalLM"), "beta");
  EXPECT_EQ(reused, registry.Find("AlphaForCausalLM")->entry);
  EXPECT_EQ(zoo.Runs("alpha"), 1);
}

TEST(Registry, AFailingDependencyIsNamedWithItsCause) {
  FakeZoo zoo;
  const auto needs = [](const char* architecture) {
    return [architecture](Registrar& registrar) { return registrar.Find(architecture).status(); };
  };
  std::vector<Provider> builtins;
  builtins.push_back(zoo.Make("alpha", {.then = [](Registrar&) { return IoError("disk gone"); }}));
  builtins.push_back(zoo.Make(
      "beta", {.models = {{"BetaForCausalLM", "beta"}}, .then = needs("AlphaForCausalLM")}));
  builtins.push_back(zoo.Make(
      "gamma", {.models = {{"GammaForCausalLM", "gamma"}}, .then = needs("NowhereForCausalLM")}));
  Registry registry(kIndex, std::move(builtins));
  ExpectRefusal(registry.Find("BetaForCausalLM"),
                {"provider 'beta'", "provider 'alpha'", "disk gone"});
  // The missing one is what the provider needs, not what was asked for.
  ExpectRefusal(registry.Find("GammaForCausalLM"), {"provider 'gamma' failed", "'Nowhere"});
}

TEST(Registry, AProviderThatLooksItselfUpFails) {
  FakeZoo zoo;
  std::vector<Provider> builtins;
  builtins.push_back(zoo.Make("alpha", {.then = [](Registrar& registrar) {
                                return registrar.Find("AlphaForCausalLM").status();
                              }}));
  Registry registry(kIndex, std::move(builtins));
  ExpectRefusal(registry.Find("AlphaForCausalLM"), {"provider 'alpha'", "while it opens"});
  EXPECT_EQ(zoo.Runs("alpha"), 1);
}

TEST(Registry, ARowThatItsProviderDoesNotServeIsNotUnknown) {
  FakeZoo zoo;
  std::vector<Provider> builtins;
  builtins.push_back(zoo.Make("alpha", {.models = {{"AlphaForCausalLM", "alpha"}}}));
  Registry registry(kIndex, std::move(builtins));
  const auto found = registry.Find("AlphaForMaskedLM");
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.message().find("provider 'alpha'"), std::string::npos) << found.message();
  EXPECT_EQ(found.message().find("unknown"), std::string::npos) << found.message();
}

TEST(Registry, GgufArchitecturesAreNamedByTheirProvider) {
  FakeZoo zoo;
  Registry registry(kIndex, zoo.Builtins());
  EXPECT_EQ(*registry.ArchitectureOfGguf("beta", GgufMetadata()), "BetaForCausalLM");
  EXPECT_EQ(zoo.Runs("beta"), 1);
  EXPECT_EQ(zoo.Runs(), 1);
}

TEST(Registry, KnownNotBuiltAndRemovedAreErrorsOfTheirOwn) {
  FakeZoo zoo;
  Registry registry(kIndex, zoo.Builtins());
  ExpectRefusal(registry.Find("PlannedForCausalLM"),
                {"'PlannedForCausalLM'", "known, but not built", "'planned'", "fix:"});
  ExpectRefusal(registry.Find("OldForCausalLM"),
                {"'OldForCausalLM'", "served before version 0.3", "fix:"});
  for (const char* name : {"PlannedForCausalLM", "OldForCausalLM"}) {
    EXPECT_EQ(registry.Find(name).message().find("unknown"), std::string::npos);
  }
  EXPECT_EQ(zoo.Runs(), 0);
  // A library may serve what we do not.
  ASSERT_TRUE(registry
                  .AddExternal(zoo.External(
                      "/p/x.so",
                      {.models = {{"PlannedForCausalLM", "planned"}, {"OldForCausalLM", "old"}}}))
                  .ok());
  EXPECT_EQ(ProviderOf(registry, "PlannedForCausalLM"), "/p/x.so");
  EXPECT_EQ(ProviderOf(registry, "OldForCausalLM"), "/p/x.so");
}

TEST(Registry, WhatAProviderThrowsIsItsFailure) {
  FakeZoo zoo;
  Registry registry(kIndex, zoo.Builtins());
  const Status failed = registry.AddExternal(
      zoo.External("/p/t.so", {.models = {{"Omega", "omega"}}, .then = [](Registrar&) -> Status {
                                 throw std::runtime_error("no licence file");
                               }}));
  EXPECT_EQ(failed.code(), StatusCode::kRefused);
  test::ExpectWords(failed.message(), {"'/p/t.so' failed to open", "threw", "no licence file"});
  const Status odd = registry.AddExternal(
      zoo.External("/p/u.so", {.then = [](Registrar&) -> Status { throw 3; }}));
  test::ExpectWords(odd.message(), {"'/p/u.so' failed to open", "no std::exception"});
}

TEST(Registry, AnExternalThatRegistersNothingFails) {
  FakeZoo zoo;
  Registry registry(kIndex, zoo.Builtins());
  const Status failed = registry.AddExternal(zoo.External("/p/empty.so", {}));
  test::ExpectWords(failed.message(), {"'/p/empty.so'", "registers nothing"});
}

TEST(Registry, RegisteringAfterTheOpeningFailsTheProvider) {
  FakeZoo zoo;
  Registry registry(kIndex, zoo.Builtins());
  Registrar* kept = nullptr;
  ASSERT_TRUE(registry
                  .AddExternal(zoo.External("/p/late.so", {.models = {{"GammaForCausalLM", "g"}},
                                                           .then =
                                                               [&](Registrar& registrar) {
                                                                 kept = &registrar;
                                                                 return Status();
                                                               }}))
                  .ok());
  ASSERT_EQ(ProviderOf(registry, "GammaForCausalLM"), "/p/late.so");
  const auto in_use = registry.Find("GammaForCausalLM")->entry;
  kept->Model<test::FakeModel>("DeltaForCausalLM", ModelKind::kCausalLm, {.model_type = "d"});
  // Its slots go back; nothing of it is served any more, and why is said.
  EXPECT_EQ(ProviderOf(registry, "GammaForCausalLM"), "gamma");
  ExpectRefusal(registry.Find("DeltaForCausalLM"), {"unknown"});
  const Status again = registry.AddExternal(zoo.External("/p/late.so", {}));
  test::ExpectWords(again.message(), {"'/p/late.so'", "'DeltaForCausalLM'", "after it had been"});
  EXPECT_EQ(in_use->traits.model_type, "g");
}

}  // namespace
}  // namespace tenon
