#include "tenon/checkpoint/name_table.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "checkpoint/names.h"

namespace tenon {
namespace {

// All canonical names of a stored one (slices 0 .. count - 1).
std::vector<std::string> Canonical(const NameTable& table, std::string_view stored, int count = 1) {
  std::vector<std::string> names;
  const std::string normalised = table.Normalise(stored);
  for (const NameTable::Match& match : table.MatchStored(normalised)) {
    for (int i = 0; i < (match.row->slice_placeholder >= 0 ? count : 1); ++i) {
      names.push_back(table.CanonicalName(match, i));
    }
  }
  if (names.empty()) names.push_back(normalised);
  return names;
}
using Names = std::vector<std::string>;

TEST(NameTable, EmptyTableIsTheIdentity) {
  const NameTable table;
  EXPECT_EQ(Canonical(table, "model.layers.3.x.weight"), Names{"model.layers.3.x.weight"});
  EXPECT_FALSE(table.StoredOf("model.layers.3.x.weight").has_value());
}

TEST(NameTable, NumbersPairUp) {
  const NameTable table = test::GgufNames(4, 2, true);
  EXPECT_EQ(Canonical(table, "blk.17.attn_q.weight"),
            Names{"model.layers.17.self_attn.q_proj.weight"});
  EXPECT_EQ(Canonical(table, "blk.2.ffn_up_exps.weight", 3),
            (Names{"model.layers.2.mlp.experts.0.up_proj.weight",
                   "model.layers.2.mlp.experts.1.up_proj.weight",
                   "model.layers.2.mlp.experts.2.up_proj.weight"}));
  const auto stored = table.StoredOf("model.layers.2.mlp.experts.11.up_proj.weight");
  ASSERT_TRUE(stored.has_value());
  EXPECT_EQ(stored->name, "blk.2.ffn_up_exps.weight");
  EXPECT_EQ(stored->slice, 11);
  EXPECT_EQ(stored->row->transform[0].kind, TransformStep::Kind::kSlice);
  EXPECT_FALSE(table.StoredOf("model.layers.x.mlp.up_proj.weight").has_value());
}

TEST(NameTable, OnlyWholePartsAreNumbers) {
  NameTable table;
  table.Add("a.{}.w1.weight", "b.{}.w1.weight");
  EXPECT_EQ(Canonical(table, "b.5.w1.weight"), Names{"a.5.w1.weight"});
  EXPECT_EQ(Canonical(table, "b.5.w2.weight"), Names{"b.5.w2.weight"});
  EXPECT_EQ(Canonical(table, "b.05.w1.weight"), Names{"b.05.w1.weight"});  // would not come back
  EXPECT_EQ(Canonical(table, "b.12345678901.w1.weight"), Names{"b.12345678901.w1.weight"});
  EXPECT_EQ(Canonical(table, "b..w1.weight"), Names{"b..w1.weight"});
  EXPECT_EQ(Canonical(table, ""), Names{""});
}

TEST(NameTable, LiteralNumbersInPatterns) {
  NameTable table;  // as T5 names its blocks
  table.Add("enc.{}.attn.q", "block.{}.layer.0.q").Add("enc.{}.mlp.q", "block.{}.layer.1.q");
  EXPECT_EQ(Canonical(table, "block.3.layer.0.q"), Names{"enc.3.attn.q"});
  EXPECT_EQ(Canonical(table, "block.3.layer.1.q"), Names{"enc.3.mlp.q"});
  EXPECT_EQ(Canonical(table, "block.3.layer.2.q"), Names{"block.3.layer.2.q"});
  EXPECT_EQ(table.StoredOf("enc.7.mlp.q")->name, "block.7.layer.1.q");
}

TEST(NameTable, MoreLiteralRowsOverride) {
  NameTable table;  // per-layer heads
  table.Add("m.{}.q", "blk.{}.q", {TransformStep::PermuteQk(8)})
      .Add("m.3.q", "blk.3.q", {TransformStep::PermuteQk(4)});
  EXPECT_EQ(table.MatchStored("blk.2.q")[0].row->transform[0].heads, 8);
  ASSERT_EQ(table.MatchStored("blk.3.q").size(), 1u);
  EXPECT_EQ(table.MatchStored("blk.3.q")[0].row->transform[0].heads, 4);
  EXPECT_EQ(table.StoredOf("m.3.q")->row->transform[0].heads, 4);
  EXPECT_EQ(table.StoredOf("m.4.q")->row->transform[0].heads, 8);
}

TEST(NameTable, FusedTensorHasSeveralRows) {
  NameTable table;
  const char* names[] = {"q", "k", "v"};
  for (int i = 0; i < 3; ++i) {
    table.Add(std::string("h.{}.") + names[i] + "_proj.weight", "h.{}.c_attn.weight",
              {TransformStep::Transpose(), TransformStep::RowPart({8, 8, 8}, i)});
  }
  EXPECT_EQ(Canonical(table, "h.2.c_attn.weight"),
            (Names{"h.2.q_proj.weight", "h.2.k_proj.weight", "h.2.v_proj.weight"}));
  EXPECT_EQ(table.StoredOf("h.2.v_proj.weight")->name, "h.2.c_attn.weight");
  EXPECT_EQ(table.CanonicalModules("h.2.c_attn"),
            (Names{"h.2.q_proj", "h.2.k_proj", "h.2.v_proj"}));
  EXPECT_EQ(table.CanonicalModules("lm_head"), Names{"lm_head"});
}

TEST(NameTable, ModulesOfSlicesKeepThePlaceholder) {
  const NameTable table = test::GgufNames(4, 2, false);
  EXPECT_EQ(table.CanonicalModules("blk.2.ffn_up_exps"),
            Names{"model.layers.2.mlp.experts.{}.up_proj"});
}

TEST(NameTable, Prefixes) {
  NameTable table;
  table.WrapperPrefixes()
      .Prefix("model.language_model.", "model.")
      .Prefix("", "model.", {"model.", "lm_head."})
      .Add("model.layers.{}.a", "model.layers.{}.b");
  EXPECT_EQ(table.Normalise("_orig_mod.module.model.x"), "model.x");
  EXPECT_EQ(table.Normalise("model.language_model.layers.0.x"), "model.layers.0.x");
  EXPECT_EQ(table.Normalise("layers.0.x"), "model.layers.0.x");
  EXPECT_EQ(table.Normalise("lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(Canonical(table, "module.layers.4.b"), Names{"model.layers.4.a"});
  EXPECT_EQ(table.CanonicalModules("module.layers.4.q_proj"), Names{"model.layers.4.q_proj"});
}

TEST(NameTable, Suffixes) {
  NameTable table;
  table.Suffix(".gamma", ".weight").Suffix(".beta", ".bias");
  EXPECT_EQ(table.Normalise("encoder.LayerNorm.gamma"), "encoder.LayerNorm.weight");
  EXPECT_EQ(table.Normalise("encoder.LayerNorm.beta"), "encoder.LayerNorm.bias");
  EXPECT_EQ(table.Normalise("gamma"), "gamma");
  EXPECT_EQ(table.Normalise("x.gamma.y"), "x.gamma.y");
}

TEST(NameTable, PlaceholderTextInAFileIsNoPattern) {
  const NameTable table = test::GgufNames(4, 2, false);
  EXPECT_EQ(Canonical(table, "blk.{}.attn_v.weight"),
            Names{"model.layers.{}.self_attn.v_proj.weight"});
  EXPECT_EQ(Canonical(table, "blk{}.3"), Names{"blk{}.3"});
}

TEST(NameTable, EveryRowRoundTrips) {
  EXPECT_TRUE(rc::check("stored -> canonical -> stored", [] {
    const NameTable table = test::GgufNames(4, 2, true);
    const auto layer = std::to_string(*rc::gen::inRange(0, 1000));
    const int slice = *rc::gen::inRange(0, 500);
    for (const char* part : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up_exps",
                             "ffn_down_exps", "ffn_gate_inp", "attn_norm"}) {
      const std::string stored = "blk." + layer + "." + part + ".weight";
      const auto matches = table.MatchStored(stored);
      RC_ASSERT(matches.size() == 1u);
      const std::string canonical = table.CanonicalName(matches[0], slice);
      const auto back = table.StoredOf(canonical);
      RC_ASSERT(back.has_value());
      RC_ASSERT(back->name == stored);
      RC_ASSERT(back->row == matches[0].row);
      if (matches[0].row->slice_placeholder >= 0) RC_ASSERT(back->slice == slice);
    }
  }));
}

}  // namespace
}  // namespace tenon
