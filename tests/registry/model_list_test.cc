// What `tenon models` lists: the index's rows with why one is not served, externals in their place
// or beside them, and names by architecture, family or model_type.
#include "tenon/registry/model_list.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "registry/fixtures.h"

namespace tenon {
namespace {

using test::FakeZoo;
using test::kIndex;
using test::kRows;

const ListedModel* RowOf(const std::vector<ListedModel>& models, std::string_view architecture) {
  const auto it = std::find_if(models.begin(), models.end(), [&](const ListedModel& model) {
    return model.architecture == architecture;
  });
  return it == models.end() ? nullptr : &*it;
}

TEST(ModelList, OpensNoProviderAndSaysWhyNot) {
  FakeZoo zoo;
  Registry registry(kIndex, zoo.Builtins());
  const std::vector<ListedModel> models = ListModels(registry);
  EXPECT_EQ(models.size(), std::size(kRows));
  EXPECT_EQ(zoo.Runs(), 0);
  EXPECT_TRUE(RowOf(models, "AlphaForCausalLM")->served);
  EXPECT_EQ(RowOf(models, "AlphaForCausalLM")->gguf, std::vector<std::string>{"alpha"});
  EXPECT_EQ(RowOf(models, "AbsentForCausalLM")->status, "left out");
  EXPECT_EQ(RowOf(models, "PlannedForCausalLM")->status, "not built");
  EXPECT_EQ(RowOf(models, "OldForCausalLM")->status, "removed");
  for (const ListedModel& model : models) EXPECT_EQ(model.served, model.why_not.empty());
}

TEST(ModelList, ExternalsStandInTheirRowsOrBeside) {
  FakeZoo zoo;
  Registry registry(kIndex, zoo.Builtins());
  ASSERT_TRUE(registry
                  .AddExternal(zoo.External(
                      "/p/x.so", {.models = {{"AlphaForCausalLM", "mine"}, {"Omega", "omega"}}}))
                  .ok());
  const std::vector<ListedModel> models = ListModels(registry);
  EXPECT_EQ(models.size(), std::size(kRows) + 1);
  for (const char* name : {"AlphaForCausalLM", "Omega"}) {
    const ListedModel* model = RowOf(models, name);
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(model->family, "/p/x.so");
    EXPECT_EQ(model->status, "external");
    EXPECT_EQ(model->kind, "causal lm");
    EXPECT_TRUE(model->served);
  }
  EXPECT_EQ((*ListModels(registry, "omega"))[0].architecture, "Omega") << "by its model_type";
}

TEST(ModelList, FindsByArchitectureFamilyOrType) {
  FakeZoo zoo;
  Registry registry(kIndex, zoo.Builtins());
  EXPECT_EQ(ListModels(registry, "betaforcausallm")->size(), 1u);
  EXPECT_EQ(ListModels(registry, "beta")->size(), 2u) << "the family's two";
  EXPECT_EQ(ListModels(registry, "alpha_masked")->size(), 1u);
  EXPECT_TRUE(CheckServed(*ListModels(registry, "beta")).ok());
  const Status planned = CheckServed(*ListModels(registry, "planned"));
  EXPECT_EQ(planned.code(), StatusCode::kRefused);
  test::ExpectWords(planned.message(), {"'PlannedForCausalLM'", "not built"});
  test::ExpectRefusal(ListModels(registry, "gama"), {"'gama'", "did you mean", "gamma"});
}

}  // namespace
}  // namespace tenon
