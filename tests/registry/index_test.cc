// The real index against what the providers of this build register, in both directions; and what
// reading it costs: no provider runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "registry/fixtures.h"
#include "tenon/base/text.h"
#include "tenon/zoo/zoo.h"

namespace tenon {
namespace {

TEST(BuiltinIndex, NothingIsOpenAfterListingIt) {
  const auto registry = MakeRegistry();
  const StaticIndex& index = registry->index();
  EXPECT_GE(index.architectures.size(), 200u);
  std::set<std::string_view> names;
  int served = 0;
  for (const ArchitectureRow& row : index.architectures) {
    EXPECT_TRUE(names.insert(row.architecture).second) << row.architecture << " twice";
    EXPECT_FALSE(row.provider.empty()) << row.architecture;
    served += registry->IsServed(row) ? 1 : 0;
    // Only draft models may go without a model_type of their own.
    EXPECT_TRUE(!row.model_type.empty() || row.kind == ModelKind::kDraft) << row.architecture;
    EXPECT_EQ(row.version.empty(), row.status == ModelStatus::kNotBuilt) << row.architecture;
  }
  EXPECT_GE(served, 7);
  EXPECT_FALSE(registry->ArchitecturesOfModelType("llama").empty());
  EXPECT_EQ(registry->opened(), 0);
}

TEST(BuiltinIndex, RowsAreSortedSoThatOneIsFound) {
  const auto lower = [](std::string_view name) { return ToLowerAscii(name); };
  const auto rows = ZooIndex().architectures;
  for (size_t i = 1; i < rows.size(); ++i) {
    EXPECT_LE(lower(rows[i - 1].architecture), lower(rows[i].architecture));
  }
}

TEST(BuiltinIndex, EveryServedRowIsRegisteredAsItSays) {
  const auto registry = MakeRegistry();
  for (const ArchitectureRow& row : registry->index().architectures) {
    if (!registry->IsServed(row)) continue;
    SCOPED_TRACE(row.architecture);
    const auto found = registry->Find(row.architecture);
    ASSERT_TRUE(found.ok()) << found.message();
    EXPECT_EQ(found->provider, row.provider);
    EXPECT_EQ(found->entry->architecture, row.architecture);
    EXPECT_EQ(found->entry->kind, row.kind);
    EXPECT_EQ(found->entry->traits.model_type, row.model_type);
  }
  EXPECT_TRUE(registry->notes().empty());
}

// The other way: what a provider registers has a row that names this provider.
TEST(BuiltinIndex, EveryRegistrationHasItsRow) {
  const auto registry = MakeRegistry();
  const StaticIndex& index = registry->index();
  std::set<std::string_view> providers;
  for (const ArchitectureRow& row : index.architectures) {
    if (registry->IsServed(row) && registry->Find(row.architecture).ok()) {
      providers.insert(row.provider);
    }
  }
  EXPECT_EQ(registry->opened(), static_cast<int>(providers.size()));
  for (const std::string_view provider : providers) {
    for (const std::string& name : registry->RegisteredBy(provider, SlotKind::kModel)) {
      const ArchitectureRow* row = registry->FindRow(name);
      ASSERT_NE(row, nullptr) << provider << " registers " << name;
      EXPECT_EQ(row->provider, provider) << name;
    }
    for (const std::string& mode : registry->RegisteredBy(provider, SlotKind::kDraftBuilder)) {
      EXPECT_TRUE(std::any_of(index.drafts.begin(), index.drafts.end(), [&](const DraftRow& row) {
        return row.mode == mode && row.provider == provider;
      })) << mode;
    }
    for (const std::string& name : registry->RegisteredBy(provider, SlotKind::kTarget)) {
      EXPECT_TRUE(std::any_of(index.targets.begin(), index.targets.end(),
                              [&](const TargetRow& row) { return row.provider == provider; }))
          << name;
    }
  }
}

TEST(BuiltinIndex, ModelTypesNameServedArchitecturesOnce) {
  const auto registry = MakeRegistry();
  std::map<std::string_view, std::string_view> own;
  for (const ArchitectureRow& row : registry->index().architectures) {
    own.emplace(row.model_type, row.architecture);
  }
  std::set<std::string_view> seen;
  for (const ModelTypeRow& row : registry->index().model_types) {
    EXPECT_NE(registry->FindRow(row.architecture), nullptr) << row.model_type;
    EXPECT_FALSE(own.contains(row.model_type)) << row.model_type << " has a row of its own";
    EXPECT_TRUE(seen.insert(row.model_type).second) << row.model_type << " twice";
  }
}

TEST(BuiltinIndex, EveryGgufRowNamesAServedFamily) {
  const auto registry = MakeRegistry();
  for (const GgufRow& row : registry->index().gguf) {
    const auto rows = registry->index().architectures;
    EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [&](const ArchitectureRow& architecture) {
      return architecture.provider == row.provider && registry->IsServed(architecture);
    })) << row.gguf_architecture;
  }
}

TEST(BuiltinIndex, NearNamesOfARealOne) {
  const auto registry = MakeRegistry();
  test::ExpectRefusal(registry->Find("LlamaForCasualLM"), {"did you mean LlamaForCausalLM"});
  EXPECT_EQ(registry->opened(), 0);
}

}  // namespace
}  // namespace tenon
