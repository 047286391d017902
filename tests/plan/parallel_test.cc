// Shapes of a model that is divided over ranks: for worlds of 1 to 8 the ranks' parts tile every
// stored tensor, kv heads are repeated where there are fewer of them than ranks, and stages cut the
// layers into runs.
#include "tenon/modules/parallel.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "plan/edited.h"
#include "plan/wish.h"
#include "support/words.h"
#include "tenon/modules/attention.h"

namespace tenon {
namespace {

using test::EditedModel;
using test::ExpectWords;

Result<std::unique_ptr<PlannedModel>> PlanRank(const std::string& path, const ParallelMapping& m) {
  const auto registry = MakeRegistry();
  TN_ASSIGN_OR_RETURN(EngineOptions options, test::OptionsFor({.max_seq_len = 32}));
  options.tp.value = m.tp;
  options.pp.value = m.pp;
  options.rank.value = m.rank;
  return PlanModel(path, std::move(options), *registry);
}

// How often each element of a stored tensor is held, over all ranks.
struct Held {
  Shape full = {1};
  std::map<std::pair<int64_t, int64_t>, int> corners;  // (row, column) of parts -> ranks
  int64_t elements = 0;
};

std::map<std::string, Held> HeldBy(const std::string& path, int tp, int pp) {
  std::map<std::string, Held> all;
  for (int rank = 0; rank < tp * pp; ++rank) {
    const auto plan = PlanRank(path, {tp, pp, rank});
    EXPECT_TRUE(plan.ok()) << "rank " << rank << ": " << plan.message();
    if (!plan.ok()) return {};
    for (Module* module : (*plan)->context->modules) {
      for (const Parameter& parameter : module->parameters()) {
        Held& held = all[parameter.path()];
        held.full = parameter.part().Full();
        ++held.corners[{parameter.part().rows.begin, parameter.part().cols.begin}];
        held.elements += parameter.shape().elements();
      }
    }
  }
  return all;
}

// 8 heads of 8, 2 kv heads, 4 layers; no weights, so that any size will do.
EditedModel& Small(EditedModel& model) {
  return model.Set("hidden_size", 64)
      .Set("num_attention_heads", 8)
      .Set("num_key_value_heads", 2)
      .Set("head_dim", 8)
      .Set("num_hidden_layers", 4)
      .Set("intermediate_size", 96)
      .Set("vocab_size", 250)
      .Set("tie_word_embeddings", false)
      .WithoutWeights();
}

bool EndsWith(const std::string& name, std::string_view end) { return name.ends_with(end); }

TEST(TensorParallel, PartsTileEveryTensor) {
  EditedModel model("llama");
  const std::string path = Small(model).path();
  const auto whole = HeldBy(path, 1, 1);
  ASSERT_GT(whole.size(), 30u);
  for (const int tp : {1, 2, 4, 8}) {
    const auto parts = HeldBy(path, tp, 1);
    ASSERT_EQ(parts.size(), whole.size());
    for (const auto& [name, held] : parts) {
      SCOPED_TRACE(name + ", tp " + std::to_string(tp));
      const int64_t elements = whole.at(name).elements;
      EXPECT_EQ(held.full.elements(), elements);
      // Norms are whole on every rank; two kv heads are repeated for more ranks.
      int64_t copies = 1;
      if (EndsWith(name, "norm.weight")) copies = tp;
      if (EndsWith(name, "k_proj.weight") || EndsWith(name, "v_proj.weight")) {
        copies = std::max(1, tp / 2);
      }
      EXPECT_EQ(held.elements, copies * elements);
      EXPECT_EQ(static_cast<int64_t>(held.corners.size()) * copies, tp);
      for (const auto& [corner, ranks] : held.corners) EXPECT_EQ(ranks, copies);
    }
  }
}

TEST(TensorParallel, RowsColumnsAndVocabulary) {
  EditedModel model("llama");
  const std::string path = Small(model).path();
  for (int rank = 0; rank < 4; ++rank) {
    const auto plan = PlanRank(path, {4, 1, rank});
    ASSERT_TRUE(plan.ok()) << plan.message();
    std::map<std::string, const Parameter*> of;
    for (Module* module : (*plan)->context->modules) {
      for (const Parameter& p : module->parameters()) of[p.path()] = &p;
    }
    const std::string layer = "model.layers.1.";
    EXPECT_EQ(of.at(layer + "self_attn.q_proj.weight")->shape(), (Shape{16, 64}));
    EXPECT_EQ(of.at(layer + "self_attn.k_proj.weight")->shape(), (Shape{8, 64}));
    EXPECT_EQ(of.at(layer + "self_attn.k_proj.weight")->part().rows.begin, rank / 2 * 8);
    EXPECT_EQ(of.at(layer + "self_attn.o_proj.weight")->shape(), (Shape{64, 16}));
    EXPECT_EQ(of.at(layer + "self_attn.o_proj.weight")->part().cols.begin, 16 * rank);
    EXPECT_EQ(of.at(layer + "mlp.up_proj.weight")->shape(), (Shape{24, 64}));
    EXPECT_EQ(of.at(layer + "mlp.down_proj.weight")->shape(), (Shape{64, 24}));
    // 250 = 63 + 63 + 62 + 62
    EXPECT_EQ(of.at("model.embed_tokens.weight")->shape(), (Shape{rank < 2 ? 63 : 62, 64}));
    EXPECT_EQ(of.at("lm_head.weight")->part().rows.begin,
              std::min(rank, 2) * 63 + std::max(0, rank - 2) * 62);
    for (const auto& [key, core] : (*plan)->context->attention_layers) {
      EXPECT_EQ(core->spec().heads, 2);
      EXPECT_EQ(core->spec().kv_heads, 1);
    }
  }
}

// What cannot be shared out is one refusal that says what can.
TEST(TensorParallel, WorldsThatDoNotFit) {
  EditedModel model("llama");
  const std::string path = Small(model).path();
  for (const int tp : {3, 5, 6, 7}) {
    const auto plan = PlanRank(path, {tp, 1, 0});
    ASSERT_FALSE(plan.ok()) << tp;
    EXPECT_EQ(plan.code(), StatusCode::kRefused);
    ExpectWords(plan.message(), {"8 heads cannot be shared out over tp = " + std::to_string(tp),
                                 "fix: --tp 1, 2, 4, 8"});
  }
}

TEST(TensorParallel, LatentAttentionAndExperts) {
  EditedModel model("deepseek_v2");
  const std::string path = model.WithoutWeights().path();
  const auto whole = HeldBy(path, 1, 1);
  const auto parts = HeldBy(path, 2, 1);
  ASSERT_EQ(parts.size(), whole.size());
  for (const auto& [name, held] : parts) {
    SCOPED_TRACE(name);
    const bool repeated = EndsWith(name, "norm.weight") ||
                          EndsWith(name, "kv_a_proj_with_mqa.weight") ||
                          EndsWith(name, "q_a_proj.weight") || EndsWith(name, "mlp.gate.weight");
    EXPECT_EQ(held.elements, (repeated ? 2 : 1) * whole.at(name).elements);
  }
}

TEST(PipelineParallel, StagesCutTheLayers) {
  EditedModel model("llama");
  const std::string path = Small(model).path();
  for (const int pp : {2, 3, 4}) {
    std::set<std::string> seen;
    size_t layers = 0;
    for (int rank = 0; rank < pp; ++rank) {
      const auto plan = PlanRank(path, {1, pp, rank});
      ASSERT_TRUE(plan.ok()) << plan.message();
      layers += (*plan)->context->attention_layers.size();
      EXPECT_EQ((*plan)->cache_specs.size(), (*plan)->context->attention_layers.size());
      for (Module* module : (*plan)->context->modules) {
        for (const Parameter& p : module->parameters()) {
          EXPECT_TRUE(seen.insert(p.path()).second) << p.path() << " on two stages";
          EXPECT_EQ(p.path() == "model.embed_tokens.weight",
                    p.path().find("embed") != p.path().npos);
          if (p.path() == "model.embed_tokens.weight") EXPECT_EQ(rank, 0);
          if (p.path() == "lm_head.weight" || p.path() == "model.norm.weight") {
            EXPECT_EQ(rank, pp - 1);
          }
        }
      }
    }
    EXPECT_EQ(layers, 4u);
    EXPECT_EQ(seen.size(), HeldBy(path, 1, 1).size());
  }
}

TEST(PipelineParallel, ATiedHeadIsOnTheLastStageToo) {
  EditedModel model("llama");
  const std::string path = Small(model).Set("tie_word_embeddings", true).path();
  const auto held = HeldBy(path, 1, 2);
  EXPECT_EQ(held.at("model.embed_tokens.weight").elements, 2 * 250 * 64);
  EXPECT_EQ(HeldBy(path, 1, 1).at("model.embed_tokens.weight").elements, 250 * 64);
}

TEST(PipelineParallel, WhatCannotBeCut) {
  EditedModel model("llama");
  const auto few = PlanRank(Small(model).path(), {1, 5, 0});
  ASSERT_FALSE(few.ok());
  ExpectWords(few.message(), {"pp = 5, but there are 4 layers", "fix: --pp 4"});
  EditedModel two_stacks("t5");
  const auto t5 = PlanRank(two_stacks.path(), {1, 2, 0});
  ASSERT_FALSE(t5.ok());
  ExpectWords(t5.message(), {"two stacks", "fix: --pp 1"});
  EditedModel states("mamba2");
  const auto mamba = PlanRank(states.path(), {2, 1, 0});
  ASSERT_FALSE(mamba.ok());
  ExpectWords(mamba.message(), {"state", "fix: --tp 1"});
  const auto rank = PlanRank(test::DataPath("goldens/llama"), {2, 2, 4});
  ASSERT_FALSE(rank.ok());
  EXPECT_EQ(rank.code(), StatusCode::kUsage);
  ExpectWords(rank.message(), {"rank = 4", "allowed: 0 to 3"});
}

// A world of tp x pp: both at once.
TEST(Worlds, OfBothKinds) {
  EditedModel model("llama");
  const std::string path = Small(model).path();
  const auto whole = HeldBy(path, 1, 1);
  const auto held = HeldBy(path, 2, 4);
  ASSERT_EQ(held.size(), whole.size());
  for (const auto& [name, part] : held) {
    const int copies = EndsWith(name, "norm.weight") ? 2 : 1;
    EXPECT_EQ(part.elements, copies * whole.at(name).elements) << name;
  }
}

TEST(Shares, CoverWithoutGaps) {
  for (int64_t full : {1, 7, 8, 250, 1000}) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      int64_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Share share = DivideRoughly({ranks, 1, rank}, full);
        EXPECT_EQ(share.begin, next);
        EXPECT_LE(share.size, full / ranks + 1);
        next = share.begin + share.size;
        EXPECT_EQ(LayersOfStage({1, ranks, rank}, full).begin, share.begin);
      }
      EXPECT_EQ(next, full);
    }
  }
  EXPECT_EQ(WorldsFor(12), "1, 2, 3, 4, 6, 12");
}

}  // namespace
}  // namespace tenon
