// Who serves an architecture that several providers register: built-ins fill empty slots only, an
// external wins in either order, of externals the last. And the replay that puts slots back.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <optional>

#include "registry/fixtures.h"

namespace tenon {
namespace {

using test::FakeZoo;
using test::kIndex;
using test::ProviderOf;

// Serves alpha's first architecture too, and one of its own.
test::Script Rival(const std::string& type) {
  return {.models = {{"AlphaForCausalLM", type}, {"Only" + type, type}},
          .gguf = {{"alpha", "Only" + type}}};
}

std::string NotesOf(const Registry& registry) {
  std::string text;
  for (const std::string& note : registry.notes()) text += note + "\n";
  return text;
}

TEST(Priority, AnExternalDisplacesAnOpenBuiltin) {
  FakeZoo zoo;
  Registry registry(kIndex, zoo.Builtins());
  ASSERT_EQ(ProviderOf(registry, "AlphaForCausalLM"), "alpha");
  ASSERT_TRUE(registry.AddExternal(zoo.External("/p/one.so", Rival("one"))).ok());
  EXPECT_EQ(ProviderOf(registry, "AlphaForCausalLM"), "/p/one.so");
  EXPECT_EQ(registry.Find("AlphaForCausalLM")->entry->traits.model_type, "one");
  EXPECT_EQ(ProviderOf(registry, "AlphaForMaskedLM"), "alpha");
  EXPECT_EQ(NotesOf(registry), "AlphaForCausalLM: kept /p/one.so, displaced alpha\n");
}

TEST(Priority, ABuiltinThatOpensLaterDoesNotTakeTheSlotBack) {
  FakeZoo zoo;
  Registry registry(kIndex, zoo.Builtins());
  ASSERT_TRUE(registry.AddExternal(zoo.External("/p/one.so", Rival("one"))).ok());
  EXPECT_EQ(ProviderOf(registry, "AlphaForCausalLM"), "/p/one.so");
  EXPECT_EQ(zoo.Runs("alpha"), 0) << "nothing of alpha's was needed";
  EXPECT_EQ(ProviderOf(registry, "AlphaForMaskedLM"), "alpha");  // opens it
  EXPECT_EQ(ProviderOf(registry, "AlphaForCausalLM"), "/p/one.so");
  EXPECT_EQ(NotesOf(registry), "AlphaForCausalLM: kept /p/one.so, displaced alpha\n");
}

TEST(Priority, OfExternalsTheLastWins) {
  for (const bool swapped : {false, true}) {
    FakeZoo zoo;
    Registry registry(kIndex, zoo.Builtins());
    const std::string first = swapped ? "two" : "one";
    const std::string last = swapped ? "one" : "two";
    for (const std::string& type : {first, last}) {
      ASSERT_TRUE(registry.AddExternal(zoo.External("/p/" + type, Rival(type))).ok());
    }
    EXPECT_EQ(ProviderOf(registry, "AlphaForCausalLM"), "/p/" + last);
    EXPECT_EQ(ProviderOf(registry, "Only" + first), "/p/" + first);
    EXPECT_EQ(*registry.ArchitectureOfGguf("alpha", GgufMetadata()), "Only" + last);
    EXPECT_EQ(NotesOf(registry),
              "AlphaForCausalLM: kept /p/" + last + ", displaced /p/" + first + "\n");
  }
}

TEST(Priority, AnExternalNamesGgufArchitecturesInEitherOrder) {
  for (const bool builtin_first : {false, true}) {
    FakeZoo zoo;
    Registry registry(kIndex, zoo.Builtins());
    if (builtin_first) {
      ASSERT_EQ(*registry.ArchitectureOfGguf("alpha", GgufMetadata()), "AlphaForCausalLM");
    }
    ASSERT_TRUE(registry.AddExternal(zoo.External("/p/one.so", Rival("one"))).ok());
    EXPECT_EQ(*registry.ArchitectureOfGguf("alpha", GgufMetadata()), "Onlyone");
  }
}

TEST(Priority, TheSameExternalAgainIsHarmless) {
  FakeZoo zoo;
  Registry registry(kIndex, zoo.Builtins());
  const Provider one = zoo.External("/p/one.so", Rival("one"));
  ASSERT_EQ(ProviderOf(registry, "AlphaForCausalLM"), "alpha");
  ASSERT_TRUE(registry.AddExternal(one).ok());
  const auto before = registry.Find("AlphaForCausalLM")->entry;
  const std::string notes = NotesOf(registry);
  ASSERT_TRUE(registry.AddExternal(one).ok());
  EXPECT_EQ(zoo.Runs("/p/one.so"), 1);
  EXPECT_EQ(registry.Find("AlphaForCausalLM")->entry, before);
  EXPECT_EQ(NotesOf(registry), notes);
}

TEST(Priority, BuiltinIsAFieldAndNotAName) {
  FakeZoo zoo;
  // Named like a library, but built in; named like a built-in, but external.
  std::vector<Provider> builtins;
  builtins.push_back(zoo.Make("alpha", {.models = {{"AlphaForCausalLM", "alpha"}}}));
  constexpr ArchitectureRow kOdd[] = {
      {"AlphaForCausalLM", "alpha", "alpha", ModelKind::kCausalLm, ModelStatus::kStable, "0.1"},
      {"OddForCausalLM", "odd", "/p/odd.so", ModelKind::kCausalLm, ModelStatus::kStable, "0.1"}};
  builtins.push_back(
      zoo.Make("/p/odd.so", {.models = {{"OddForCausalLM", "odd"}, {"AlphaForCausalLM", "odd"}}}));
  Registry registry({.architectures = kOdd}, std::move(builtins));
  ASSERT_EQ(ProviderOf(registry, "AlphaForCausalLM"), "alpha");
  ASSERT_EQ(ProviderOf(registry, "OddForCausalLM"), "/p/odd.so");
  EXPECT_EQ(ProviderOf(registry, "AlphaForCausalLM"), "alpha");
  ASSERT_TRUE(registry.AddExternal(zoo.External("tenon.alpha", Rival("one"))).ok());
  EXPECT_EQ(ProviderOf(registry, "AlphaForCausalLM"), "tenon.alpha");
  // A name that a built-in has already cannot be an external's.
  const Status status = registry.AddExternal(zoo.External("alpha", Rival("two")));
  EXPECT_EQ(status.code(), StatusCode::kUsage);
  EXPECT_NE(status.message().find("'alpha'"), std::string::npos) << status.message();
  EXPECT_EQ(ProviderOf(registry, "AlphaForCausalLM"), "tenon.alpha");
}

TEST(Rebuild, ADroppedExternalReleasesItsSlotsAndNamingItAgainRestoresThem) {
  FakeZoo zoo;
  Registry registry(kIndex, zoo.Builtins());
  ASSERT_EQ(ProviderOf(registry, "AlphaForCausalLM"), "alpha");
  const Provider one = zoo.External("/p/one.so", Rival("one"));
  ASSERT_TRUE(registry.AddExternal(one).ok());
  const Registry::Found held = *registry.Find("AlphaForCausalLM");
  registry.Rebuild({});
  EXPECT_EQ(ProviderOf(registry, "AlphaForCausalLM"), "alpha");
  EXPECT_FALSE(registry.Find("Onlyone").ok());
  EXPECT_EQ(*registry.ArchitectureOfGguf("alpha", GgufMetadata()), "AlphaForCausalLM");
  EXPECT_EQ(NotesOf(registry), "");
  EXPECT_EQ(held.entry->traits.model_type, "one") << "what is in use stays";
  registry.Rebuild(std::vector<std::string>{"/p/one.so"});
  EXPECT_EQ(registry.Find("AlphaForCausalLM")->entry, held.entry);
  EXPECT_EQ(*registry.ArchitectureOfGguf("alpha", GgufMetadata()), "Onlyone");
  EXPECT_EQ(NotesOf(registry), "AlphaForCausalLM: kept /p/one.so, displaced alpha\n");
  registry.Rebuild({});
  ASSERT_TRUE(registry.AddExternal(one).ok());
  EXPECT_EQ(registry.Find("AlphaForCausalLM")->entry, held.entry);
  EXPECT_EQ(zoo.Runs("/p/one.so"), 1);
  EXPECT_EQ(zoo.Runs("alpha"), 1);
}

TEST(Rebuild, ReplaysExternalsInDeclaredOrder) {
  FakeZoo zoo;
  Registry registry(kIndex, zoo.Builtins());
  for (const std::string type : {"one", "two"}) {
    ASSERT_TRUE(registry.AddExternal(zoo.External(type, Rival(type))).ok());
  }
  ASSERT_EQ(ProviderOf(registry, "AlphaForCausalLM"), "two");
  registry.Rebuild(std::vector<std::string>{"two", "nobody", "one"});
  EXPECT_EQ(ProviderOf(registry, "AlphaForCausalLM"), "one");
  EXPECT_EQ(*registry.ArchitectureOfGguf("alpha", GgufMetadata()), "Onlyone");
  EXPECT_EQ(ProviderOf(registry, "Onlytwo"), "two");
}

// --- any order of openings, additions and rebuilds, against a plain list of who came when

constexpr const char* kFamilies[] = {"alpha", "beta", "gamma"};
constexpr const char* kExternals[] = {"x", "y", "z"};
constexpr const char* kContested[] = {"AlphaForCausalLM", "BetaForCausalLM", "GammaForCausalLM",
                                      "Extra"};

// Which of the contested architectures each provider registers, as bits.
struct Masks {
  std::map<std::string, int> of;
};

struct Expected {
  std::vector<std::string> builtins;   // in the order of opening
  std::vector<std::string> externals;  // in the order of declaration
};

std::optional<std::string> OwnerOf(size_t slot, const Masks& masks, const Expected& expected) {
  const auto registers = [&](const std::string& name) {
    return (masks.of.at(name) >> slot & 1) != 0;
  };
  const auto last = std::find_if(expected.externals.rbegin(), expected.externals.rend(), registers);
  if (last != expected.externals.rend()) return *last;
  const auto first = std::find_if(expected.builtins.begin(), expected.builtins.end(), registers);
  if (first != expected.builtins.end()) return *first;
  return std::nullopt;
}

Provider Contender(FakeZoo& zoo, const std::string& name, int mask, bool builtin) {
  test::Script script;
  for (size_t slot = 0; slot < std::size(kContested); ++slot) {
    if ((mask >> slot & 1) != 0) script.models.emplace_back(kContested[slot], name);
  }
  if (!builtin) script.models.emplace_back("Own" + name, name);  // one that registers nothing fails
  return zoo.Make(name, script, builtin);
}

// Each family's own architecture always, the others at random.
Masks RandomMasks() {
  Masks masks;
  for (size_t i = 0; i < 3; ++i) {
    masks.of[kFamilies[i]] = *rc::gen::inRange(0, 16) | 1 << i;
    masks.of[kExternals[i]] = *rc::gen::inRange(0, 16);
  }
  return masks;
}

// A look-up as the index has it: opens the row's family unless the slot is filled.
void ExpectLookUp(Registry& registry, size_t slot, const Masks& masks, Expected& expected) {
  if (!OwnerOf(slot, masks, expected) && slot < 3) {
    expected.builtins.emplace_back(kFamilies[slot]);
  }
  const auto owner = OwnerOf(slot, masks, expected);
  const auto found = registry.Find(kContested[slot]);
  RC_ASSERT(found.ok() == owner.has_value());
  if (owner) RC_ASSERT(found->provider == *owner);
}

TEST(Priority, AnyOrderOfEvents) {
  EXPECT_TRUE(rc::check("slots follow the order of events", [] {
    const Masks masks = RandomMasks();
    FakeZoo zoo;
    std::vector<Provider> builtins;
    for (const char* name : kFamilies) {
      builtins.push_back(Contender(zoo, name, masks.of.at(name), true));
    }
    Registry registry(kIndex, std::move(builtins));
    Expected expected;
    const int events = *rc::gen::inRange(1, 12);
    for (int e = 0; e < events; ++e) {
      const auto which = *rc::gen::inRange<size_t>(0, 3);
      const int kind = *rc::gen::inRange(0, 4);
      if (kind == 0) {
        const std::string name = kExternals[which];
        RC_ASSERT(registry.AddExternal(Contender(zoo, name, masks.of.at(name), false)).ok());
        const auto known = std::find(expected.externals.begin(), expected.externals.end(), name);
        if (known == expected.externals.end()) expected.externals.push_back(name);
      } else if (kind == 1) {
        std::reverse(expected.externals.begin(), expected.externals.end());
        if (!expected.externals.empty() && which == 0) expected.externals.pop_back();
        registry.Rebuild(expected.externals);
      } else {
        ExpectLookUp(registry, which, masks, expected);
      }
    }
    for (size_t slot = 0; slot < std::size(kContested); ++slot) {
      ExpectLookUp(registry, slot, masks, expected);
    }
    for (const char* name : kFamilies) RC_ASSERT(zoo.Runs(name) <= 1);
    for (const char* name : kExternals) RC_ASSERT(zoo.Runs(name) <= 1);
  }));
}

}  // namespace
}  // namespace tenon
