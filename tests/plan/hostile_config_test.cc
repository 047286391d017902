// A config.json may say anything: whatever one of its numbers is, the answer is a plan or an error
// that is the model's fault, soon and without using memory by what the file says. The fuzz target
// hf_config goes further.
#include <gtest/gtest.h>

#include "plan/edited.h"
#include "plan/wish.h"
#include "support/words.h"

namespace tenon {
namespace {

using test::EditedModel;
using test::ExpectWords;
using test::PlanPath;

Result<std::unique_ptr<PlannedModel>> Plan(EditedModel& model) {
  return PlanPath(model.WithoutWeights().path(), {.memory_bytes = int64_t{64} << 20});
}

class HostileConfigTest : public testing::TestWithParam<const char*> {};

TEST_P(HostileConfigTest, EveryNumberMayBeAnything) {
  const auto golden = Checkpoint::Open(test::DataPath(std::string("goldens/") + GetParam()));
  ASSERT_TRUE(golden.ok()) << golden.message();
  for (const auto& [key, value] : (*golden)->config()->as_object()) {
    if (!value.is_number()) continue;
    for (const double number : {-1.0, 0.0, 1.0, 2.0, 3.0, 5.0, 1e6, 2147483647.0, 1e30}) {
      EditedModel model(GetParam());
      const bool whole = number <= 2147483647.0;
      model.Set(key, whole ? Json(static_cast<int64_t>(number)) : Json(number));
      SCOPED_TRACE(testing::Message() << key << " = " << number);
      const auto plan = Plan(model);
      if (plan.ok()) continue;
      EXPECT_TRUE(plan.code() == StatusCode::kRefused || plan.code() == StatusCode::kDoesNotFit)
          << plan.message();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, HostileConfigTest,
                         testing::Values("bert", "deepseek_v2", "deepseek_v2_lite", "gemma",
                                         "gemma2", "gemma3_text", "gemma3_wrapper", "gpt_oss",
                                         "gpt_oss_mxfp4", "lfm2", "llama", "llama4_text",
                                         "llama4_wrapper", "mamba2", "ministral3",
                                         "mistral3_wrapper", "mixtral", "qwen2_moe", "qwen2_swa",
                                         "qwen3", "qwen3_moe", "qwen3_next", "t5", "t5_v1_1"));

struct Edit {
  const char* golden;
  const char* key;
  Json value;
  std::initializer_list<std::string_view> words;
};

TEST(HostileConfig, WhatIsWrongIsNamed) {
  const Edit edits[] = {
      {"deepseek_v2", "topk_group", 1000, {"topk_group", "at most n_group"}},
      {"deepseek_v2", "num_attention_heads", 2147483647, {"num_attention_heads", "1048576"}},
      {"deepseek_v2_lite", "n_routed_experts", 1000000, {"layers x experts", "1048576", "fix:"}},
      {"deepseek_v2", "n_shared_experts", 2147483647, {"n_shared_experts", "2147483647"}},
      {"mixtral", "num_local_experts", 2147483647, {"layers x experts", "num_local_experts"}},
      {"t5_v1_1", "num_decoder_layers", 1000000, {"num_decoder_layers", "65536"}},
      {"t5", "relative_attention_num_buckets", 1 << 20, {"relative_attention_num_buckets"}},
      {"t5", "num_heads", Json::Array{1, 3}, {"num_heads", "differs by layer"}},
      {"mixtral", "intermediate_size", Json::Array{60, 30}, {"intermediate_size", "differs"}},
      {"llama", "num_attention_heads", Json::Array{4, 0}, {"num_attention_heads", "layer 1"}},
      {"lfm2", "block_ff_dim", 1, {"block_ff_dim", "from 1"}},
      {"lfm2", "block_ffn_dim_multiplier", 1e30, {"block_ffn_dim_multiplier", "2147483647"}},
      {"lfm2", "conv_L_cache", 1, {"conv_L_cache", "2"}},
      {"gemma2",
       "layer_types",
       Json::Array{"full_attention"},
       {"layer_types", "has 1 entries", "3"}},
      {"gemma2", "attn_logit_softcapping", 0, {"attn_logit_softcapping = 0"}},
      {"gemma", "use_bidirectional_attention", true, {"use_bidirectional_attention", "false"}},
      {"gemma3_text", "sliding_window_pattern", 0, {"sliding_window_pattern", "from 1"}},
      {"gpt_oss",
       "layer_types",
       Json::Array{"full_attention", "conv", "full_attention"},
       {"layer_types", "has 'conv' for layer 1", "sliding_attention, full_attention"}},
      {"gpt_oss", "num_experts_per_tok", 5, {"num_experts_per_tok", "4"}},
      {"llama4_text", "no_rope_layers", Json::Array{1, 0}, {"no_rope_layers", "every layer"}},
      {"llama4_text", "moe_layers", Json::Array{4}, {"moe_layers", "from 0 to 3"}},
      {"llama4_text", "num_local_experts", 2147483647, {"layers x experts", "num_local_experts"}},
      {"mamba2", "conv_kernel", 2147483647, {"conv_kernel", "1024"}}};
  for (const Edit& edit : edits) {
    SCOPED_TRACE(testing::Message() << edit.golden << " " << edit.key);
    EditedModel model(edit.golden);
    model.Set(edit.key, edit.value);
    const auto plan = Plan(model);
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.code(), StatusCode::kRefused) << plan.message();
    ExpectWords(plan.message(), edit.words);
  }
}

// An encoder takes its whole input in one step, whose books alone would have this many entries.
TEST(HostileConfig, AnEncodersLengthIsWhatFits) {
  EditedModel model("bert");
  model.Set("max_position_embeddings", 2147483647);
  const auto refused = Plan(model);  // the table of positions alone is too large
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.code(), StatusCode::kDoesNotFit) << refused.message();
  const auto asked = PlanPath(EditedModel("t5").WithoutWeights().path(),
                              {.max_seq_len = 2147483647, .memory_bytes = int64_t{64} << 20});
  ASSERT_FALSE(asked.ok());
  EXPECT_EQ(asked.code(), StatusCode::kDoesNotFit) << asked.message();
  ExpectWords(asked.message(), {"longest context that fits", "fix:"});
}

}  // namespace
}  // namespace tenon
