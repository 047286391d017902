#include "tenon/tensor/tensor_view.h"

#include <gtest/gtest.h>

#include "tenon/tensor/buffer.h"

namespace tenon {
namespace {

TEST(TensorView, SlicesShareTheBytes) {
  Buffer buffer = *Buffer::AllocateZeroed(4 * 6 * 4, "test");
  const TensorView all(DType::kF32, {4, 6}, buffer.data());
  for (int i = 0; i < 24; ++i) all.as<float>()[i] = static_cast<float>(i);
  const TensorView columns = all.Slice(1, 2, 5);
  EXPECT_EQ(columns.shape(), Shape({4, 3}));
  EXPECT_FALSE(columns.is_contiguous());
  EXPECT_EQ(columns.stride_bytes(0), 24);
  EXPECT_EQ(columns.as<float>()[0], 2.0f);
  const TensorView rows = columns.Slice(0, 1, 3);
  EXPECT_EQ(rows.as<float>()[0], 8.0f);
  EXPECT_EQ(rows.bytes(), 24);
  EXPECT_TRUE(all.Slice(0, 1, 3).is_contiguous());
}

TEST(TensorView, BlockRowsHaveBlockBytes) {
  const TensorView view = TensorView::Meta(DType::kQ4_0, {10, 64});
  EXPECT_EQ(view.row_bytes(), 36);
  EXPECT_EQ(view.bytes(), 360);
  EXPECT_EQ(view.Slice(0, 2, 5).bytes(), 108);
  EXPECT_TRUE(view.is_meta());
}

TEST(TensorView, ReshapeKeepsBytes) {
  Buffer buffer = *Buffer::Allocate(24 * 2, "test");
  const TensorView view(DType::kBF16, {2, 3, 4}, buffer.data());
  EXPECT_EQ(view.Reshape({6, 4}).stride_bytes(0), 8);
  EXPECT_EQ(view.Reshape({24}).shape().rows(), 1);
}

}  // namespace
}  // namespace tenon
