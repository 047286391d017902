// From what a checkpoint says about itself to the entry that serves it: which key decides, what is
// recorded on the way, and the errors, each of its own kind.
#include "tenon/registry/resolution.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoint/fixtures.h"
#include "registry/fixtures.h"
#include "tenon/checkpoint/writers.h"
#include "tenon/zoo/zoo.h"

namespace tenon {
namespace {

using test::ExpectRefusal;
using test::FakeZoo;
using test::kGgufRows;
using test::kRows;

class ResolutionTest : public testing::Test {
 protected:
  Result<Resolution> Resolve(std::vector<std::string> architectures, std::string model_type) {
    return tenon::Resolve({std::move(architectures), std::move(model_type), "config.json"},
                          registry_);
  }
  FakeZoo zoo_;
  Registry registry_{kRows, kGgufRows, zoo_.Builtins()};
};

// The steps about `what`, "outcome (why)".
std::vector<std::string> StepsOf(const Resolution& resolution, std::string_view what) {
  std::vector<std::string> steps;
  for (const ResolutionStep& step : resolution.trace) {
    if (step.what == what) steps.push_back(step.outcome + " (" + step.why + ")");
  }
  return steps;
}

TEST_F(ResolutionTest, TheArchitectureDecides) {
  const auto resolved = Resolve({"AlphaForMaskedLM"}, "alpha_masked");
  ASSERT_TRUE(resolved.ok()) << resolved.message();
  EXPECT_EQ(resolved->architecture, "AlphaForMaskedLM");
  EXPECT_EQ(resolved->provider, "alpha");
  EXPECT_EQ(resolved->entry, registry_.Find("AlphaForMaskedLM")->entry);
  EXPECT_EQ(StepsOf(*resolved, "architecture"),
            (std::vector<std::string>{"AlphaForMaskedLM (first of architectures in config.json)"}));
  EXPECT_EQ(StepsOf(*resolved, "provider").size(), 1u);
  EXPECT_TRUE(StepsOf(*resolved, "model_type").empty());
}

TEST_F(ResolutionTest, FurtherArchitecturesAreRecordedAsIgnored) {
  const auto resolved = Resolve({"BetaForCausalLM", "NoSuchThing", "AlphaForCausalLM"}, "beta");
  ASSERT_TRUE(resolved.ok()) << resolved.message();
  EXPECT_EQ(resolved->architecture, "BetaForCausalLM");
  EXPECT_EQ(StepsOf(*resolved, "architecture"),
            (std::vector<std::string>{"BetaForCausalLM (first of architectures in config.json)",
                                      "NoSuchThing (ignored: only the first decides)",
                                      "AlphaForCausalLM (ignored: only the first decides)"}));
  EXPECT_EQ(zoo_.Runs("alpha"), 0);
}

TEST_F(ResolutionTest, ModelTypeServesWhenArchitecturesAreAbsent) {
  const auto resolved = Resolve({}, "gamma");
  ASSERT_TRUE(resolved.ok()) << resolved.message();
  EXPECT_EQ(resolved->architecture, "GammaForCausalLM");
  EXPECT_EQ(
      StepsOf(*resolved, "architecture"),
      (std::vector<std::string>{"GammaForCausalLM (architectures is absent; model_type 'gamma')"}));
}

TEST_F(ResolutionTest, AModelTypeOfSeveralArchitecturesIsAnError) {
  ExpectRefusal(Resolve({}, "beta"),
                {"'beta' fits several", "BetaForCausalLM, BetaForConditionalGeneration", "fix:"});
  EXPECT_EQ(zoo_.Runs(), 0);
}

TEST_F(ResolutionTest, NoIdentityAtAll) {
  ExpectRefusal(Resolve({}, ""), {"config.json", "neither architectures nor model_type", "fix:"});
}

TEST_F(ResolutionTest, AnUnknownModelTypeWithoutArchitectures) {
  ExpectRefusal(Resolve({}, "gama"), {"names no architectures", "'gama'", "nearest: gamma"});
  const auto far = Resolve({}, "zzzzzzzz");
  ExpectRefusal(far, {"names no architectures", "'zzzzzzzz'"});
  EXPECT_EQ(far.message().find("nearest"), std::string::npos) << far.message();
}

TEST_F(ResolutionTest, AnUnknownArchitectureGetsNearNames) {
  ExpectRefusal(Resolve({"GammaForCausalLn"}, "gamma"),
                {"'GammaForCausalLn' is unknown", "GammaForCausalLM"});
}

TEST_F(ResolutionTest, NeitherKnownGivesNearNamesForBoth) {
  ExpectRefusal(
      Resolve({"GammaForCausalLn"}, "gama"),
      {"'GammaForCausalLn' is unknown", "GammaForCausalLM", "model_type 'gama'", "nearest: gamma"});
  ExpectRefusal(Resolve({"Qqqqq"}, "zzzzzzzz"), {"'Qqqqq' is unknown", "model_type 'zzzzzzzz'"});
}

TEST_F(ResolutionTest, TwoFamiliesContradict) {
  ExpectRefusal(Resolve({"AlphaForCausalLM"}, "beta"),
                {"'AlphaForCausalLM'", "'beta'", "BetaForCausalLM", "fix:"});
  // A family that this build leaves out is known all the same.
  ExpectRefusal(Resolve({"AlphaForCausalLM"}, "absent"), {"'absent'", "AbsentForCausalLM"});
}

TEST_F(ResolutionTest, AnotherNameOfTheSameFamilyIsRecorded) {
  const auto resolved = Resolve({"AlphaForCausalLM"}, "alpha_masked");
  ASSERT_TRUE(resolved.ok()) << resolved.message();
  EXPECT_EQ(StepsOf(*resolved, "model_type"),
            (std::vector<std::string>{"alpha_masked (another name within the same family)"}));
}

TEST_F(ResolutionTest, AnUnknownModelTypeWithAKnownArchitectureIsRecorded) {
  const auto resolved = Resolve({"AlphaForCausalLM"}, "my_finetune");
  ASSERT_TRUE(resolved.ok()) << resolved.message();
  EXPECT_EQ(StepsOf(*resolved, "model_type"),
            (std::vector<std::string>{"my_finetune (unknown; the architecture decides)"}));
}

TEST_F(ResolutionTest, AnArchitectureOutsideTheIndex) {
  ASSERT_TRUE(
      registry_.AddExternal(zoo_.External("/p/x.so", {.models = {{"Omega", "omega"}}})).ok());
  const auto resolved = Resolve({"Omega"}, "omega");
  ASSERT_TRUE(resolved.ok()) << resolved.message();
  EXPECT_EQ(resolved->provider, "/p/x.so");
  ExpectRefusal(Resolve({"Omega"}, "beta"), {"'Omega'", "'beta'"});
}

TEST_F(ResolutionTest, AFailedProviderIsNotAnUnknownArchitecture) {
  std::vector<Provider> builtins;
  builtins.push_back(zoo_.Make("alpha", {.then = [](Registrar&) { return IoError("no disk"); }}));
  Registry registry(kRows, kGgufRows, std::move(builtins));
  const auto failed = tenon::Resolve({{"AlphaForCausalLM"}, "zzzzzzzz", "config.json"}, registry);
  ExpectRefusal(failed, {"no disk"});
  EXPECT_EQ(failed.message().find("unknown"), std::string::npos) << failed.message();
}

// --- identity

class IdentityTest : public ResolutionTest {
 protected:
  Result<Identity> Of(std::string_view config) {
    directory_.Write("config.json", config);
    checkpoint_ = test::OpenOrDie(directory_.path());
    return IdentityOf(*checkpoint_, registry_);
  }
  test::TempDir directory_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

TEST_F(IdentityTest, ReadsBothKeys) {
  const auto both = Of(R"({"architectures": ["A", "B"], "model_type": "t"})");
  ASSERT_TRUE(both.ok()) << both.message();
  EXPECT_EQ(both->architectures, (std::vector<std::string>{"A", "B"}));
  EXPECT_EQ(both->model_type, "t");
  EXPECT_EQ(both->source, "config.json");
  for (const char* none : {R"({})", R"({"architectures": null})", R"({"architectures": []})",
                           R"({"architectures": null, "model_type": null})"}) {
    const auto identity = Of(none);
    ASSERT_TRUE(identity.ok()) << identity.message();
    EXPECT_TRUE(identity->architectures.empty()) << none;
    EXPECT_EQ(identity->model_type, "") << none;
  }
}

TEST_F(IdentityTest, RefusesOtherKinds) {
  ExpectRefusal(Of(R"({"architectures": "A"})"), {"architectures = \"A\"", "a list of strings"});
  ExpectRefusal(Of(R"({"architectures": {"a": 1}})"), {"a list of strings"});
  ExpectRefusal(Of(R"({"architectures": ["A", 7]})"), {"holds 7", "strings"});
}

TEST_F(IdentityTest, NeedsAConfig) {
  const auto bare = test::OpenOrDie(test::DataPath("goldens/llama/model.safetensors"));
  ExpectRefusal(IdentityOf(*bare, registry_), {"model.safetensors", "no config.json", "fix:"});
}

TEST(GgufIdentity, ThroughTheProviderOfTheRealZoo) {
  const auto registry = MakeRegistry();
  const auto llama = test::OpenOrDie(test::DataPath("goldens_gguf/llama_q4_0.gguf"));
  const auto identity = IdentityOf(*llama, *registry);
  ASSERT_TRUE(identity.ok()) << identity.message();
  EXPECT_EQ(identity->architectures, (std::vector<std::string>{"LlamaForCausalLM"}));
  EXPECT_EQ(identity->model_type, "");
  EXPECT_EQ(identity->source, "GGUF metadata");
  EXPECT_EQ(registry->opened(), 1);
  const auto resolved = Resolve(*identity, *registry);
  ASSERT_TRUE(resolved.ok()) << resolved.message();
  EXPECT_EQ(resolved->provider, "llama");
}

TEST(GgufIdentity, AnUnknownArchitecture) {
  const auto registry = MakeRegistry();
  const test::TempDir directory;
  const std::string path = directory / "x.gguf";
  ASSERT_TRUE(WriteGguf(path, GgufBuilder().SetString("general.architecture", "lama"), {}).ok());
  ExpectRefusal(IdentityOf(*test::OpenOrDie(path), *registry),
                {"general.architecture", "'lama' is unknown", "did you mean llama"});
  EXPECT_EQ(registry->opened(), 0);
}

}  // namespace
}  // namespace tenon
