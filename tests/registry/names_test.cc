// What families call their tensors, where it depends on the config.
#include <gtest/gtest.h>

#include "tenon/zoo/zoo.h"

namespace tenon {
namespace {

// GGUF's "llama" interleaves the rows of q and k by head: of each layer's own number of heads.
TEST(Names, RowsArePermutedByTheLayersOwnHeads) {
  const auto registry = MakeRegistry();
  const auto found = registry->Find("LlamaForCausalLM");
  ASSERT_TRUE(found.ok()) << found.message();
  const auto json = ParseJson(R"({"vocab_size": 8, "hidden_size": 64, "num_hidden_layers": 2,
      "num_attention_heads": [4, 8], "num_key_value_heads": [2, 4], "head_dim": 16,
      "intermediate_size": 32})");
  ASSERT_TRUE(json.ok()) << json.message();
  ConfigReader reader(*json);
  const auto config = found->entry->read_config(reader, Container::kGguf);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  const NameTable names = found->entry->names(*config, Container::kGguf);
  const auto heads_of = [&](const char* stored) {
    const auto matches = names.MatchStored(stored);
    return matches.size() == 1 ? matches[0].row->transform.at(0).heads : -1;
  };
  EXPECT_EQ(heads_of("blk.0.attn_q.weight"), 4);
  EXPECT_EQ(heads_of("blk.1.attn_q.weight"), 8);
  EXPECT_EQ(heads_of("blk.0.attn_k.weight"), 2);
  EXPECT_EQ(heads_of("blk.1.attn_k.weight"), 4);
  EXPECT_EQ(names.StoredOf("model.layers.1.self_attn.q_proj.weight")->name, "blk.1.attn_q.weight");
}

}  // namespace
}  // namespace tenon
