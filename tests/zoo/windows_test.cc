// Which layers have windows by the families' own rules, where the goldens do not reach: absent
// keys, null, flags that are off; and what Mistral's wrapper takes from its text_config.
#include <gtest/gtest.h>

#include "plan/edited.h"
#include "plan/wish.h"
#include "support/words.h"
#include "tenon/modules/attention.h"

namespace tenon {
namespace {

using test::EditedModel;
using Windows = std::vector<int64_t>;

Result<std::unique_ptr<PlannedModel>> Plan(EditedModel& model) {
  return test::PlanPath(model.WithoutWeights().path());
}

// By layer; 0: none.
Windows WindowsOf(EditedModel& model) {
  const auto plan = Plan(model);
  EXPECT_TRUE(plan.ok()) << plan.message();
  Windows windows;
  if (!plan.ok()) return windows;
  for (int64_t layer = 0; layer < (*plan)->config->layers.value; ++layer) {
    const AttentionCore* core = (*plan)->context->attention_layers.at(std::to_string(layer));
    windows.push_back(core->spec().window.value_or(0));
  }
  return windows;
}

TEST(Windows, OfMistralAreThereUnlessNull) {
  EditedModel model("mistral");
  EXPECT_EQ(WindowsOf(model.Unset("sliding_window")), (Windows{4096, 4096}));
  EXPECT_EQ(WindowsOf(model.Set("sliding_window", Json())), (Windows{0, 0}));
  EditedModel newer("ministral3");
  EXPECT_EQ(WindowsOf(newer.Unset("sliding_window")), (Windows{0, 0}));
  EXPECT_EQ(WindowsOf(newer.Set("sliding_window", 24)), (Windows{24, 24}));
}

TEST(Windows, OfQwen2AreOnTheUpperLayersWhenOn) {
  EditedModel model("qwen2_swa");  // three layers, window 8
  model.Unset("layer_types");
  EXPECT_EQ(WindowsOf(model.Set("max_window_layers", 2)), (Windows{0, 0, 8}));
  EXPECT_EQ(WindowsOf(model.Set("max_window_layers", 0)), (Windows{8, 8, 8}));
  EXPECT_EQ(WindowsOf(model.Unset("sliding_window")), (Windows{4096, 4096, 4096}));
  EXPECT_EQ(WindowsOf(model.Unset("max_window_layers")), (Windows{0, 0, 0})) << "28 layers without";
  EXPECT_EQ(WindowsOf(model.Set("max_window_layers", 0).Set("sliding_window", Json())),
            (Windows{0, 0, 0}));
  EXPECT_EQ(WindowsOf(model.Set("sliding_window", 8).Unset("use_sliding_window")),
            (Windows{0, 0, 0}));
}

TEST(Windows, LayerTypesWithoutAWindowAreAnError) {
  EditedModel model("qwen2_swa");
  const auto plan = Plan(model.Set("use_sliding_window", false));
  ASSERT_FALSE(plan.ok());
  test::ExpectWords(plan.message(), {"layer_types", "sliding_attention", "use_sliding_window",
                                     "set by config.json: layer_types", "fix:"});
}

TEST(Windows, OfQwen2MoeAreOnEverySecondLayerBelow) {
  EditedModel model("qwen2_moe");
  model.Set("num_hidden_layers", 5).Set("use_sliding_window", true).Set("sliding_window", 6);
  EXPECT_EQ(WindowsOf(model), (Windows{6, 0, 6, 0, 6}));
  EXPECT_EQ(WindowsOf(model.Set("max_window_layers", 3)), (Windows{6, 0, 6, 0, 0}));
}

TEST(Windows, OfQwen3MoeAreEverywhereOrNowhere) {
  EditedModel model("qwen3_moe");
  EXPECT_EQ(WindowsOf(model), (Windows{0, 0, 0}));
  model.Set("use_sliding_window", true).Set("sliding_window", 6).Set("max_window_layers", 1);
  EXPECT_EQ(WindowsOf(model), (Windows{6, 6, 6}));
}

TEST(Mistral3, TheTextConfigSaysWhichModelItIs) {
  EditedModel model("mistral3_wrapper");
  Json text = *EditedModel("ministral3").config().Find("rope_parameters");
  Json config = *model.config().Find("text_config");
  config.Set("rope_parameters", text);
  config.Set("model_type", "ministral3");
  const auto plan = Plan(model.Set("text_config", config));
  ASSERT_TRUE(plan.ok()) << plan.message();
  EXPECT_EQ((*plan)->config->rope.value.type, RopeType::kYarn);
  EXPECT_TRUE((*plan)->reader->UnreadKeys().empty());
  config.Set("model_type", "gemma");
  const auto other = Plan(model.Set("text_config", config));
  ASSERT_FALSE(other.ok());
  test::ExpectWords(other.message(), {"text_config.model_type", "gemma", "mistral, ministral3"});
}

TEST(Ministral3, WithoutARopeItsDefaultIsYarn) {
  EditedModel model("ministral3");
  const auto plan = Plan(model.Unset("rope_parameters"));
  ASSERT_TRUE(plan.ok()) << plan.message();
  const RopeParameters& rope = (*plan)->config->rope.value;
  EXPECT_EQ(rope.type, RopeType::kYarn);
  EXPECT_EQ(rope.theta, 1e6);
  EXPECT_EQ(rope.factor, 16.0);
  EXPECT_EQ(rope.original_max_position, 16384);
  const auto without = Plan(model.Set("rope_parameters", Json::Object{{"rope_type", "default"}}));
  ASSERT_FALSE(without.ok());
  test::ExpectWords(without.message(), {"llama_4_scaling_beta", "is missing"});
}

}  // namespace
}  // namespace tenon
