// Which scheme each matrix is given: keys of layers, excludes, heads and routers, and keys that
// mean nothing. The rules are those of reference/trtllm.md 4.3 and 4.4, each matrix by itself.
#include "tenon/modules/quantise.h"

#include <chrono>
#include <cstdio>

#include "modules/bench.h"
#include "tenon/modules/embedding.h"
#include "tenon/modules/linear_method.h"
#include "tenon/modules/mlp.h"
#include "tenon/modules/moe.h"

namespace tenon {
namespace {

using test::ExpectWords;
using test::ModuleBench;
using Match = QuantKey::Match;

// Schemes that are told apart by their block_rows.
QuantScheme Scheme(int64_t block_rows) {
  return {.method = "fp8",
          .codes = DType::kF8E4M3,
          .block_rows = block_rows,
          .scale_names = {"weight_scale_inv", "weight_scale"}};
}

struct Rules : QuantRules {
  Rules() {
    method = QuantMethod::kFp8;
    origin = {Origin::Kind::kCheckpoint, "config.json: quantization_config"};
    global = Scheme(128);
  }
  Rules& Layer(const std::string& key, int64_t block_rows, Match match = Match::kName) {
    layers.push_back({{key, match}, Scheme(block_rows)});
    return *this;
  }
  Rules& Exclude(const std::string& key, Match match = Match::kParts) {
    excludes.push_back({key, match});
    return *this;
  }
};

// block_rows of the scheme that a matrix is given; 0: plain.
int64_t Given(const QuantRules& rules, const LinearName& name) {
  LoadContext context;
  Quantiser quantiser(context, rules, {});
  return quantiser.SchemeOf(name)->block_rows;
}

constexpr const char* kAttention = "model.layers.0.self_attn";
LinearName Part(const std::string& parent, const std::string& name, const std::string& fused) {
  return {.path = parent + "." + name, .fused = parent + "." + fused, .experts = {}};
}

// --- reference/trtllm.md 4.3

TEST(LayerKeys, NoMatchKeepsTheGlobalScheme) {
  Rules rules;
  rules.Layer("model.layers.1.mlp.down_proj", 1);
  EXPECT_EQ(Given(rules, {.path = "model.layers.0.mlp.down_proj"}), 128);
}

TEST(LayerKeys, OtherLinearsByTheirExactName) {
  Rules rules;
  rules.Layer("model.layers.0.mlp.down_proj", 1);
  EXPECT_EQ(Given(rules, {.path = "model.layers.0.mlp.down_proj"}), 1);
  EXPECT_EQ(Given(rules, {.path = "tower.model.layers.0.mlp.down_proj"}), 128);
  EXPECT_EQ(Given(rules, {.path = "model.layers.0.mlp.down_proj.inner"}), 128);
}

TEST(LayerKeys, PartsOfFusedLayersByTheirOwnNameThenByTheFusedOne) {
  Rules own;
  own.Layer("model.layers.0.mlp.gate_proj", 1).Layer("model.layers.0.mlp.up_proj", 2);
  EXPECT_EQ(Given(own, Part("model.layers.0.mlp", "gate_proj", "gate_up_proj")), 1);
  EXPECT_EQ(Given(own, Part("model.layers.0.mlp", "up_proj", "gate_up_proj")), 2);
  Rules fused;
  fused.Layer("model.layers.0.mlp.gate_up_proj", 3);
  EXPECT_EQ(Given(fused, Part("model.layers.0.mlp", "up_proj", "gate_up_proj")), 3);
  Rules qkv;
  qkv.Layer("model.layers.0.self_attn.q_proj", 1).Layer("model.layers.0.self_attn.qkv_proj", 4);
  EXPECT_EQ(Given(qkv, Part(kAttention, "q_proj", "qkv_proj")), 1);
  EXPECT_EQ(Given(qkv, Part(kAttention, "k_proj", "qkv_proj")), 4);
  // A key of q alone says nothing of k and v, which may be stored in another format.
  Rules q;
  q.Layer("model.layers.0.self_attn.q_proj", 1);
  EXPECT_EQ(Given(q, Part(kAttention, "v_proj", "qkv_proj")), 128);
}

TEST(LayerKeys, MlaByItsOwnParts) {
  Rules rules;
  rules.Layer("model.layers.0.self_attn.kv_a_proj_with_mqa", 1);
  EXPECT_EQ(Given(rules, {.path = "model.layers.0.self_attn.kv_a_proj_with_mqa"}), 1);
  EXPECT_EQ(Given(rules, {.path = "model.layers.0.self_attn.kv_b_proj"}), 128);
}

TEST(LayerKeys, ExpertsByTheirOwnNameTheirModuleOrOneOfThem) {
  const auto expert = [](int index) {
    return LinearName{.path = "model.layers.3.mlp.experts." + std::to_string(index) + ".up_proj",
                      .fused = {},
                      .experts = "model.layers.3.mlp.experts"};
  };
  for (const char* key :
       {"model.layers.3.mlp", "model.layers.3.mlp.experts", "model.layers.3.mlp.experts.1",
        "model.layers.3.mlp.experts.1.up_proj", "model.layers.3.mlp.experts.0.gate_proj"}) {
    Rules rules;
    rules.Layer(key, 1);
    EXPECT_EQ(Given(rules, expert(1)), 1) << key;
  }
  Rules own;
  own.Layer("model.layers.3.mlp", 1).Layer("model.layers.3.mlp.experts.1.up_proj", 2);
  EXPECT_EQ(Given(own, expert(1)), 2) << "the nearer key";
  EXPECT_EQ(Given(own, expert(0)), 1);
  Rules other;
  other.Layer("model.layers.3.mlp.shared_experts.up_proj", 1).Layer("model.layers.33.mlp", 1);
  EXPECT_EQ(Given(other, expert(1)), 128);
}

TEST(LayerKeys, NamesBeforePatternsThenTheFirst) {
  Rules rules;
  rules.Layer("re:.*proj$", 1, Match::kRegex)
      .Layer("re:.*down_proj$", 2, Match::kRegex)
      .Layer("a.down_proj", 3);
  EXPECT_EQ(Given(rules, {.path = "a.down_proj"}), 3);
  EXPECT_EQ(Given(rules, {.path = "b.down_proj"}), 1);
}

// --- 4.4

TEST(Excludes, BeatKeysOfLayers) {
  Rules rules;
  rules.Layer("model.layers.0.mlp.down_proj", 1).Exclude("model.layers.0");
  EXPECT_EQ(Given(rules, {.path = "model.layers.0.mlp.down_proj"}), 0);
}

TEST(Excludes, OfOnePartLeaveTheOthersOfTheFusedOneAllOfThem) {
  Rules one;
  one.Exclude("model.layers.0.self_attn.k_proj");
  EXPECT_EQ(Given(one, Part(kAttention, "q_proj", "qkv_proj")), 128);
  EXPECT_EQ(Given(one, Part(kAttention, "k_proj", "qkv_proj")), 0);
  EXPECT_EQ(Given(one, Part(kAttention, "v_proj", "qkv_proj")), 128);
  Rules all;
  all.Exclude("*.qkv_proj", Match::kGlob);
  for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
    EXPECT_EQ(Given(all, Part(kAttention, part, "qkv_proj")), 0) << part;
  }
}

TEST(Excludes, TheHeadAndRouters) {
  ModuleBench bench;
  bench.Put("scaled.weight", {2, 3});
  bench.Put("scaled.weight_scale", {1});
  bench.Put("bare.weight", {2, 3});
  bench.Open();
  const auto given = [&](const QuantRules& rules, const std::string& path) {
    Quantiser quantiser(bench.context(), rules, {});
    return quantiser
        .SchemeOf({.path = path, .fused = {}, .experts = {}, .only_where_scaled = true})
        ->block_rows;
  };
  EXPECT_EQ(given(Rules(), "scaled"), 128) << "the file has scales for it";
  EXPECT_EQ(given(Rules(), "bare"), 0);
  EXPECT_EQ(given(Rules().Layer("bare", 1), "bare"), 1) << "a key of its own";
  EXPECT_EQ(given(Rules().Exclude("scaled"), "scaled"), 0);
}

TEST(Excludes, ATiedHeadIsTheEmbeddingAndNeverQuantised) {
  ModuleBench bench;
  bench.Put("e.weight", {4, 6});
  bench.Open();
  Embedding embedding(bench.At("e"), 4, 6);
  LmHead head(bench.At("lm_head"), embedding, true);
  const Rules rules;
  QuantiseModules(bench.context(), rules, {});
  ASSERT_TRUE(bench.Create().ok());
  EXPECT_TRUE(head.parameters().empty());
  for (const Decision& decision : bench.context().ledger.decisions()) {
    EXPECT_NE(decision.requested, "lm_head");
  }
}

// --- names

TEST(Keys, InTheSpellingOfTheFile) {
  ModuleBench bench;
  bench.names()
      .WrapperPrefixes()
      .Prefix("model.language_model.", "model.")
      .Add("model.layers.{}.attn.q.weight", "blk.{}.attn_q.weight");
  bench.Put("blk.0.attn_q.weight", {2, 3});
  bench.Put("module.model.layers.0.o.weight", {2, 3});
  bench.Open();
  for (const char* key : {"blk.0.attn_q", "model.layers.0.attn.q", "module.blk.0.attn_q"}) {
    const QuantRules rules = Rules().Layer(key, 1);
    Quantiser quantiser(bench.context(), rules, {});
    EXPECT_EQ(quantiser.SchemeOf({.path = "model.layers.0.attn.q"})->block_rows, 1) << key;
  }
  for (const char* key : {"module.model.layers.0.o", "model.layers.0.o",
                          "model.language_model.layers.0.o", "_orig_mod.model.layers.0.o"}) {
    const QuantRules rules = Rules().Layer(key, 1);
    Quantiser quantiser(bench.context(), rules, {});
    EXPECT_EQ(quantiser.SchemeOf({.path = "model.layers.0.o"})->block_rows, 1) << key;
  }
  for (const char* glob : {"model.language_model.layers.0.*", "module.model.layers.?.o"}) {
    const QuantRules rules = Rules().Exclude(glob, Match::kGlob);
    Quantiser quantiser(bench.context(), rules, {});
    EXPECT_TRUE(quantiser.SchemeOf({.path = "model.layers.0.o"})->is_plain()) << glob;
  }
  // Patterns are written for the names in the file.
  const QuantRules of_pattern = Rules().Exclude("re:module\\..*o$", Match::kRegex);
  Quantiser pattern(bench.context(), of_pattern, {});
  EXPECT_TRUE(pattern.SchemeOf({.path = "model.layers.0.o"})->is_plain());
}

// Names, keys and what the phase says of them.
std::string ErrorsWith(const QuantRules& rules, const std::vector<std::string>& skippable = {}) {
  ModuleBench bench;
  bench.Put("model.layers.0.mlp.down_proj.weight", {3, 2});
  bench.Put("model.layers.0.norm.weight", {3});
  bench.Put("tower.0.proj.weight", {3, 2});
  bench.Open();
  const Linear linear(bench.At("model.layers.0.mlp.down_proj"), 2, 3);
  QuantiseModules(bench.context(), rules, skippable);
  return bench.context().Errors().message();
}

TEST(Keys, ThatMatchNothingAreErrorsWithNearNames) {
  const std::string text = ErrorsWith(
      Rules().Layer("model.layers.0.mlp.dwn_proj", 1).Exclude("*nothing*", Match::kGlob));
  ExpectWords(text, {"2 problems", "exclude '*nothing*' matches no module",
                     "layer 'model.layers.0.mlp.dwn_proj' matches no module; nearest: "
                     "model.layers.0.mlp.down_proj",
                     "set by config.json: quantization_config", "fix:"});
  // A scheme for what has none.
  ExpectWords(ErrorsWith(Rules().Layer("model.layers.0.norm", 1)), {"matches no module"});
  ExpectWords(ErrorsWith(Rules().Layer("tower.0.proj", 1)), {"matches no module"});
}

TEST(Keys, ThatMayMatchNoMatrix) {
  Rules implied;
  implied.excludes.push_back({"lm_head", Match::kParts, true});
  EXPECT_EQ(ErrorsWith(implied), "") << "the producer's default";
  EXPECT_EQ(ErrorsWith(Rules().Exclude("model.layers.0.norm")), "") << "a tensor of the file";
  EXPECT_EQ(ErrorsWith(Rules().Layer("tower.0.proj", 1), {"tower.*"}), "") << "a skipped one";
  EXPECT_EQ(ErrorsWith(Rules().Exclude("model.layers.9.eh_proj"), {"model.layers.9.*"}), "")
      << "skipped and not even there";
}

TEST(Keys, APatternThatGivesUpIsOneError) {
  const std::string text = ErrorsWith(Rules().Exclude("re:([a-z_.0-9]+)+[XY]$", Match::kRegex));
  ExpectWords(text, {"gave up on 'model.layers.0.mlp.down_proj'"});
  EXPECT_EQ(text.find("problems"), std::string::npos) << text;
}

// --- what is recorded

TEST(QuantiseModules, RecordsLayersThatAreDecidedAlikeOnce) {
  ModuleBench bench;
  std::vector<std::unique_ptr<GatedMlp>> mlps;
  for (int i = 0; i < 3; ++i) {
    mlps.push_back(
        std::make_unique<GatedMlp>(bench.At("l") / i, MlpOptions{.hidden = 4, .intermediate = 5}));
  }
  Rules rules;
  rules.Exclude("l.1.up_proj");
  QuantiseModules(bench.context(), rules, {});
  EXPECT_TRUE(bench.context().errors.empty());
  std::vector<std::string> lines;
  for (const Decision& d : bench.context().ledger.decisions()) {
    if (d.field == "quantisation") lines.push_back(d.requested + ": " + d.resolved + " " + d.why);
  }
  ASSERT_EQ(lines.size(), 4u);
  ExpectWords(lines[0], {"l.{}.gate_proj: fp8", "the scheme for all layers; 3 matrices"});
  ExpectWords(lines[1], {"l.{}.up_proj: fp8", "2 matrices"});
  ExpectWords(lines[2], {"l.{}.down_proj: fp8", "3 matrices"});
  ExpectWords(lines[3], {"l.{}.up_proj: plain", "excluded; 1 matrices"});
}

// 58 layers of 256 experts, each matrix with a key of its own, and lists of patterns beside.
TEST(QuantiseModules, CostIsLinearInTheMatrices) {
  const auto run = [](int layers) {
    LoadContext context;
    Rules rules;
    std::vector<std::unique_ptr<Moe>> modules;
    MoeOptions options{.hidden = 8, .intermediate = 8};
    options.routing.experts = 256;
    for (int l = 0; l < layers; ++l) {
      const std::string mlp = "model.layers." + std::to_string(l) + ".mlp";
      modules.push_back(std::make_unique<Moe>(Scope(context, mlp), options));
      for (int e = 0; e < 256; ++e) {
        for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
          rules.Layer(mlp + ".experts." + std::to_string(e) + "." + part, 1);
        }
      }
      rules.Exclude(mlp + ".gate*", Match::kGlob);
    }
    rules.Exclude("*.mlp.gate", Match::kGlob);
    const auto begin = std::chrono::steady_clock::now();
    Quantiser quantiser(context, rules, {});
    for (Module* module : context.modules) module->Quantise(quantiser);
    quantiser.Finish();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_TRUE(context.errors.empty()) << context.Errors().message();
    const int64_t matrices = int64_t{layers} * (256 * 3 + 1);
    std::printf("%lld matrices, %lld comparisons, %.3f s\n", static_cast<long long>(matrices),
                static_cast<long long>(quantiser.comparisons()), took.count());
    return static_cast<double>(quantiser.comparisons()) / static_cast<double>(matrices);
  };
  const double few = run(5);
  const double many = run(58);
  EXPECT_NEAR(many, few, 0.1);
  EXPECT_LT(many, 20);
}

}  // namespace
}  // namespace tenon
