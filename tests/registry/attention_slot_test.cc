// Attention backends of providers: slots of their own under the same priority, whatever the case of
// their names; and how they come into the table that selects.
#include <gtest/gtest.h>

#include "registry/fixtures.h"

namespace tenon {
namespace {

using test::FakeZoo;
using test::kIndex;

class FakeBackend final : public AttentionBackend {
 public:
  explicit FakeBackend(std::string_view name) : name_(name) {}
  std::string_view name() const override { return name_; }
  KvLayout layout() const override { return KvLayout::kNhd; }
  std::unique_ptr<AttentionLayer> CreateLayer(const AttentionSpec& /*spec*/) const override {
    return nullptr;
  }
  std::unique_ptr<MlaLayer> CreateMlaLayer(const AttentionSpec& /*spec*/) const override {
    return nullptr;
  }
  std::unique_ptr<StepPlan> CreatePlan(int /*group*/, const CacheSpec& /*spec*/) const override {
    return nullptr;
  }
  void Prepare(const StepLayout& /*layout*/, StepPlan& /*plan*/) const override {}

 private:
  std::string_view name_;
};

test::Script WithBackends(std::vector<std::string_view> names) {
  return {.then = [names](Registrar& registrar) {
    for (const std::string_view name : names) {
      registrar.AttentionBackend(std::make_shared<FakeBackend>(name), {{name, "loops"}});
    }
    return Status();
  }};
}

std::string Names(const Registry& registry) {
  std::string text;
  for (const auto& [entry, provider] : registry.AttentionBackends()) {
    text += std::string(entry->backend->name()) + " of " + provider + "\n";
  }
  return text;
}

TEST(AttentionSlots, InTheOrderOfProvidersAndTheLastOfANameWins) {
  FakeZoo zoo;
  Registry registry(kIndex, {});
  EXPECT_EQ(Names(registry), "");
  ASSERT_TRUE(registry.AddExternal(zoo.External("/p/z.so", WithBackends({"ZED", "ALSO"}))).ok());
  ASSERT_TRUE(registry.AddExternal(zoo.External("/p/a.so", WithBackends({"Zed"}))).ok());
  EXPECT_EQ(Names(registry), "ALSO of /p/z.so\nZed of /p/a.so\n");
  registry.Rebuild(std::vector<std::string>{"/p/z.so"});
  EXPECT_EQ(Names(registry), "ZED of /p/z.so\nALSO of /p/z.so\n");
  registry.Rebuild({});
  EXPECT_EQ(Names(registry), "");
}

TEST(AttentionSlots, WhatCannotBeSelectedIsRefused) {
  const auto refusal = [](std::string_view name, std::vector<KernelRow> rows) {
    FakeZoo zoo;
    Registry registry(kIndex, {});
    const Status status = registry.AddExternal(
        zoo.External("/p/x.so", {.then = [&](Registrar& registrar) {
                       registrar.AttentionBackend(std::make_shared<FakeBackend>(name), rows);
                       return Status();
                     }}));
    EXPECT_EQ(Names(registry), "");
    return status.message();
  };
  test::ExpectWords(refusal("", {{"", "loops"}}), {"/p/x.so", "attention backend ''", "fix: "});
  test::ExpectWords(refusal("Auto", {{"Auto", "loops"}}), {"attention backend 'Auto'"});
  test::ExpectWords(refusal("MINE", {}), {"'MINE' with 0 rows"});
  test::ExpectWords(refusal("MINE", {{"MINE", "a"}, {"NATIVE", "b"}}), {"'MINE' with 2 rows"});
  EXPECT_EQ(refusal("MINE", {}).find("has registered no"), std::string::npos);
}

TEST(AttentionSlots, InTheTableBesideOursOrInPlaceOfOne) {
  const auto ours = std::make_shared<FakeBackend>("OURS");
  BackendTable table{.rows = {{"OURS", "fast"}, {"OURS", "slow"}},
                     .backends = {ours},
                     .aliases = {{"OLD", "OURS"}}};
  const KernelRow row{"Theirs", "loops"};
  EXPECT_FALSE(table.Add(std::make_shared<FakeBackend>("Theirs"), {&row, 1}));
  EXPECT_EQ(table.Find("THEIRS")->name(), "Theirs");
  EXPECT_EQ(table.rows.size(), 3u);
  const KernelRow rival{"ours", "loops"};
  EXPECT_TRUE(table.Add(std::make_shared<FakeBackend>("ours"), {&rival, 1}));
  EXPECT_EQ(table.Find("OURS")->name(), "ours");
  EXPECT_EQ(table.Find("old")->name(), "ours");
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[1].kernel, "loops");
  const KernelRow alias{"old", "loops"};
  EXPECT_TRUE(table.Add(std::make_shared<FakeBackend>("old"), {&alias, 1}));
  EXPECT_EQ(table.Find("OLD")->name(), "old");
}

}  // namespace
}  // namespace tenon
