// Vision encoders, draft builders, config readers, quantisation methods and targets: slots of their
// own kinds beside the models', under the same priority, each opened by its own look-up.
#include <gtest/gtest.h>

#include "registry/fixtures.h"
#include "tenon/registry/resolution.h"

namespace tenon {
namespace {

using test::ExpectRefusal;
using test::FakeModel;
using test::FakeZoo;
using test::kIndex;
using test::ProviderOf;

class FakeDraft final : public Model {
 public:
  FakeDraft(const Scope& scope, const ModelConfig& /*target*/, const ModelConfig& /*draft*/)
      : Model(scope) {}
  Value Forward(tenon::Forward& /*pass*/) const override { return {}; }
};

// Registers alpha's first architecture with an encoder.
test::Script WithEncoder(const std::string& type) {
  return {.models = {{"AlphaForCausalLM", type}}, .then = [](Registrar& registrar) {
            registrar.VisionEncoder<FakeModel>("AlphaForCausalLM");
            return Status();
          }};
}
test::Script WithDraft() {
  return {.then = [](Registrar& registrar) {
    registrar.DraftBuilder<FakeDraft>("MTP");
    registrar.DraftBuilder<FakeDraft>("MTP_EAGLE_ONE_MODEL");  // one class for two modes
    return Status();
  }};
}

std::string EncoderOf(Registry& registry, std::string_view architecture) {
  const auto found = registry.FindVisionEncoder(architecture);
  return found.ok() ? found->provider : "error: " + found.message();
}
std::string DraftOf(Registry& registry, std::string_view mode) {
  const auto found = registry.FindDraftBuilder(mode);
  return found.ok() ? found->provider : "error: " + found.message();
}

// The built-in alpha brings an encoder; an external displaces the model alone. The encoder's
// look-up opens the built-in all the same, in either order.
TEST(VisionEncoders, ABuiltinThatLostItsModelStillFillsItsEncoderSlot) {
  for (const bool builtin_first : {false, true}) {
    FakeZoo zoo;
    std::vector<Provider> builtins;
    builtins.push_back(zoo.Make("alpha", WithEncoder("alpha")));
    Registry registry(kIndex, std::move(builtins));
    if (builtin_first) ASSERT_EQ(EncoderOf(registry, "AlphaForCausalLM"), "alpha");
    ASSERT_TRUE(
        registry.AddExternal(zoo.External("/p/m.so", {.models = {{"AlphaForCausalLM", "m"}}}))
            .ok());
    EXPECT_EQ(ProviderOf(registry, "AlphaForCausalLM"), "/p/m.so");
    EXPECT_EQ(EncoderOf(registry, "AlphaForCausalLM"), "alpha");
    EXPECT_EQ(zoo.Runs("alpha"), 1);
  }
}

// And the sibling the other way round: an external's encoder stays when the built-in opens.
TEST(VisionEncoders, AnExternalOneIsNotDisplaced) {
  for (const bool builtin_first : {false, true}) {
    FakeZoo zoo;
    std::vector<Provider> builtins;
    builtins.push_back(zoo.Make("alpha", WithEncoder("alpha")));
    Registry registry(kIndex, std::move(builtins));
    if (builtin_first) ASSERT_EQ(ProviderOf(registry, "AlphaForCausalLM"), "alpha");
    ASSERT_TRUE(registry.AddExternal(zoo.External("/p/v.so", WithEncoder("v"))).ok());
    EXPECT_EQ(EncoderOf(registry, "AlphaForCausalLM"), "/p/v.so");
    registry.Rebuild({});
    EXPECT_EQ(EncoderOf(registry, "AlphaForCausalLM"), "alpha");
    EXPECT_EQ(ProviderOf(registry, "AlphaForCausalLM"), "alpha");
    registry.Rebuild(std::vector<std::string>{"/p/v.so"});
    EXPECT_EQ(EncoderOf(registry, "AlphaForCausalLM"), "/p/v.so");
  }
}

TEST(VisionEncoders, NeedTheirModelRegisteredFirst) {
  FakeZoo zoo;
  Registry registry(kIndex, zoo.Builtins());
  const Status failed =
      registry.AddExternal(zoo.External("/p/e.so", {.then = [](Registrar& registrar) {
                                          registrar.VisionEncoder<FakeModel>("AlphaForCausalLM");
                                          return Status();
                                        }}));
  test::ExpectWords(failed.message(), {"'/p/e.so'", "vision encoder for 'AlphaForCausalLM'",
                                       "registered no model", "register the model first"});
  EXPECT_EQ(ProviderOf(registry, "AlphaForCausalLM"), "alpha");
}

TEST(VisionEncoders, AbsentUnknownAndNotBuiltDiffer) {
  FakeZoo zoo;
  Registry registry(kIndex, zoo.Builtins());
  ExpectRefusal(registry.FindVisionEncoder("BetaForCausalLM"), {"has no vision encoder"});
  ExpectRefusal(registry.FindVisionEncoder("BetaForCausalLN"), {"unknown", "BetaForCausalLM"});
  ExpectRefusal(registry.FindVisionEncoder("PlannedForCausalLM"), {"known, but not built"});
}

TEST(DraftBuilders, FollowThePriorityAndTheReplay) {
  for (const bool builtin_first : {false, true}) {
    FakeZoo zoo;
    std::vector<Provider> builtins;
    builtins.push_back(zoo.Make("beta", WithDraft()));
    Registry registry(kIndex, std::move(builtins));
    if (builtin_first) ASSERT_EQ(DraftOf(registry, "MTP"), "beta");
    ASSERT_TRUE(registry.AddExternal(zoo.External("/p/d.so", WithDraft())).ok());
    EXPECT_EQ(DraftOf(registry, "MTP"), "/p/d.so");
    EXPECT_EQ(DraftOf(registry, "MTP_EAGLE_ONE_MODEL"), "/p/d.so");
    registry.Rebuild({});
    EXPECT_EQ(DraftOf(registry, "MTP"), "beta");
    registry.Rebuild(std::vector<std::string>{"/p/d.so"});
    EXPECT_EQ(DraftOf(registry, "MTP"), "/p/d.so");
  }
}

TEST(DraftBuilders, ModesWithoutOne) {
  FakeZoo zoo;
  std::vector<Provider> builtins;
  builtins.push_back(zoo.Make("beta", WithDraft()));
  Registry registry(kIndex, std::move(builtins));
  ExpectRefusal(registry.FindDraftBuilder("NGRAM"),
                {"'NGRAM' has no draft model", "MTP, PARD, OWN"});
  EXPECT_EQ(zoo.Runs(), 0);
  ExpectRefusal(registry.FindDraftBuilder("PARD"), {"known, but not built", "'drafts'"});
}

// The reference's rule: no builder, the draft's own config, and an error without one.
TEST(DraftBuilders, AModeWithAModelOfItsOwnNeedsItsConfig) {
  FakeZoo zoo;
  std::vector<Provider> builtins = zoo.Builtins();
  Registry registry(kIndex, std::move(builtins));
  ExpectRefusal(registry.FindDraftBuilder("OWN"), {"'OWN' has no builder", "another checkpoint"});
  const auto without = ResolveDraft("OWN", nullptr, registry);
  ASSERT_FALSE(without.ok());
  EXPECT_EQ(without.code(), StatusCode::kUsage);
  test::ExpectWords(without.message(),
                    {"'OWN'", "requires its config", "fix: name the draft model"});
  EXPECT_EQ(zoo.Runs(), 0);
  const Identity draft{.architectures = {"AlphaForCausalLM"}};
  const auto model = ResolveDraft("OWN", &draft, registry);
  ASSERT_TRUE(model.ok()) << model.message();
  EXPECT_EQ(model->builder, nullptr);
  EXPECT_EQ(model->model->architecture, "AlphaForCausalLM");
  const Identity unknown{.architectures = {"AlphaForCausalLN"}};
  ExpectRefusal(ResolveDraft("OWN", &unknown, registry),
                {"the draft model of mode 'OWN'", "AlphaForCausalLM"});
  // The others ignore it.
  ExpectRefusal(ResolveDraft("PARD", &draft, registry), {"known, but not built"});
}

TEST(DraftBuilders, AProviderKnowsItsModesByItsOwnRecord) {
  FakeZoo zoo;
  Registry registry(kIndex, zoo.Builtins());
  for (const char* name : {"/p/one.so", "/p/two.so"}) {
    ASSERT_TRUE(registry.AddExternal(zoo.External(name, WithDraft())).ok());
  }
  const std::vector<std::string> modes = {"MTP", "MTP_EAGLE_ONE_MODEL"};
  EXPECT_EQ(registry.RegisteredBy("/p/one.so", SlotKind::kDraftBuilder), modes)
      << "though it lost both slots";
  EXPECT_EQ(registry.RegisteredBy("/p/two.so", SlotKind::kDraftBuilder), modes);
}

TEST(ConfigReaders, BringAModelTypeOfTheirOwn) {
  FakeZoo zoo;
  Registry registry(kIndex, zoo.Builtins());
  EXPECT_FALSE(registry.FindConfigReader("omega").has_value());
  ASSERT_TRUE(
      registry
          .AddExternal(zoo.External("/p/r.so", {.then =
                                                    [](Registrar& registrar) {
                                                      registrar.ConfigReader(
                                                          {.model_type = "omega",
                                                           .architecture = "AlphaForCausalLM"});
                                                      return Status();
                                                    }}))
          .ok());
  ASSERT_TRUE(registry.FindConfigReader("omega").has_value());
  EXPECT_EQ(registry.FindConfigReader("omega")->provider, "/p/r.so");
  EXPECT_EQ(registry.ArchitecturesOfModelType("omega"),
            std::vector<std::string>{"AlphaForCausalLM"});
  EXPECT_EQ(registry.ArchitecturesOfModelType("alpha_next"),
            std::vector<std::string>{"AlphaForCausalLM"})
      << "a row of the index";
}

// Registers a method that says by its global scheme whose it is.
test::Script WithQuantMethod(const std::string& name, const std::string& whose) {
  return {.then = [=](Registrar& registrar) {
    registrar.QuantMethod({.name = name, .read = [=](const QuantConfig&) -> Result<QuantRules> {
                             QuantRules rules;
                             rules.global.method = whose;
                             return rules;
                           }});
    return Status();
  }};
}

std::string ReaderOf(const Registry& registry, std::string_view name) {
  for (const auto& [entry, provider] : registry.QuantMethods()) {
    if (entry->name == name) return provider + " " + entry->read({})->global.method;
  }
  return "";
}

TEST(QuantMethods, OfProvidersTheLastWinsAndComesBack) {
  for (const bool swapped : {false, true}) {
    FakeZoo zoo;
    Registry registry(kIndex, zoo.Builtins());
    const std::string first = swapped ? "/p/b.so" : "/p/a.so";
    const std::string last = swapped ? "/p/a.so" : "/p/b.so";
    for (const std::string& name : {first, last}) {
      ASSERT_TRUE(registry.AddExternal(zoo.External(name, WithQuantMethod("four", name))).ok());
    }
    EXPECT_EQ(registry.QuantMethods().size(), 1u);
    EXPECT_EQ(ReaderOf(registry, "four"), last + " " + last);
    EXPECT_EQ(registry.notes(), std::vector<std::string>{"quantisation method four: kept " + last +
                                                         ", displaced " + first});
    registry.Rebuild(std::vector<std::string>{first});
    EXPECT_EQ(ReaderOf(registry, "four"), first + " " + first);
    registry.Rebuild(std::vector<std::string>{first, last});
    EXPECT_EQ(ReaderOf(registry, "four"), last + " " + last);
  }
}

TEST(QuantMethods, WithoutANameOrAReaderFailTheirProvider) {
  FakeZoo zoo;
  Registry registry(kIndex, zoo.Builtins());
  const Status unnamed = registry.AddExternal(zoo.External("/p/u.so", WithQuantMethod("", "x")));
  test::ExpectWords(unnamed.message(), {"'/p/u.so'", "without a name"});
  const Status silent =
      registry.AddExternal(zoo.External("/p/s.so", {.then = [](Registrar& registrar) {
                                          registrar.QuantMethod({.name = "four", .read = {}});
                                          return Status();
                                        }}));
  test::ExpectWords(silent.message(), {"'/p/s.so'", "'four' without a reader"});
  EXPECT_TRUE(registry.QuantMethods().empty());
}

TEST(Targets, OpenTheProviderOfTheirRow) {
  FakeZoo zoo;
  std::vector<Provider> builtins = zoo.Builtins();
  builtins.push_back(zoo.Make("gamma_fast", {.then = [](Registrar& registrar) {
                                TargetEntry entry;
                                entry.name = "gamma-fast";
                                entry.architectures = {"GammaForCausalLM"};
                                registrar.Target(std::move(entry));
                                return Status();
                              }}));
  Registry registry(kIndex, std::move(builtins));
  EXPECT_TRUE(registry.FindTargets("AlphaForCausalLM")->empty());
  EXPECT_EQ(zoo.Runs(), 0);
  const auto targets = registry.FindTargets("GammaForCausalLM");
  ASSERT_TRUE(targets.ok());
  ASSERT_EQ(targets->size(), 1u);
  EXPECT_EQ((*targets)[0].entry->name, "gamma-fast");
  EXPECT_EQ(zoo.Runs(), 1);
}

}  // namespace
}  // namespace tenon
