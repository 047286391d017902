#include "tenon/kernels/cpu/attend_blocks.h"
#include "tenon/kernels/cpu/avx512_bf16_vnni/block_product.h"

namespace tenon::avx512_bf16_vnni {
namespace {

struct Product {
  static constexpr int64_t kTokens = kBlockTokens;
  static constexpr int64_t BlockBytes(int64_t cols) { return avx512_bf16_vnni::BlockBytes(cols); }
  static constexpr PanelLayout Panel(int64_t /*cols*/) { return {}; }
  static void Pack(const float* x, int64_t x_stride, int64_t tokens, int64_t cols,
                   std::byte* block) {
    PackBlock(x, x_stride, tokens, cols, block);
  }
  static void Multiply(const std::byte* block, int64_t cols, const std::byte* panel,
                       int64_t /*panel_cols*/, const ProductOut& out) {
    MultiplyBlock((cols + 1) / 2, reinterpret_cast<const uint32_t*>(block), panel, out);
  }
  template <int kCount>
  static void MultiplySum(const ProductTerm* terms, int64_t cols, ProductOut out) {
    for (int i = 0; i < kCount; ++i) {
      Multiply(terms[i].block, cols, terms[i].panel, cols, out);
      out.adds = true;
    }
  }
};

}  // namespace

void AddAttendBlocks(AttentionKernels& attention) { attention.blocks = AttendBlocks<Product>; }

}  // namespace tenon::avx512_bf16_vnni
