#include "tenon/kernels/cpu/amx/tile_product.h"

#include "tenon/kernels/cpu/amx/tiles.h"
#include "tenon/kernels/cpu/attend_blocks.h"

namespace tenon::amx {
namespace {

struct Product {
  static constexpr int64_t kTokens = kBlockTokens;
  static constexpr int64_t BlockBytes(int64_t cols) { return amx::BlockBytes(cols); }
  static constexpr PanelLayout Panel(int64_t cols) { return PanelOf(cols); }
  static void Pack(const float* x, int64_t x_stride, int64_t tokens, int64_t cols,
                   std::byte* block) {
    PackBlock(x, x_stride, tokens, cols, block);
  }
  static void Multiply(const std::byte* block, int64_t cols, const std::byte* panel,
                       int64_t panel_cols, const ProductOut& out) {
    MultiplyBlock(block, cols, WholePanel(panel, panel_cols), out);
  }
  template <int kCount>
  static void MultiplySum(const ProductTerm* terms, int64_t cols, const ProductOut& out) {
    MultiplyTerms<kCount>(terms, cols, out);
  }
  Tiles tiles;
};

}  // namespace

void AddTileAttention(AttentionKernels& attention) { attention.blocks = AttendBlocks<Product>; }

}  // namespace tenon::amx
