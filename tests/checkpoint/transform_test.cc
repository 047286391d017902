// Transforms against brute force on element indices, against numpy's bytes, and their inverses.
#include "tenon/checkpoint/transform.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <numeric>

#include "checkpoint/fixtures.h"
#include "tenon/checkpoint/tensor_index.h"

namespace tenon {
namespace {

constexpr ElementLayout kHalf{1, 2};  // two bytes an element

// Elements 0, 1, 2, ... of a stored tensor, of T's size.
template <typename T>
std::vector<T> Counting(int64_t elements) {
  std::vector<T> values(static_cast<size_t>(elements));
  std::iota(values.begin(), values.end(), T{0});
  return values;
}

std::vector<uint16_t> Apply(const Shape& stored, const Transform& transform, int64_t index = 0) {
  const auto values = Counting<uint16_t>(stored.elements());
  const Gather gather = *Gather::Bind(kHalf, stored, transform, index);
  std::vector<uint16_t> out(static_cast<size_t>(gather.shape().elements()));
  gather.Read(reinterpret_cast<const std::byte*>(values.data()),
              reinterpret_cast<std::byte*>(out.data()));
  return out;
}

TEST(Transform, TransposeByHand) {
  EXPECT_EQ(Apply({2, 3}, {TransformStep::Transpose()}), (std::vector<uint16_t>{0, 3, 1, 4, 2, 5}));
}

TEST(Transform, PermuteByHand) {
  // Two heads of four rows, one column: pairs (0,1) (2,3) become halves (0,2) (1,3).
  EXPECT_EQ(Apply({8, 1}, {TransformStep::PermuteQk(2)}),
            (std::vector<uint16_t>{0, 2, 1, 3, 4, 6, 5, 7}));
  EXPECT_EQ(Apply({8}, {TransformStep::PermuteQk(2)}),
            (std::vector<uint16_t>{0, 2, 1, 3, 4, 6, 5, 7}));  // a bias
}

TEST(Transform, RowPartByHand) {
  // Two groups of rows [q q | k | v].
  const auto part = [](int i) { return Transform{TransformStep::RowPart({2, 1, 1}, i, 2)}; };
  EXPECT_EQ(Apply({8, 1}, part(0)), (std::vector<uint16_t>{0, 1, 4, 5}));
  EXPECT_EQ(Apply({8, 1}, part(1)), (std::vector<uint16_t>{2, 6}));
  EXPECT_EQ(Apply({8, 1}, part(2)), (std::vector<uint16_t>{3, 7}));
}

TEST(Transform, MergeLastByHand) {
  // Rows in turn of [2 experts, 4 rows, 2 groups of 2].
  const Transform odd = {TransformStep::Slice(0, 0), TransformStep::RowPart({1, 1}, 1, 2),
                         TransformStep::MergeLast(2)};
  EXPECT_EQ(Apply({2, 4, 2, 2}, odd, 1), (std::vector<uint16_t>{20, 21, 22, 23, 28, 29, 30, 31}));
  EXPECT_EQ(Gather::Bind(kHalf, {2, 4, 2, 2}, odd, 1)->shape(), (Shape{2, 4}));
  EXPECT_EQ(*StoredShapeOf({2, 4}, odd, 2), (Shape{2, 4, 2, 2}));
  EXPECT_FALSE(StoredShapeOf({2, 3}, odd, 2).ok());
}

TEST(Transform, SliceByHand) {
  EXPECT_EQ(Apply({3, 2}, {TransformStep::Slice(0, 0)}, 2), (std::vector<uint16_t>{4, 5}));
  EXPECT_EQ(Apply({2, 3, 2}, {TransformStep::Slice(1, 0)}, 1), (std::vector<uint16_t>{2, 3, 8, 9}));
  // Fused experts [expert, in, gate | up], stored transposed.
  EXPECT_EQ(Apply({2, 2, 4},
                  {TransformStep::Slice(0, 1), TransformStep::Transpose(),
                   TransformStep::RowPart({2, 2}, 1)},
                  1),
            (std::vector<uint16_t>{10, 14, 11, 15}));
}

TEST(Transform, OneRunOfBytesIsRecognised) {
  const auto is_contiguous = [](const Shape& shape, const Transform& transform) {
    return Gather::Bind(kHalf, shape, transform, 0)->is_contiguous();
  };
  EXPECT_TRUE(is_contiguous({4, 6}, {}));
  EXPECT_TRUE(is_contiguous({4, 6, 2}, {TransformStep::Slice(0, 0)}));
  EXPECT_FALSE(is_contiguous({4, 6, 2}, {TransformStep::Slice(1, 0)}));
  EXPECT_TRUE(is_contiguous({6, 5}, {TransformStep::RowPart({1, 2, 3}, 1)}));
  EXPECT_FALSE(is_contiguous({12, 5}, {TransformStep::RowPart({1, 2, 3}, 1, 2)}));
  EXPECT_FALSE(is_contiguous({8, 5}, {TransformStep::PermuteQk(2)}));
  EXPECT_TRUE(is_contiguous({4, 5}, {TransformStep::PermuteQk(2)}));  // pairs are the halves
  EXPECT_FALSE(is_contiguous({4, 6}, {TransformStep::Transpose()}));
  EXPECT_TRUE(is_contiguous({1, 6}, {TransformStep::Transpose()}));
}

// The formulas of transform.h, element by element.
TEST(Transform, AgainstBruteForce) {
  EXPECT_TRUE(rc::check("permute, row part, transpose", [] {
    const int64_t heads = *rc::gen::inRange(1, 5);
    const int64_t half = *rc::gen::inRange(1, 6);
    const int64_t cols = *rc::gen::inRange(1, 9);
    const int64_t rows = heads * 2 * half;
    const auto permuted = Apply({rows, cols}, {TransformStep::PermuteQk(heads)});
    const auto transposed = Apply({rows, cols}, {TransformStep::Transpose()});
    const auto parts =
        *rc::gen::container<std::vector<int64_t>>(3, rc::gen::inRange<int64_t>(0, 4));
    const int64_t group = parts[0] + parts[1] + parts[2];
    const int part = *rc::gen::inRange(0, 3);
    const auto cut = Apply({group * heads, cols}, {TransformStep::RowPart(parts, part, heads)});
    for (int64_t c = 0; c < cols; ++c) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = 0; i < half; ++i) {
          for (int64_t j = 0; j < 2; ++j) {
            const int64_t stored = (h * 2 * half + 2 * i + j) * cols + c;
            RC_ASSERT(permuted[static_cast<size_t>((h * 2 * half + j * half + i) * cols + c)] ==
                      stored);
          }
        }
        int64_t first = 0;
        for (int p = 0; p < part; ++p) first += parts[static_cast<size_t>(p)];
        const int64_t count = parts[static_cast<size_t>(part)];
        for (int64_t r = 0; r < count; ++r) {
          RC_ASSERT(cut[static_cast<size_t>((h * count + r) * cols + c)] ==
                    (h * group + first + r) * cols + c);
        }
      }
      for (int64_t r = 0; r < rows; ++r) {
        RC_ASSERT(transposed[static_cast<size_t>(c * rows + r)] == r * cols + c);
      }
    }
  }));
}

// Larger than a tile on both sides, every element size.
template <typename T>
void CheckTranspose(int64_t rows, int64_t cols) {
  const auto values = Counting<T>(rows * cols);
  const Gather gather =
      *Gather::Bind({1, sizeof(T)}, {rows, cols}, {TransformStep::Transpose()}, 0);
  std::vector<T> out(values.size());
  gather.Read(reinterpret_cast<const std::byte*>(values.data()),
              reinterpret_cast<std::byte*>(out.data()));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      ASSERT_EQ(out[static_cast<size_t>(c * rows + r)], values[static_cast<size_t>(r * cols + c)]);
    }
  }
}

TEST(Transform, TransposeInTiles) {
  CheckTranspose<uint8_t>(65, 130);
  CheckTranspose<uint16_t>(129, 63);
  CheckTranspose<uint32_t>(64, 200);
  CheckTranspose<uint64_t>(1, 70);
}

// A random chain that fits a random shape, with the parts of a fused tensor and all slices: the
// pieces, written back, give every stored byte again.
TEST(Transform, PiecesRestoreTheStoredTensor) {
  EXPECT_TRUE(rc::check("read all pieces, write all pieces", [] {
    const int64_t slices = *rc::gen::inRange(1, 4);
    const int64_t groups = *rc::gen::inRange(1, 4);
    const bool transpose = *rc::gen::arbitrary<bool>();
    const bool permute = *rc::gen::arbitrary<bool>();
    const bool split = *rc::gen::arbitrary<bool>();
    const bool blocks = !transpose && *rc::gen::arbitrary<bool>();
    const ElementLayout layout = blocks ? ElementLayout{32, 18} : ElementLayout{1, 4};
    const std::vector<int64_t> parts =
        split ? std::vector<int64_t>{4 * groups, 2 * groups} : std::vector<int64_t>{6 * groups};
    const int64_t split_groups = permute ? 1 : groups;
    const int64_t rows = split_groups * std::accumulate(parts.begin(), parts.end(), int64_t{0});
    const int64_t cols = blocks ? 64 : *rc::gen::inRange(1, 6);
    const Shape canonical_whole = transpose ? Shape{slices, cols, rows} : Shape{slices, rows, cols};
    const int64_t bytes = canonical_whole.elements() / layout.block_elements * layout.block_bytes;
    const auto stored = *rc::gen::container<std::vector<uint8_t>>(static_cast<size_t>(bytes),
                                                                  rc::gen::arbitrary<uint8_t>());
    std::vector<uint8_t> restored(stored.size(), 0xEE);
    int64_t moved = 0;
    for (size_t part = 0; part < parts.size(); ++part) {
      Transform transform{TransformStep::Slice(0, 1)};
      if (transpose) transform.push_back(TransformStep::Transpose());
      transform.push_back(TransformStep::RowPart(parts, static_cast<int>(part), split_groups));
      if (permute) transform.push_back(TransformStep::PermuteQk(groups));
      for (int64_t slice = 0; slice < slices; ++slice) {
        const Gather gather = *Gather::Bind(layout, canonical_whole, transform, slice);
        RC_ASSERT(*StoredShapeOf(gather.shape(), transform, slices) == canonical_whole);
        std::vector<std::byte> piece(static_cast<size_t>(gather.canonical_bytes()));
        gather.Read(reinterpret_cast<const std::byte*>(stored.data()), piece.data());
        gather.Write(piece.data(), reinterpret_cast<std::byte*>(restored.data()));
        moved += gather.canonical_bytes();
      }
    }
    RC_ASSERT(moved == bytes);
    RC_ASSERT(restored == stored);
  }));
}

TEST(Transform, ShapesThatDoNotFit) {
  const auto message = [](ElementLayout layout, const Shape& shape, const TransformStep& step,
                          int64_t index = 0) {
    const auto gather = Gather::Bind(layout, shape, {step}, index);
    EXPECT_EQ(gather.code(), StatusCode::kRefused);
    return gather.message();
  };
  const auto expect = [](const std::string& text, std::initializer_list<const char*> words) {
    for (const char* word : words) EXPECT_NE(text.find(word), std::string::npos) << text;
  };
  const ElementLayout block{32, 18};
  expect(message(kHalf, {10, 4}, TransformStep::PermuteQk(4)),
         {"[10, 4]", "10 rows", "8", "4 heads"});
  expect(message(kHalf, {}, TransformStep::PermuteQk(1)), {"0 dimensions"});
  expect(message(kHalf, {12, 4}, TransformStep::RowPart({4, 4, 4}, 0, 2)), {"24 rows", "has 12"});
  expect(message(kHalf, {2, 3, 4}, TransformStep::Transpose()), {"3 dimensions", "needs 2"});
  expect(message(block, {2, 32}, TransformStep::Transpose()), {"block format"});
  expect(message(block, {2, 32}, TransformStep::MergeLast(32)), {"block format"});
  expect(message(kHalf, {2, 4, 8}, TransformStep::MergeLast(16)), {"groups of 8", "needs 16"});
  expect(message(kHalf, {16}, TransformStep::MergeLast(16)), {"1 dimensions", "2 or more"});
  expect(message(block, {64}, TransformStep::PermuteQk(2)), {"block format"});
  expect(message(block, {2, 64}, TransformStep::Slice(1, 0)), {"block format"});
  expect(message(kHalf, {2, 4}, TransformStep::Slice(0, 0), 2), {"index 2", "dimension of 2"});
  expect(message(kHalf, {2, 4}, TransformStep::Slice(0, 0), -1), {"index -1"});
  expect(message(kHalf, {2}, TransformStep::Slice(1, 0)), {"1 dimensions", "2 or more"});
}

// Bytes as numpy gives them: reshape(heads, hd / 2, 2, cols).swapaxes(1, 2) and so on.
TEST(Transform, AgainstNumpyOnRealFiles) {
  const auto load = [](const Checkpoint& checkpoint, const char* name, Transform transform,
                       int64_t slice = 0) {
    const StoredTensor* stored = checkpoint.FindTensor(name);
    const Gather gather =
        *Gather::Bind(ElementLayout::Of(stored->dtype), stored->shape, transform, slice);
    const IndexedTensor tensor{.name = name,
                               .dtype = stored->dtype,
                               .shape = gather.shape(),
                               .stored = stored,
                               .transform = &transform,
                               .slice = slice};
    return test::Fnv(LoadTensor(checkpoint, tensor)->view);
  };
  const auto f16 = test::OpenOrDie(test::DataPath("goldens_gguf/llama_f16.gguf"));
  EXPECT_EQ(load(*f16, "blk.0.attn_q.weight", {TransformStep::PermuteQk(4)}), 0x1284bfca71427d64u);
  EXPECT_EQ(load(*f16, "blk.1.attn_k.weight", {TransformStep::PermuteQk(2)}), 0x57a32e192db4da2du);
  EXPECT_EQ(load(*f16, "blk.0.ffn_down.weight", {TransformStep::Transpose()}), 0xcee458cb9055d712u);
  EXPECT_EQ(load(*f16, "blk.0.attn_q.weight", {TransformStep::RowPart({8, 8, 16}, 1, 4)}),
            0x455895fc61aff4f2u);
  EXPECT_EQ(load(*f16, "blk.0.attn_q.weight", {TransformStep::RowPart({8, 8, 16}, 2, 4)}),
            0x47bd7fde3975a11cu);
  EXPECT_EQ(load(*f16, "blk.0.attn_q.weight", {TransformStep::RowPart({64, 32, 32}, 1)}),
            0x78b063752b8d00fcu);
  const auto q4 = test::OpenOrDie(test::DataPath("goldens_gguf/llama_q4_0.gguf"));
  EXPECT_EQ(load(*q4, "blk.0.attn_q.weight", {TransformStep::PermuteQk(4)}), 0xd016b40e2c7a57a4u);
  EXPECT_EQ(load(*q4, "blk.1.attn_k.weight", {TransformStep::PermuteQk(2)}), 0x8bfca75e81be93a8u);
  const auto moe = test::OpenOrDie(test::DataPath("goldens_gguf/qwen3moe_q8_0.gguf"));
  const uint64_t experts[] = {0x8211c096b5fa22au, 0x1deb530ef478eeffu, 0x5a170439e832d24cu,
                              0x80def1d3a517c975u};
  for (int64_t e = 0; e < 4; ++e) {
    EXPECT_EQ(load(*moe, "blk.1.ffn_up_exps.weight", {TransformStep::Slice(0, 1)}, e), experts[e]);
  }
}

}  // namespace
}  // namespace tenon
