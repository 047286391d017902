// Linear with its segments, the feed-forward parts, the embedding and the rule of the head.
#include "modules/bench.h"
#include "tenon/modules/embedding.h"
#include "tenon/modules/mlp.h"

namespace tenon {
namespace {

using test::ExpectNear;
using test::ExpectWords;
using test::Floats;
using test::ModuleBench;
using test::Recording;
using test::RowOf;
using test::Times;

constexpr int64_t kTokens = 3;

TEST(Linear, SegmentsOfDifferentTypesLieSideBySide) {
  ModuleBench bench;
  bench.Put("l.q_proj.weight", {5, 7}, DType::kBF16);
  bench.Put("l.q_proj.bias", {5}, DType::kBF16);
  bench.Put("l.k_proj.weight", {2, 7}, DType::kF32);
  bench.Put("l.v_proj.weight", {4, 7}, DType::kF16);
  bench.Put("l.v_proj.bias", {4}, DType::kF32);
  bench.Open();
  const Linear linear(bench.At("l"), "qkv_proj", 7,
                      {{"q_proj", 5, true}, {"k_proj", 2, false}, {"v_proj", 4, true}});
  EXPECT_EQ(linear.path(), "l.qkv_proj");
  bench.Load();
  EXPECT_TRUE(bench.index().UnusedStored().empty());
  EXPECT_EQ(linear.matrices()[0].dtype, DType::kBF16);
  EXPECT_EQ(linear.matrices()[2].dtype, DType::kF16);

  const std::vector<float> x = Floats(kTokens * 7, 1);
  Recording recording(kTokens);
  const Value y = linear(recording.pass, recording.Input(x));
  const auto results = recording.runner.Run(
      {y, linear.SegmentOf(y, 0), linear.SegmentOf(y, 1), linear.SegmentOf(y, 2)});
  std::vector<double> whole;
  std::vector<double> parts[3];
  for (size_t t = 0; t < kTokens; ++t) {
    const std::vector<double> row = RowOf(x, t, 7);
    const std::vector<double> segments[3] = {
        Times(bench.Of("l.q_proj.weight"), row, bench.Of("l.q_proj.bias")),
        Times(bench.Of("l.k_proj.weight"), row),
        Times(bench.Of("l.v_proj.weight"), row, bench.Of("l.v_proj.bias"))};
    for (size_t s = 0; s < 3; ++s) {
      whole.insert(whole.end(), segments[s].begin(), segments[s].end());
      parts[s].insert(parts[s].end(), segments[s].begin(), segments[s].end());
    }
  }
  ExpectNear(results[0], whole);
  for (size_t s = 0; s < 3; ++s) ExpectNear(results[s + 1], parts[s]);
}

TEST(Linear, OneMatrixUnderItsOwnName) {
  ModuleBench bench;
  bench.Put("head.weight", {4, 6});
  bench.Put("head.bias", {4});
  bench.Open();
  const Linear linear(bench.At("head"), 6, 4, true);
  EXPECT_EQ(linear.path(), "head");
  ASSERT_EQ(linear.segments().size(), 1u);
  bench.Load();
  const std::vector<float> x = Floats(6, 2);
  Recording recording(1);
  ExpectNear(recording.Run(linear(recording.pass, recording.Input(x))),
             Times(bench.Of("head.weight"), RowOf(x, 0, 6), bench.Of("head.bias")));
}

TEST(Linear, EverySegmentReportsItsOwnError) {
  ModuleBench bench;
  bench.Put("m.gate_proj.weight", {4, 6});
  bench.Put("m.up_proj.weight", {4, 5});
  bench.Open();
  const Linear linear(bench.At("m"), "fused", 6,
                      {{"gate_proj", 4, true}, {"up_proj", 4, false}, {"extra", 1, false}});
  ExpectWords(
      bench.Create().message(),
      {"3 problems", "m.gate_proj.bias: the checkpoint has no such",
       "m.up_proj.weight: shape [4, 5]", "[4, 6]", "m.extra.weight: the checkpoint has no"});
}

TEST(Mlp, GatedAndPlain) {
  ModuleBench bench;
  for (const char* name : {"w1", "w3"}) {
    bench.Put(std::string("g.") + name + ".weight", {5, 4});
    bench.Put(std::string("g.") + name + ".bias", {5});
  }
  bench.Put("g.w2.weight", {4, 5});
  bench.Put("g.w2.bias", {4});
  bench.Put("p.up_proj.weight", {5, 4}, DType::kBF16);
  bench.Put("p.down_proj.weight", {4, 5}, DType::kBF16);
  bench.Open();
  const GatedMlp gated(
      bench.At("g"),
      {.hidden = 4, .intermediate = 5, .has_bias = true, .gate = "w1", .up = "w3", .down = "w2"});
  const PlainMlp plain(bench.At("p"),
                       {.hidden = 4, .intermediate = 5, .activation = Activation::kRelu});
  bench.Load();
  const std::vector<float> x = Floats(kTokens * 4, 3);
  std::vector<double> expected_gated;
  std::vector<double> expected_plain;
  for (size_t t = 0; t < kTokens; ++t) {
    const std::vector<double> row = RowOf(x, t, 4);
    std::vector<double> inner = Times(bench.Of("g.w1.weight"), row, bench.Of("g.w1.bias"));
    const std::vector<double> up = Times(bench.Of("g.w3.weight"), row, bench.Of("g.w3.bias"));
    for (size_t i = 0; i < inner.size(); ++i) inner[i] = test::Silu(inner[i]) * up[i];
    const auto down = Times(bench.Of("g.w2.weight"), inner, bench.Of("g.w2.bias"));
    expected_gated.insert(expected_gated.end(), down.begin(), down.end());
    inner = Times(bench.Of("p.up_proj.weight"), row);
    for (double& v : inner) v = std::max(v, 0.0);
    const auto out = Times(bench.Of("p.down_proj.weight"), inner);
    expected_plain.insert(expected_plain.end(), out.begin(), out.end());
  }
  Recording recording(kTokens);
  const Value input = recording.Input(x);
  const auto results =
      recording.runner.Run({gated(recording.pass, input), plain(recording.pass, input)});
  ExpectNear(results[0], expected_gated);
  ExpectNear(results[1], expected_plain);
}

TEST(Embedding, RowsTimesScale) {
  ModuleBench bench;
  bench.Put("e.weight", {6, 4}, DType::kBF16);
  bench.Open();
  const Embedding embedding(bench.At("e"), 6, 4);
  bench.Load();
  const std::vector<int32_t> ids = {5, 0, 5};
  Recording recording(kTokens);
  std::vector<double> expected;
  for (const int32_t id : ids) {
    for (double v : RowOf(bench.Of("e.weight"), static_cast<size_t>(id), 4)) {
      expected.push_back(v * 2.5);
    }
  }
  ExpectNear(recording.Run(embedding(recording.pass, ids.data(), 2.5f)), expected, 1e-7);
}

TEST(LogitRows, OnlyTheWantedOnes) {
  const std::vector<float> x = Floats(kTokens * 2, 4);
  const std::vector<int32_t> rows = {2, 0};
  Recording some(kTokens);
  some.layout.num_logit_rows = 2;
  some.layout.logit_rows = rows.data();
  const Value picked = LogitRows(some.pass, some.Input(x));
  EXPECT_EQ(some.Run(picked), (std::vector<float>{x[4], x[5], x[0], x[1]}));
  Recording all(kTokens);
  const Value input = all.Input(x);
  EXPECT_EQ(LogitRows(all.pass, input).buffer(), input.buffer()) << "no copy when all are wanted";
}

// --- packed weights

// The options that pack; tables that cannot have nothing to test.
bool WantPacked(LoadContext& context) {
  context.kernels = &test::Kernels();
  context.options.compute.value = Compute::kBf16;
  context.options.packing = WeightPacking::kWherePossible;
  return CanPack(test::Kernels(), DType::kBF16);
}

// Only products read a linear's matrix: packed, the rows are given up. Routers, and matrices whose
// rows others read, stay.
TEST(Linear, PacksWhatOnlyProductsRead) {
  ModuleBench bench;
  for (const char* name : {"plain", "exact", "rows"}) {
    bench.Put(std::string(name) + ".weight", {20, 64}, DType::kBF16);
  }
  if (!WantPacked(bench.Open())) return;
  Linear plain(bench.At("plain"), 64, 20);
  Linear exact(bench.At("exact"), 64, 20);
  exact.KeepExact();
  Linear rows(bench.At("rows"), 64, 20);
  rows.KeepRows();
  bench.Load();
  EXPECT_EQ(plain.parameters()[0].held_form(), HeldForm::kPacked);
  EXPECT_EQ(plain.parameters()[0].held_bytes(), 32 * 64 * 2);
  EXPECT_EQ(plain.parameters()[0].stored_bytes(), 20 * 64 * 2);
  EXPECT_EQ(plain.parameters()[0].view().data(), nullptr);
  for (Linear* kept : {&exact, &rows}) {
    EXPECT_EQ(kept->parameters()[0].held_form(), HeldForm::kRows);
    EXPECT_EQ(kept->parameters()[0].held_bytes(), 20 * 64 * 2);
    EXPECT_NE(kept->matrices()[0].data, nullptr);
  }
  const std::vector<float> x = Floats(2 * 64, 9);
  Recording recording(2);
  std::vector<double> expected = Times(bench.Of("plain.weight"), RowOf(x, 0, 64));
  for (const double y : Times(bench.Of("plain.weight"), RowOf(x, 1, 64))) expected.push_back(y);
  ExpectNear(recording.Run(plain(recording.pass, recording.Input(x))), expected, 2e-2);
}

// The table's rows are still there for the ids.
TEST(Embedding, TiedAndPacked) {
  ModuleBench bench;
  bench.Put("e.weight", {6, 32}, DType::kBF16);
  if (!WantPacked(bench.Open())) return;
  Embedding embedding(bench.At("e"), 6, 32);
  LmHead head(bench.At("lm_head"), embedding, /*tied=*/true);
  bench.Load();
  EXPECT_EQ(embedding.product().form, HeldForm::kPacked);
  EXPECT_EQ(embedding.table().form, HeldForm::kRows);
  const std::vector<int32_t> ids = {5};
  Recording rows(1);
  ExpectNear(rows.Run(embedding(rows.pass, ids.data())), RowOf(bench.Of("e.weight"), 5, 32), 1e-7);
  const std::vector<float> x = Floats(32, 9);
  Recording logits(1);
  ExpectNear(logits.Run(head(logits.pass, logits.Input(x))),
             Times(bench.Of("e.weight"), RowOf(x, 0, 32)), 2e-2);
}

// --- the head

struct HeadCase {
  bool present = false;
  bool tied = false;
  bool bias = false;
};

class HeadTest : public testing::Test {
 protected:
  // Embedding and head over five words of width 4.
  void Build(const HeadCase& c) {
    bench_.Put("e.weight", {5, 4}, DType::kBF16);
    if (c.present) bench_.Put("lm_head.weight", {5, 4});
    if (c.bias) bench_.Put("lm_head.bias", {5});
    bench_.Open();
    Construct(c);
  }
  void Construct(const HeadCase& c) {
    embedding_ = std::make_unique<Embedding>(bench_.At("e"), 5, 4);
    head_ = std::make_unique<LmHead>(bench_.At("lm_head"), *embedding_, c.tied, c.bias);
  }
  void ExpectLogits(const std::string& matrix, const std::vector<float>& bias = {}) {
    const std::vector<float> x = Floats(4, 5);
    Recording recording(1);
    ExpectNear(recording.Run((*head_)(recording.pass, recording.Input(x))),
               Times(bench_.Of(matrix), RowOf(x, 0, 4), bias));
  }
  ModuleBench bench_;
  std::unique_ptr<Embedding> embedding_;
  std::unique_ptr<LmHead> head_;
};

TEST_F(HeadTest, PresentAndUntiedIsItsOwn) {
  Build({.present = true});
  bench_.Load();
  ExpectLogits("lm_head.weight");
  EXPECT_TRUE(bench_.context().ledger.decisions().empty());
}

TEST_F(HeadTest, PresentAndTiedIsItsOwnAndRecorded) {
  Build({.present = true, .tied = true});
  bench_.Load();
  ExpectLogits("lm_head.weight");
  ASSERT_EQ(bench_.context().ledger.decisions().size(), 1u);
  const Decision& decision = bench_.context().ledger.decisions()[0];
  EXPECT_EQ(decision.field, "lm_head");
  EXPECT_EQ(decision.requested, "tied");
  EXPECT_EQ(decision.resolved, "own");
}

TEST_F(HeadTest, AbsentAndTiedIsTheEmbeddings) {
  Build({.tied = true});
  bench_.Load();
  ExpectLogits("e.weight");
  EXPECT_TRUE(head_->parameters().empty()) << "nothing is held twice";
}

TEST_F(HeadTest, AbsentAndTiedWithABiasOfItsOwn) {
  Build({.tied = true, .bias = true});
  bench_.Load();
  ExpectLogits("e.weight", bench_.Of("lm_head.bias"));
}

TEST_F(HeadTest, PresentWithABias) {
  Build({.present = true, .bias = true});
  bench_.Load();
  ExpectLogits("lm_head.weight", bench_.Of("lm_head.bias"));
}

TEST_F(HeadTest, AbsentAndUntiedIsAnError) {
  Build({});
  const Status status = bench_.Create();
  EXPECT_EQ(status.code(), StatusCode::kRefused);
  ExpectWords(status.message(), {"lm_head.weight: absent", "tie_word_embeddings = false", "fix:"});
}

TEST_F(HeadTest, TiedWithoutWeights) {
  Construct({.tied = true});
  ASSERT_TRUE(bench_.Create().ok());
  EXPECT_TRUE(head_->parameters().empty());
}

TEST_F(HeadTest, UntiedWithoutWeights) {
  bench_.context().default_dtype = DType::kF16;
  Construct({.tied = false});
  ASSERT_TRUE(bench_.Create().ok());
  ASSERT_EQ(head_->parameters().size(), 1u);
  EXPECT_EQ(head_->parameters()[0].held_bytes(), 5 * 4 * 2);
}

}  // namespace
}  // namespace tenon
