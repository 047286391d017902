// What one process tells another: export, import of the whole set of declarations, slots that are
// released and restored, providers that stay closed until they are needed. And all of it from many
// threads at once.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "registry/fixtures.h"

namespace tenon {
namespace {

using test::ExpectRefusal;
using test::FakeZoo;
using test::kIndex;
using test::ProviderOf;

// A registry whose libraries are scripts, loaded by name as the real ones are by path.
class ImportTest : public testing::Test {
 protected:
  ImportTest() {
    scripts_["/p/one.so"] = {.models = {{"AlphaForCausalLM", "one"}, {"OnlyOne", "one"}}};
    scripts_["/p/two.so"] = {.models = {{"AlphaForCausalLM", "two"}, {"OnlyTwo", "two"}}};
    for (Registry* registry : {&registry_, &sender_}) {
      registry->SetLoader([this](const std::string& name) -> Result<Provider> {
        ++loads_;
        const auto script = scripts_.find(name);
        if (script == scripts_.end()) return NotFound(name + ": no such file");
        return zoo_.External(name, script->second);
      });
    }
  }
  static std::vector<Declaration> Both() {
    return {{"AlphaForCausalLM", "/p/one.so"},
            {"OnlyOne", "/p/one.so"},
            {"AlphaForCausalLM", "/p/two.so"},
            {"OnlyTwo", "/p/two.so"}};
  }

  FakeZoo zoo_;
  std::map<std::string, test::Script> scripts_;
  std::atomic<int> loads_ = 0;
  Registry registry_{kIndex, zoo_.Builtins()};
  Registry sender_{kIndex, zoo_.Builtins()};
};

TEST_F(ImportTest, TheReceiverStaysLazy) {
  for (const char* name : {"/p/one.so", "/p/two.so"}) {
    ASSERT_TRUE(sender_.AddExternal(zoo_.External(name, scripts_[name])).ok());
  }
  const std::vector<Declaration> exported = sender_.Export();
  EXPECT_EQ(exported, (std::vector<Declaration>{{"OnlyOne", "/p/one.so"},
                                                {"AlphaForCausalLM", "/p/two.so"},
                                                {"OnlyTwo", "/p/two.so"}}));
  registry_.Import(exported);
  EXPECT_EQ(loads_, 0);
  EXPECT_EQ(registry_.opened(), 0);
  EXPECT_EQ(registry_.Export(), exported) << "what is declared and not open is passed on";
  EXPECT_EQ(ProviderOf(registry_, "AlphaForCausalLM"), "/p/two.so");
  EXPECT_EQ(loads_, 1) << "one.so is still closed";
  EXPECT_EQ(ProviderOf(registry_, "OnlyOne"), "/p/one.so");
  EXPECT_EQ(ProviderOf(registry_, "AlphaForCausalLM"), "/p/two.so") << "declared later";
  EXPECT_EQ(registry_.Export(), exported);
}

TEST_F(ImportTest, AnOpenBuiltinLeavesADeclaredSlotEmpty) {
  for (const bool builtin_first : {false, true}) {
    Registry registry(kIndex, zoo_.Builtins());
    int loads = 0;
    registry.SetLoader([&](const std::string& name) -> Result<Provider> {
      ++loads;
      return zoo_.External(name, scripts_[name]);
    });
    if (builtin_first) ASSERT_EQ(ProviderOf(registry, "AlphaForCausalLM"), "alpha");
    registry.Import({{"AlphaForCausalLM", "/p/one.so"}});
    ASSERT_EQ(ProviderOf(registry, "AlphaForMaskedLM"), "alpha");  // opens or replays the built-in
    EXPECT_EQ(loads, 0);
    EXPECT_EQ(ProviderOf(registry, "AlphaForCausalLM"), "/p/one.so");
    EXPECT_EQ(loads, 1);
  }
}

TEST_F(ImportTest, TheSameSetAgainChangesNothing) {
  registry_.Import(Both());
  ASSERT_EQ(ProviderOf(registry_, "AlphaForCausalLM"), "/p/two.so");
  const auto held = registry_.Find("AlphaForCausalLM")->entry;
  const std::vector<std::string> notes = registry_.notes();
  registry_.Import(Both());
  EXPECT_EQ(registry_.Find("AlphaForCausalLM")->entry, held);
  EXPECT_EQ(registry_.notes(), notes);
}

TEST_F(ImportTest, DroppedProvidersReleaseTheirSlotsAndGetThemBack) {
  registry_.Import(Both());
  ASSERT_EQ(ProviderOf(registry_, "AlphaForCausalLM"), "/p/two.so");
  ASSERT_EQ(ProviderOf(registry_, "OnlyTwo"), "/p/two.so");
  const auto held = registry_.Find("AlphaForCausalLM")->entry;
  registry_.Import({{"OnlyOne", "/p/one.so"}});
  EXPECT_EQ(ProviderOf(registry_, "AlphaForCausalLM"), "alpha") << "nobody declares it now";
  ExpectRefusal(registry_.Find("OnlyTwo"), {"unknown"});
  registry_.Import({});
  ExpectRefusal(registry_.Find("OnlyOne"), {"unknown"});
  const int loads = loads_;
  registry_.Import(Both());
  EXPECT_EQ(registry_.Find("AlphaForCausalLM")->entry, held) << "from its log";
  EXPECT_EQ(loads_, loads);
  EXPECT_EQ(zoo_.Runs("/p/two.so"), 1);
  EXPECT_EQ(held->traits.model_type, "two");
}

TEST_F(ImportTest, LaterDeclarationsWinInWhateverOrderTheyOpen) {
  for (const bool late_first : {false, true}) {
    Registry registry(kIndex, zoo_.Builtins());
    registry.SetLoader([&](const std::string& name) -> Result<Provider> {
      return zoo_.External(name, scripts_[name]);
    });
    registry.Import(Both());
    ASSERT_EQ(ProviderOf(registry, late_first ? "OnlyTwo" : "OnlyOne"),
              late_first ? "/p/two.so" : "/p/one.so");
    EXPECT_EQ(ProviderOf(registry, "AlphaForCausalLM"), "/p/two.so");
    ASSERT_EQ(ProviderOf(registry, late_first ? "OnlyOne" : "OnlyTwo"),
              late_first ? "/p/one.so" : "/p/two.so");
    EXPECT_EQ(ProviderOf(registry, "AlphaForCausalLM"), "/p/two.so");
  }
}

TEST_F(ImportTest, ADeclaredProviderThatIsGoneIsNotUnknown) {
  registry_.Import({{"AlphaForCausalLM", "/p/gone.so"}, {"OnlyOne", "/p/two.so"}});
  const auto gone = registry_.Find("AlphaForCausalLM");
  ExpectRefusal(gone, {"'/p/gone.so' failed to open", "no such file"});
  ExpectRefusal(registry_.Find("OnlyOne"), {"'/p/two.so' does not register", "declared"});
  EXPECT_EQ(ProviderOf(registry_, "BetaForCausalLM"), "beta");
}

TEST_F(ImportTest, ANameOfABuiltinIsNoLibrary) {
  registry_.Import({{"AlphaForCausalLM", "alpha"}, {"OnlyOne", "/p/one.so"}});
  EXPECT_EQ(ProviderOf(registry_, "AlphaForCausalLM"), "alpha");
  EXPECT_EQ(registry_.Export(), (std::vector<Declaration>{{"OnlyOne", "/p/one.so"}}));
}

TEST_F(ImportTest, ARebuiltRegistryEqualsTheFirst) {
  registry_.Import(Both());
  const std::vector<std::string> names = {"AlphaForCausalLM", "AlphaForMaskedLM", "OnlyOne",
                                          "OnlyTwo", "BetaForCausalLM"};
  std::map<std::string, std::shared_ptr<const ModelEntry>> first;
  for (const std::string& name : names) first[name] = registry_.Find(name)->entry;
  const auto notes = registry_.notes();
  registry_.Rebuild(std::vector<std::string>{"/p/one.so", "/p/two.so"});
  for (const std::string& name : names) EXPECT_EQ(registry_.Find(name)->entry, first[name]);
  EXPECT_EQ(registry_.notes(), notes);
}

TEST(RegistryThreads, SixteenLookUpAndRebuildAtOnce) {
  FakeZoo zoo;
  Registry registry(kIndex, zoo.Builtins());
  ASSERT_TRUE(
      registry.AddExternal(zoo.External("/p/one.so", {.models = {{"AlphaForCausalLM", "one"}}}))
          .ok());
  constexpr int kThreads = 16;
  constexpr int kRounds = 200;
  std::atomic<int> waiting = 0;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  const auto work = [&](int t) {
    ++waiting;
    while (waiting < kThreads) std::this_thread::yield();
    for (int i = 0; i < kRounds; ++i) {
      if (t % 4 == 0) {
        registry.Rebuild(i % 2 == 0 ? std::vector<std::string>{}
                                    : std::vector<std::string>{"/p/one.so"});
        continue;
      }
      if (t % 4 == 1) registry.notes();
      const auto found = registry.Find(t % 2 == 0 ? "AlphaForCausalLM" : "BetaForCausalLM");
      const bool right =
          found.ok() && (t % 2 != 0 ? found->provider == "beta"
                                    : found->provider == "alpha" || found->provider == "/p/one.so");
      if (!right || found->entry->architecture.empty()) ++wrong;
    }
  };
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(work, t);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  registry.Rebuild({});
  EXPECT_EQ(ProviderOf(registry, "AlphaForCausalLM"), "alpha");
  EXPECT_EQ(zoo.Runs("alpha"), 1);
  EXPECT_EQ(zoo.Runs("beta"), 1);
}

}  // namespace
}  // namespace tenon
