// Where rows lie in a page: their bytes in closed form, and that codes and scales of all tokens and
// heads fill the page, each byte once.
#include "tenon/cache/kv_format.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tenon {
namespace {

TEST(KvFormat, BytesOfARow) {
  struct Expected {
    DType dtype;
    int64_t codes, scales;
  };
  for (const Expected& e : {Expected{DType::kF32, 512, 0},
                            {DType::kBF16, 256, 0},
                            {DType::kF16, 256, 0},
                            {DType::kF8E4M3, 128, 0},
                            {DType::kI8, 128, 4},
                            {DType::kF4E2M1, 64, 8}}) {
    const KvRowFormat row = KvRowFormatOf(e.dtype, 128);
    EXPECT_EQ(row.code_bytes, e.codes) << KvNameOf(e.dtype);
    EXPECT_EQ(row.scale_bytes, e.scales) << KvNameOf(e.dtype);
  }
  EXPECT_EQ((KvGeometry{8, 128, 64, DType::kI8, KvLayout::kHnd}.RowBytes()), 8 * (132 + 68));
  EXPECT_EQ((KvGeometry{1, 576, 0, DType::kI8, KvLayout::kRow}.RowBytes()), 580);
  EXPECT_EQ((KvGeometry{1, 576, 0, DType::kF8E4M3, KvLayout::kRow}.RowBytes()), 576);
}

TEST(KvFormat, Names) {
  for (const KvDType& row : KvDTypes()) EXPECT_EQ(KvDTypeNamed(row.name), row.dtype);
  EXPECT_EQ(KvDTypeNamed("FP8"), DType::kF8E4M3);
  EXPECT_EQ(KvDTypeNamed("f8_e5m2"), std::nullopt);
  EXPECT_EQ(KvNameOf(DType::kF8E5M2), "f8_e5m2");
}

TEST(KvFormat, RowsThatExist) {
  for (const int64_t width : {1, 8, 16, 20, 64, 80}) {
    for (const KvDType& row : KvDTypes()) {
      EXPECT_EQ(HasKvRows(row.dtype, width), row.name != "nvfp4" || width % 16 == 0);
    }
  }
  EXPECT_FALSE(HasKvRows(DType::kF8E5M2, 16)) << "no dtype of rows";
  EXPECT_FALSE((KvGeometry{2, 32, 20, DType::kF4E2M1, KvLayout::kNhd}.Exists()));
  EXPECT_TRUE((KvGeometry{1, 32, 0, DType::kF4E2M1, KvLayout::kRow}.Exists()));
}

// Marks what a row takes.
void Take(int64_t at, int64_t bytes, std::vector<int>& page) {
  ASSERT_GE(at, 0);
  ASSERT_LE(at + bytes, static_cast<int64_t>(page.size()));
  for (int64_t i = at; i < at + bytes; ++i) ++page[static_cast<size_t>(i)];
}

TEST(KvFormat, APageIsFilledOnce) {
  for (const KvDType& row : KvDTypes()) {
    for (const KvLayout layout : {KvLayout::kNhd, KvLayout::kHnd, KvLayout::kRow}) {
      for (const int64_t page_tokens : {16, 64}) {
        for (const auto& [k_width, v_width] : {std::pair{64, 64}, {48, 16}, {20, 33}}) {
          KvGeometry g{3, k_width, v_width, row.dtype, layout};
          if (layout == KvLayout::kRow) g.kv_heads = 1;
          if (!g.Exists()) continue;
          SCOPED_TRACE(std::string(row.name) + " " + std::string(NameOf(layout)));
          const KvPageFormat format = KvPageFormatOf(g, page_tokens);
          std::vector<int> page(static_cast<size_t>(page_tokens * g.RowBytes()));
          const auto take = [&](const KvPartFormat& part, int64_t width) {
            const KvRowFormat bytes = KvRowFormatOf(row.dtype, width);
            for (int64_t t = 0; t < page_tokens; ++t) {
              for (int64_t h = 0; h < g.kv_heads; ++h) {
                Take(part.codes + t * part.slot + h * part.head, bytes.code_bytes, page);
                Take(part.scales + t * part.scale_slot + h * part.scale_head, bytes.scale_bytes,
                     page);
              }
            }
          };
          take(format.k, k_width);
          if (layout != KvLayout::kRow) take(format.v, v_width);
          for (size_t i = 0; i < page.size(); ++i) ASSERT_EQ(page[i], 1) << i;
        }
      }
    }
  }
}

// A head's codes and scales of a page follow each other; all rows of codes begin where vectors may.
TEST(KvFormat, AHeadOfAPageIsOneStretch) {
  const KvPageFormat page = KvPageFormatOf({2, 128, 128, DType::kI8, KvLayout::kHnd}, 16);
  EXPECT_EQ(page.k.head, 16 * 128 + 16 * 4);
  EXPECT_EQ(page.k.scales, 16 * 128);
  EXPECT_EQ(page.v.codes, 2 * page.k.head);
  EXPECT_EQ(page.v.codes % 64, 0);
  EXPECT_EQ(page.k.head % 64, 0);
  const KvPageFormat narrow = KvPageFormatOf({2, 128, 128, DType::kF4E2M1, KvLayout::kHnd}, 16);
  EXPECT_EQ(narrow.k.slot, 64);
  EXPECT_EQ(narrow.k.scale_slot, 8);
  EXPECT_EQ(narrow.k.head % 64, 0);
}

}  // namespace
}  // namespace tenon
