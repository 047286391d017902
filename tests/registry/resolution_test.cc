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
using test::kIndex;

class ResolutionTest : public testing::Test {
 protected:
  Result<Resolution> Resolve(std::vector<std::string> architectures, std::string model_type) {
    return tenon::Resolve({std::move(architectures), std::move(model_type), "config.json"},
                          registry_);
  }
  FakeZoo zoo_;
  Registry registry_{kIndex, zoo_.Builtins()};
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
  Registry registry(kIndex, std::move(builtins));
  const auto failed = tenon::Resolve({{"AlphaForCausalLM"}, "zzzzzzzz", "config.json"}, registry);
  ExpectRefusal(failed, {"no disk"});
  EXPECT_EQ(failed.message().find("unknown"), std::string::npos) << failed.message();
}

// --- drafts of EAGLE-3

std::string Renamed(Registry& registry, Identity identity) {
  identity.source = "config.json";
  const auto resolved = tenon::Resolve(identity, registry);
  return resolved.ok() ? resolved->architecture : "error: " + resolved.message();
}

class DraftTest : public testing::Test {
 protected:
  // Alpha's family serves the draft's registered name too.
  static std::vector<Provider> Providers(FakeZoo& zoo) {
    std::vector<Provider> builtins = zoo.Builtins();
    builtins[0] = zoo.Make(
        "alpha", {.models = {{"AlphaForCausalLM", "alpha"}, {"EAGLE3AlphaForCausalLM", ""}}});
    return builtins;
  }
  FakeZoo zoo_;
  Registry registry_{kIndex, Providers(zoo_)};
};

TEST_F(DraftTest, DraftVocabSizeRenamesWhateverTheSpelling) {
  for (const char* name : {"AlphaForCausalLM", "Eagle3AlphaForCausalLM", "AlphaForCausalLMEagle3",
                           "AlphaEagle3ForCausalLM", "EAGLE3AlphaForCausalLM"}) {
    const auto resolved = tenon::Resolve({{name}, "", "config.json", true}, registry_);
    ASSERT_TRUE(resolved.ok()) << resolved.message();
    EXPECT_EQ(resolved->architecture, "EAGLE3AlphaForCausalLM") << name;
    EXPECT_EQ(resolved->stated, name);
    EXPECT_EQ(StepsOf(*resolved, "draft").size(), 1u) << name;
  }
}

TEST_F(DraftTest, TheMarkInFrontOrBehindRenamesToo) {
  for (const char* name : {"Eagle3AlphaForCausalLM", "AlphaForCausalLMEagle3"}) {
    EXPECT_EQ(Renamed(registry_, {{name}, "", "", false}), "EAGLE3AlphaForCausalLM");
  }
  EXPECT_EQ(Renamed(registry_, {{"AlphaForCausalLM"}, "alpha", "", false}), "AlphaForCausalLM");
}

TEST_F(DraftTest, LiteralRowsWinOverTheRewriting) {
  for (const bool has_size : {false, true}) {
    const auto resolved =
        tenon::Resolve({{"Eagle3OmegaForCausalLM"}, "", "config.json", has_size}, registry_);
    ExpectRefusal(resolved, {"'Eagle3OmegaForCausalLM'", "known, but not built"});
    EXPECT_EQ(resolved.message().find("EAGLE3Omega"), std::string::npos);
  }
}

TEST_F(DraftTest, TheErrorAfterRewritingShowsBothNamesAndTheRule) {
  ExpectRefusal(
      tenon::Resolve({{"BetaForCausalLM"}, "beta", "config.json", true}, registry_),
      {"'EAGLE3BetaForCausalLM' is unknown", "'BetaForCausalLM'", "draft_vocab_size is present"});
}

// --- vision encoders

TEST_F(ResolutionTest, MmEncoderOnlyTakesTheEncoderAndStops) {
  std::vector<Provider> builtins;
  builtins.push_back(zoo_.Make(
      "alpha", {.models = {{"AlphaForCausalLM", "alpha"}}, .then = [](Registrar& registrar) {
                  registrar.VisionEncoder<test::FakeModel>("AlphaForCausalLM");
                  return Status();
                }}));
  Registry registry(kIndex, std::move(builtins));
  // draft_vocab_size and a foreign model_type would matter in later steps only.
  const auto resolved = tenon::Resolve({{"AlphaForCausalLM"}, "beta", "config.json", true},
                                       registry, {.mm_encoder_only = true});
  ASSERT_TRUE(resolved.ok()) << resolved.message();
  EXPECT_EQ(resolved->entry->kind, ModelKind::kVisionEncoder);
  EXPECT_EQ(StepsOf(*resolved, "vision encoder").size(), 1u);
  EXPECT_TRUE(StepsOf(*resolved, "draft").empty());
  ExpectRefusal(tenon::Resolve({{"BetaForCausalLM"}, "beta", "config.json"}, registry_,
                               {.mm_encoder_only = true}),
                {"'BetaForCausalLM' has no vision encoder", "fix:"});
}

// --- variants

class VariantTest : public testing::Test {
 protected:
  static std::vector<Provider> Providers(FakeZoo& zoo) {
    std::vector<Provider> builtins = zoo.Builtins();
    builtins[2] = zoo.Make("gamma", {.then = [](Registrar& registrar) {
                             registrar.Model<test::FakeModel>(
                                 "GammaForCausalLM", ModelKind::kCausalLm,
                                 {.model_type = "gamma", .base_prefix = "model."});
                             return Status();
                           }});
    return builtins;
  }
  FakeZoo zoo_;
  Registry registry_{kIndex, Providers(zoo_)};
};

TEST_F(VariantTest, ABaseModelIsServedByTheFamilyThatKnowsItsPrefix) {
  const auto resolved = tenon::Resolve({{"GammaModel"}, "gamma", "config.json"}, registry_);
  ASSERT_TRUE(resolved.ok()) << resolved.message();
  EXPECT_EQ(resolved->architecture, "GammaForCausalLM");
  EXPECT_TRUE(resolved->headless);
  EXPECT_EQ(StepsOf(*resolved, "variant").size(), 1u);
  ExpectRefusal(tenon::Resolve({{"AlphaModel"}, "alpha", "config.json"}, registry_),
                {"'AlphaModel' is 'AlphaForCausalLM' without its head", "does not serve", "fix:"});
  ExpectRefusal(tenon::Resolve({{"PlannedModel"}, "planned", "config.json"}, registry_),
                {"'PlannedModel' is 'PlannedForCausalLM' without its head", "not built"});
  ExpectRefusal(tenon::Resolve({{"Model"}, "", "config.json"}, registry_), {"'Model' is unknown"});
}

TEST_F(VariantTest, AnotherHeadIsNamedAsSuch) {
  ExpectRefusal(
      tenon::Resolve({{"GammaForSequenceClassification"}, "gamma", "config.json"}, registry_),
      {"'GammaForSequenceClassification' is a variant of 'GammaForCausalLM'", "another head"});
  // A slip of the pen is none.
  ExpectRefusal(tenon::Resolve({{"GammaForCasualLM"}, "gamma", "config.json"}, registry_),
                {"unknown", "did you mean GammaForCausalLM"});
}

// --- another model_type's config reader

TEST_F(ResolutionTest, AConfigReaderServesItsModelType) {
  ASSERT_TRUE(
      registry_
          .AddExternal(zoo_.External("/p/r.so", {.then =
                                                     [](Registrar& registrar) {
                                                       registrar.ConfigReader(
                                                           {.model_type = "omega",
                                                            .architecture = "AlphaForCausalLM"});
                                                       return Status();
                                                     }}))
          .ok());
  for (const auto& architectures :
       {std::vector<std::string>{}, std::vector<std::string>{"AlphaForCausalLM"}}) {
    const auto resolved = tenon::Resolve({architectures, "omega", "config.json"}, registry_);
    ASSERT_TRUE(resolved.ok()) << resolved.message();
    EXPECT_EQ(resolved->architecture, "AlphaForCausalLM");
    ASSERT_NE(resolved->config_reader, nullptr);
    EXPECT_EQ(resolved->config_reader->model_type, "omega");
  }
}

TEST_F(ResolutionTest, OfSeveralArchitecturesOfATypeTheServedOneCounts) {
  constexpr ArchitectureRow kTwo[] = {
      {"BForCausalLM", "b", "beta", ModelKind::kCausalLm, ModelStatus::kStable, "0.1"},
      {"BForReward", "b", "beta", ModelKind::kEncoder, ModelStatus::kNotBuilt}};
  std::vector<Provider> builtins;
  builtins.push_back(zoo_.Make("beta", {.models = {{"BForCausalLM", "b"}}}));
  Registry registry({.architectures = kTwo}, std::move(builtins));
  const auto resolved = tenon::Resolve({{}, "b", "config.json"}, registry);
  ASSERT_TRUE(resolved.ok()) << resolved.message();
  EXPECT_EQ(resolved->architecture, "BForCausalLM");
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

TEST_F(IdentityTest, LooksWhereWrappersNestTheLanguageModel) {
  for (const char* key : {"text_config", "language_config", "llm_config"}) {
    const auto nested = Of(std::string(R"({"model_type": null, ")") + key +
                           R"(": {"architectures": ["A"], "model_type": "t"}})");
    ASSERT_TRUE(nested.ok()) << nested.message();
    EXPECT_EQ(nested->architectures, std::vector<std::string>{"A"});
    EXPECT_EQ(nested->model_type, "t");
    EXPECT_EQ(nested->source, std::string("config.json: ") + key);
  }
  // The top counts more.
  const auto both =
      Of(R"({"architectures": ["A"], "model_type": "t", "text_config": {"architectures": ["B"]}})");
  EXPECT_EQ(both->architectures, std::vector<std::string>{"A"});
}

TEST_F(IdentityTest, DraftVocabSizeCountsEvenAsNull) {
  EXPECT_FALSE(Of(R"({"architectures": ["A"]})")->has_draft_vocab_size);
  EXPECT_TRUE(Of(R"({"architectures": ["A"], "draft_vocab_size": 32000})")->has_draft_vocab_size);
  EXPECT_TRUE(Of(R"({"architectures": ["A"], "draft_vocab_size": null})")->has_draft_vocab_size);
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
