#include "tenon/attention/backends/flashinfer_pages.h"

#include <gtest/gtest.h>

#include <numeric>

namespace tenon::backends {
namespace {

// Lengths of 0, a page less and more one, whole pages.
TEST(CsrPages, TablesOfEveryLength) {
  std::vector<int32_t> table(5 * 4);
  std::iota(table.begin(), table.end(), 100);
  const GroupPages pages{table.data(), 4, 16};
  CsrPages csr;
  csr.Build(pages, std::vector<int32_t>{0, 15, 16, 17, 64});
  EXPECT_EQ(csr.requests(), 5);
  EXPECT_EQ(std::vector<int32_t>(csr.indptr().begin(), csr.indptr().end()),
            (std::vector<int32_t>{0, 0, 1, 2, 4, 8}));
  EXPECT_EQ(std::vector<int32_t>(csr.indices().begin(), csr.indices().end()),
            (std::vector<int32_t>{104, 108, 112, 113, 116, 117, 118, 119}));
  EXPECT_EQ(std::vector<int32_t>(csr.last_page_len().begin(), csr.last_page_len().end()),
            (std::vector<int32_t>{0, 15, 16, 1, 16}));
  const std::vector<int64_t> lengths = {0, 15, 16, 17, 64};
  for (int32_t i = 0; i < 5; ++i) EXPECT_EQ(csr.LengthOf(i), lengths[static_cast<size_t>(i)]);
  EXPECT_EQ(csr.PagesOf(3)[1], 113);
}

// While sequences grow within their tables nothing moves.
TEST(CsrPages, SteadyStepsReuseTheirMemory) {
  const std::vector<int32_t> table(3 * 8, 7);
  const GroupPages pages{table.data(), 8, 16};
  CsrPages csr;
  csr.Build(pages, std::vector<int32_t>{1, 1, 1});
  const int32_t* indices = csr.indices().data();
  const int32_t* indptr = csr.indptr().data();
  csr.Build(pages, std::vector<int32_t>{128, 128, 128});
  EXPECT_EQ(csr.indices().size(), 24u);
  EXPECT_EQ(csr.indices().data(), indices);
  EXPECT_EQ(csr.indptr().data(), indptr);
}

}  // namespace
}  // namespace tenon::backends
