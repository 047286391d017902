// RopeTable against the formulas, its regimes by total length, and the step's angles. And the table
// of attention layers.
#include "tenon/modules/rope_table.h"

#include "modules/bench.h"
#include "tenon/modules/attention.h"
#include "tenon/ops/kernel_choice.h"

namespace tenon {
namespace {

using test::D;
using test::Recording;

// theta^(-2i / dim), i < dim / 2.
double Frequency(double theta, int64_t dim, int64_t i) {
  return std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
}

void ExpectFrequencies(const RopeTable& rope, int64_t regime, double theta, double divisor = 1) {
  const int64_t half = rope.rotary_dim() / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double expected = Frequency(theta, rope.rotary_dim(), i) / divisor;
    EXPECT_NEAR(D(rope.table().inv_freq[regime * half + i]), expected, 1e-6 * expected) << i;
  }
}

TEST(RopeTable, DefaultIsTheClosedForm) {
  LoadContext context;
  const RopeTable rope(Scope(context, ""), {.theta = 500000}, 10, 64);
  EXPECT_EQ(rope.rotary_dim(), 10);
  EXPECT_FALSE(rope.DependsOnLength());
  EXPECT_FALSE(rope.FixedAtAdmission());
  EXPECT_EQ(rope.KeyOf(1), rope.KeyOf(100000));
  ExpectFrequencies(rope, 0, 500000);
  EXPECT_EQ(rope.table().attention_factor[0], 1);
  EXPECT_EQ(context.ropes, (std::vector<RopeTable*>{const_cast<RopeTable*>(&rope)}));
}

TEST(RopeTable, LinearDividesEveryFrequency) {
  LoadContext context;
  const RopeTable rope(Scope(context, ""), {.type = RopeType::kLinear, .factor = 4}, 8, 64);
  EXPECT_FALSE(rope.DependsOnLength());
  ExpectFrequencies(rope, 0, 10000, 4);
}

// theta * (factor * n / max - (factor - 1))^(dim / (dim - 2)) beyond the trained length.
TEST(RopeTable, DynamicStretchesItsBaseWithTheLength) {
  constexpr int64_t kMax = 64;
  LoadContext context;
  RopeTable rope(Scope(context, ""), {.type = RopeType::kDynamic, .factor = 2}, 8, kMax);
  EXPECT_TRUE(rope.DependsOnLength());
  EXPECT_TRUE(rope.FixedAtAdmission());
  EXPECT_EQ(rope.KeyOf(1), rope.KeyOf(kMax));
  EXPECT_NE(rope.KeyOf(kMax), rope.KeyOf(kMax + 1));
  EXPECT_NE(rope.KeyOf(100), rope.KeyOf(101));
  rope.SetRegime(3, 160);
  rope.SetRegime(5, 100);
  const auto base = [](double n) { return 10000 * std::pow(2 * n / kMax - 1, 8.0 / 6.0); };
  ExpectFrequencies(rope, 0, 10000);
  ExpectFrequencies(rope, 3, base(160));
  ExpectFrequencies(rope, 5, base(100));
  rope.SetRegime(3, kMax);
  ExpectFrequencies(rope, 3, 10000);
}

TEST(RopeTable, LongropeHasAShortAndALongList) {
  LoadContext context;
  RopeTable rope(Scope(context, ""),
                 {.type = RopeType::kLongrope,
                  .original_max_position = 32,
                  .short_factor = {1, 2},
                  .long_factor = {4, 8}},
                 4, 128);
  EXPECT_TRUE(rope.DependsOnLength());
  EXPECT_FALSE(rope.FixedAtAdmission()) << "crossing recomputes the cache";
  EXPECT_EQ(rope.KeyOf(1), rope.KeyOf(32));
  EXPECT_NE(rope.KeyOf(32), rope.KeyOf(33));
  EXPECT_EQ(rope.KeyOf(33), rope.KeyOf(128));
  const double factor = std::sqrt(1 + std::log(128.0 / 32) / std::log(32.0));
  for (const auto& [length, divide] : {std::pair{32, std::pair{1, 2}}, {33, {4, 8}}}) {
    rope.SetRegime(0, length);
    EXPECT_NEAR(D(rope.table().inv_freq[0]), 1.0 / divide.first, 1e-7);
    EXPECT_NEAR(D(rope.table().inv_freq[1]), 0.01 / divide.second, 1e-8);
    EXPECT_NEAR(D(rope.table().attention_factor[0]), factor, 1e-6);
  }
}

TEST(Forward, OneTableOfAnglesPerRope) {
  LoadContext context;
  const RopeTable one(Scope(context, ""), {}, 4, 64);
  const RopeTable two(Scope(context, ""), {.theta = 100}, 4, 64);
  const std::vector<int32_t> positions = {0, 7, 50};
  Recording recording(3);
  recording.layout.positions = positions.data();
  const Value angles = recording.pass.Angles(one);
  const size_t records = recording.runner.tape().records().size();
  EXPECT_EQ(recording.pass.Angles(one).buffer(), angles.buffer());
  EXPECT_EQ(recording.runner.tape().records().size(), records) << "made once";
  const Value other = recording.pass.Angles(two);
  EXPECT_NE(other.buffer(), angles.buffer());
  const auto results = recording.runner.Run({angles, other});
  const double thetas[] = {10000, 100};
  for (size_t r = 0; r < 2; ++r) {
    for (size_t t = 0; t < positions.size(); ++t) {
      for (int64_t i = 0; i < 2; ++i) {
        const double angle = positions[t] * Frequency(thetas[r], 4, i);
        const auto at = t * 4 + static_cast<size_t>(i);
        EXPECT_NEAR(D(results[r][at]), std::cos(angle), 1e-5);
        EXPECT_NEAR(D(results[r][at + 2]), std::sin(angle), 1e-5);
      }
    }
  }
}

TEST(AttentionCore, LayersOfOneIndexStayApart) {
  LoadContext context;
  context.options.kv_dtype.value = DType::kBF16;
  const AttentionSpec spec{
      .layer = 3, .heads = 4, .kv_heads = 2, .head_dim = 16, .v_head_dim = 16, .scale = 0.25f};
  const AttentionCore self(Scope(context, "layers.3.self"), spec);
  const AttentionCore cross(Scope(context, "layers.3.cross"), spec);
  const AttentionCore third(Scope(context, "layers.3.third"), spec);
  ASSERT_EQ(context.attention_layers.size(), 3u);
  EXPECT_EQ(context.attention_layers.at("3"), &self);
  EXPECT_EQ(context.attention_layers.at("3_0"), &cross);
  EXPECT_EQ(context.attention_layers.at("3_1"), &third);
  EXPECT_EQ(self.spec().kv_dtype, DType::kBF16);
  // Rows of 2 * 2 * 16 bf16 = 128 bytes: no page of at most 256 tokens reaches 64 KiB.
  EXPECT_EQ(self.spec().page_tokens, 256);
  context.options.page_tokens.value = 32;
  const AttentionCore paged(Scope(context, "layers.4"), spec);
  EXPECT_EQ(paged.spec().page_tokens, 32);
}

TEST(AttentionCore, LayersWithAndWithoutAWindowHaveTheirOwnDTypes) {
  const BackendTable table = BuiltinBackends(KernelsFor(Isa::kReference));
  LoadContext context;
  context.backends = &table;
  context.options.kv_dtype.value = DType::kBF16;
  context.options.window_kv_dtype = DType::kI8;
  AttentionSpec spec{
      .layer = 0, .heads = 4, .kv_heads = 2, .head_dim = 16, .v_head_dim = 16, .scale = 0.25f};
  AttentionCore full(Scope(context, "layers.0"), spec);
  spec.window = 32;
  AttentionCore window(Scope(context, "layers.1"), spec);
  spec.window.reset();
  spec.chunk = 64;
  AttentionCore chunk(Scope(context, "layers.2"), spec);
  spec.kind = AttentionKind::kEncoder;
  const AttentionCore encoder(Scope(context, "layers.3"), spec);
  EXPECT_EQ(full.spec().kv_dtype, DType::kBF16);
  EXPECT_EQ(full.spec().other_kv_dtype, DType::kI8);
  EXPECT_EQ(window.spec().kv_dtype, DType::kI8);
  EXPECT_EQ(window.spec().other_kv_dtype, DType::kBF16);
  EXPECT_EQ(chunk.spec().kv_dtype, DType::kI8);
  EXPECT_EQ(encoder.spec().other_kv_dtype, std::nullopt) << "it caches nothing";
  for (AttentionCore* core : {&full, &window, &chunk}) core->SelectAttention(context);
  EXPECT_TRUE(context.errors.empty());
  ASSERT_EQ(context.caches.size(), 3u);
  EXPECT_EQ(context.caches[0].spec.row_bytes, 2 * 2 * 16 * 2);
  EXPECT_EQ(context.caches[1].spec.row_bytes, 2 * 2 * (16 + 4));
  EXPECT_EQ(context.caches[1].spec.dtype, DType::kI8);
  EXPECT_FALSE(context.caches[0].spec.SameGroup(context.caches[1].spec));
  // The oracle holds all layers alike.
  context.options.attention_backend = {"VANILLA", {}};
  full.SelectAttention(context);
  ASSERT_EQ(context.errors.size(), 2u) << "both phases";
  EXPECT_NE(context.errors[0].find("mixed_kv = bf16, int8 in other layers"), std::string::npos)
      << context.errors[0];
}

}  // namespace
}  // namespace tenon
