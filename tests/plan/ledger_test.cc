// The memory ledger against byte counts worked out from the config and from the file's own headers.
#include <gtest/gtest.h>

#include <set>

#include "plan/wish.h"
#include "tenon/base/json.h"

namespace tenon {
namespace {

using test::PlanGolden;
using test::PlanPath;
using test::Wish;

std::unique_ptr<PlannedModel> Planned(const std::string& golden, const Wish& wish = {}) {
  auto plan = PlanGolden(golden, wish);
  TN_CHECK(plan.ok(), plan.message().c_str());
  return *std::move(plan);
}

// The numbers of a Llama-like config.json.
struct Sizes {
  explicit Sizes(const std::string& golden)
      : json(*ReadJsonFile(test::DataPath("goldens/" + golden) + "/config.json")) {
    hidden = Int("hidden_size");
    layers = Int("num_hidden_layers");
    heads = Int("num_attention_heads");
    kv_heads = Int("num_key_value_heads", heads);
    head_dim = Int("head_dim", hidden / heads);
    intermediate = Int("intermediate_size");
    vocab = Int("vocab_size");
  }
  int64_t Int(const char* key, int64_t fallback = -1) const {
    const Json* value = json.Find(key);
    return value == nullptr || !value->is_int() ? fallback : value->as_int();
  }
  int64_t Attention() const { return hidden * head_dim * (2 * heads + 2 * kv_heads); }
  int64_t Mlp() const { return 3 * hidden * intermediate; }

  Json json;
  int64_t hidden, layers, heads, kv_heads, head_dim, intermediate, vocab;
};

struct LlamaCase {
  const char* golden;
  int64_t stored;  // bytes of an element in the file
  bool tied;       // no head of its own
};

TEST(MemoryLedger, WeightsOfLlamaInClosedForm) {
  for (const LlamaCase& c :
       {LlamaCase{"llama", 2, false}, LlamaCase{"llama_gqa_odd", 2, false},
        LlamaCase{"llama_hd128", 2, false}, LlamaCase{"llama_tied_fp32_sharded", 4, true}}) {
    SCOPED_TRACE(c.golden);
    const Sizes s(c.golden);
    const int64_t matrices =
        s.layers * (s.Attention() + s.Mlp()) + (c.tied ? 1 : 2) * s.vocab * s.hidden;
    const int64_t norms = (2 * s.layers + 1) * s.hidden;
    const MemoryLedger memory = Planned(c.golden)->memory;
    EXPECT_EQ(memory.weights_stored, c.stored * (matrices + norms));
    EXPECT_EQ(memory.weights_held, c.stored * matrices + 4 * norms) << "vectors are widened";
    EXPECT_EQ(memory.weights_derived, 0);
  }
}

TEST(MemoryLedger, WeightsOfExpertsInClosedForm) {
  const Sizes s("mixtral");
  const int64_t experts = s.Int("num_local_experts");
  const int64_t matrices =
      s.layers * (s.Attention() + experts * s.Mlp() + experts * s.hidden) + 2 * s.vocab * s.hidden;
  const int64_t norms = (2 * s.layers + 1) * s.hidden;
  const MemoryLedger memory = Planned("mixtral")->memory;
  EXPECT_EQ(memory.weights_stored, 2 * (matrices + norms));
  EXPECT_EQ(memory.weights_held, 2 * matrices + 4 * norms);
}

// Per layer and head: the key part [r, n] and the value part [v, r] of the up-projection, fp32.
TEST(MemoryLedger, LatentAttentionDerivesItsAbsorbedWeights) {
  for (const char* golden : {"deepseek_v2", "deepseek_v2_lite", "deepseek_v2_lite_mla576"}) {
    const Sizes s(golden);
    const int64_t expected = 4 * s.layers * s.heads * s.Int("kv_lora_rank") *
                             (s.Int("qk_nope_head_dim") + s.Int("v_head_dim"));
    EXPECT_EQ(Planned(golden)->memory.weights_derived, expected) << golden;
  }
}

// MXFP4 codes are decoded layer by layer and given up: held are bf16 numbers, two bytes each.
TEST(MemoryLedger, DecodedWeightsInClosedForm) {
  const Sizes s("gpt_oss_mxfp4");
  const int64_t experts = s.Int("num_local_experts");
  const int64_t numbers = experts * s.Mlp();  // of a layer
  const int64_t qkv = (s.heads + 2 * s.kv_heads) * s.head_dim;
  const int64_t matrices = s.layers * (s.Attention() + experts * s.hidden) + 2 * s.vocab * s.hidden;
  const int64_t vectors = s.layers * (2 * s.hidden + qkv + s.hidden + s.heads +
                                      experts * (1 + 2 * s.Int("intermediate_size") + s.hidden)) +
                          s.hidden;
  const MemoryLedger memory = Planned("gpt_oss_mxfp4")->memory;
  EXPECT_EQ(memory.weights_derived, 2 * s.layers * numbers);
  EXPECT_EQ(memory.weights_held, 2 * matrices + 4 * vectors);
  EXPECT_EQ(memory.construction, numbers / 2 + numbers / 32);
}

// Any golden and any container: the bytes of the tensors in the headers, but for those skipped.
TEST(MemoryLedger, StoredWeightsAreTheFilesBytes) {
  std::vector<std::string> paths;
  for (const char* golden : {"bert", "deepseek_v2", "gemma2", "gemma3_wrapper", "gpt_oss",
                             "gpt_oss_mxfp4", "lfm2", "llama", "llama_bias", "llama_hd64",
                             "llama_tied_fp32_sharded", "mamba2", "mixtral", "t5", "t5_v1_1"}) {
    paths.push_back(test::DataPath(std::string("goldens/") + golden));
  }
  for (const char* file : {"gemma3_q8_0", "llama_f16", "llama_q4_0"}) {
    paths.push_back(test::DataPath(std::string("goldens_gguf/") + file + ".gguf"));
  }
  for (const std::string& path : paths) {
    SCOPED_TRACE(path);
    const auto plan = PlanPath(path);
    ASSERT_TRUE(plan.ok()) << plan.message();
    int64_t bytes = 0;
    for (const StoredTensor& tensor : (*plan)->checkpoint->tensors()) bytes += tensor.bytes;
    for (const StoredTensor* tensor : (*plan)->index->UnusedStored()) bytes -= tensor->bytes;
    EXPECT_EQ((*plan)->memory.weights_stored, bytes);
  }
}

// --- cache

// Pages of one sequence and its table; rows of K and V; 24 bytes of lists per page, 16 per
// sequence.
int64_t PagedBytes(int64_t layers, int64_t tokens, int64_t page, int64_t row_bytes) {
  const int64_t pages = (tokens + page - 1) / page;
  return layers * pages * page * row_bytes + (4 + 24) * pages + 16;
}

TEST(MemoryLedger, CacheOfLlamaInClosedForm) {
  for (const char* golden : {"llama", "llama_gqa_odd", "llama_rope_llama3"}) {
    for (const auto& [dtype, bytes] : {std::pair<const char*, int64_t>{"f32", 4}, {"bf16", 2}}) {
      for (const auto& [tokens, page] :
           {std::pair<int64_t, int64_t>{128, 16}, {100, 32}, {1, 64}}) {
        const Sizes s(golden);
        const auto plan =
            Planned(golden, {.kv_dtype = dtype, .max_seq_len = tokens, .page_tokens = page});
        const int64_t row = 2 * s.kv_heads * s.head_dim * bytes;
        EXPECT_EQ(plan->memory.cache, PagedBytes(s.layers, tokens, page, row))
            << golden << " " << dtype << " " << tokens;
        ASSERT_EQ(plan->cache_plan.groups.size(), 1u);
        EXPECT_EQ(plan->cache_plan.groups[0].members.size(), static_cast<size_t>(s.layers));
      }
    }
  }
}

// Codes and what scales them: int8 a float for a row, nvfp4 a byte for sixteen.
TEST(MemoryLedger, CacheOfNarrowRowsInClosedForm) {
  for (const char* golden : {"llama_hd64", "llama_hd128"}) {
    const Sizes s(golden);
    const int64_t d = s.head_dim;
    for (const auto& [dtype, row] : {std::pair<const char*, int64_t>{"fp16", 2 * d},
                                     {"fp8_e4m3", d},
                                     {"int8", d + 4},
                                     {"nvfp4", d / 2 + d / 16}}) {
      const auto plan = Planned(golden, {.kv_dtype = dtype, .max_seq_len = 100, .page_tokens = 32});
      EXPECT_EQ(plan->memory.cache, PagedBytes(s.layers, 100, 32, 2 * s.kv_heads * row))
          << golden << " " << dtype;
    }
  }
}

// One latent row and one rotated key for all heads.
TEST(MemoryLedger, CacheOfLatentAttention) {
  const Sizes s("deepseek_v2");
  const auto plan = Planned("deepseek_v2", {.max_seq_len = 64, .page_tokens = 16});
  EXPECT_EQ(plan->memory.cache,
            PagedBytes(s.layers, 64, 16, 4 * (s.Int("kv_lora_rank") + s.Int("qk_rope_head_dim"))));
}

// Per layer: the convolution's last columns and heads * head_dim * state_size numbers. A sequence
// has one slot whatever its length.
TEST(MemoryLedger, StatesDoNotGrowWithTheContext) {
  const Sizes s("mamba2");
  const int64_t inner = s.Int("num_heads") * s.Int("head_dim");
  const int64_t channels = inner + 2 * s.Int("n_groups") * s.Int("state_size");
  const int64_t conv = 4 * channels * (s.Int("conv_kernel") - 1);
  const int64_t scan = 4 * inner * s.Int("state_size");
  for (const int64_t tokens : {1, 100, 32768}) {
    const auto plan = Planned("mamba2", {.max_seq_len = tokens});
    int64_t slots = 0;
    for (const CacheGroupPlan& group : plan->cache_plan.groups) {
      EXPECT_EQ(group.spec.kind, CacheKind::kState);
      EXPECT_EQ(group.slots, 1);
      slots += group.spec.state_bytes * static_cast<int64_t>(group.members.size());
    }
    EXPECT_EQ(slots, s.layers * (conv + scan));
    EXPECT_GE(plan->memory.cache, slots);
    EXPECT_EQ(plan->memory.cache, Planned("mamba2", {.max_seq_len = 7})->memory.cache);
  }
}

// A hybrid has both kinds; an encoder-decoder caches its encoder's rows too; an encoder nothing.
TEST(MemoryLedger, CacheKindsOfEveryKindOfModel) {
  const auto kinds = [](const std::string& golden) {
    std::multiset<std::string> names;
    const auto plan = Planned(golden);
    for (const CacheGroupPlan& group : plan->cache_plan.groups) {
      for (size_t i = 0; i < group.members.size(); ++i) names.emplace(NameOf(group.spec.kind));
    }
    return names;
  };
  const std::string paged(NameOf(CacheKind::kPagedRows));
  const std::string state(NameOf(CacheKind::kState));
  const std::string cross(NameOf(CacheKind::kCross));
  EXPECT_EQ(kinds("lfm2"), (std::multiset<std::string>{paged, paged, state, state}));
  EXPECT_EQ(kinds("t5"), (std::multiset<std::string>{paged, paged, cross, cross}));
  EXPECT_EQ(kinds("bert"), std::multiset<std::string>());
  EXPECT_EQ(Planned("bert")->memory.cache, 0);
}

TEST(MemoryLedger, TheArenaIsThatOfTheLargestStep) {
  for (const char* golden : {"llama", "t5", "bert", "mamba2"}) {
    const auto plan = Planned(golden);
    int64_t arena = 0;
    int64_t scratch = 0;
    for (const StepSummary& step : plan->steps) {
      arena = std::max(arena, step.arena_bytes);
      scratch = std::max(scratch, step.scratch_bytes);
    }
    EXPECT_EQ(plan->memory.arena, arena) << golden;
    EXPECT_EQ(plan->memory.scratch, scratch) << golden;
    // The last step's logits alone need this much.
    EXPECT_GE(arena, 4 * plan->config->vocab.value) << golden;
    const MemoryLedger& m = plan->memory;
    EXPECT_EQ(m.Total(), m.weights_held + m.weights_derived + m.cache + m.arena + m.scratch);
  }
}

}  // namespace
}  // namespace tenon
