// Many tokens: 64 rows of weights are expanded to bf16 pairs in L2, then multiplied with blocks of
// six tokens, 6 x 64 sums in registers.
#include "tenon/kernels/cpu/avx512_bf16_vnni/block_product.h"
#include "tenon/kernels/cpu/expand.h"

namespace tenon::avx512_bf16_vnni {
namespace {

template <typename Decode>
void MultiplyPanel(const PanelArgs& a, int64_t row, int64_t token_begin, int64_t token_end,
                   std::byte* panel) {
  ProductOut out;
  out.stride = a.y_stride;
  out.rows = a.rows - row < kPanelRows ? a.rows - row : kPanelRows;
  out.bias = a.bias == nullptr ? nullptr : a.bias + row;
  for (int64_t begin = 0; begin < a.cols; begin += kPanelCols) {
    const int64_t end = begin + kPanelCols < a.cols ? begin + kPanelCols : a.cols;
    Expand<Decode>(a, row, begin, end, {}, panel);
    out.adds = begin > 0;
    const int64_t pairs = (end - begin + 1) / 2;
    for (int64_t t = token_begin; t < token_end; t += kBlockTokens) {
      const auto* block =
          reinterpret_cast<const uint32_t*>(a.x + t / kBlockTokens * BlockBytes(a.cols)) +
          begin / 2 * kBlockTokens;
      out.y = a.y + t * a.y_stride + row;
      out.tokens = token_end - t < kBlockTokens ? token_end - t : kBlockTokens;
      MultiplyBlock(pairs, block, panel, out);
    }
  }
}

template <typename Decode>
void Add(MatmulKernels& matmul, DType dtype, const char* name) {
  matmul.panels[static_cast<int>(dtype)] = {MultiplyPanel<Decode>, name};
}

template <typename Format>
void AddPacked(MatmulKernels& matmul, DType dtype, const char* name) {
  matmul.packed[static_cast<int>(dtype)].panels = {MultiplyPanel<Format>, name};
}

template <typename Codes>
void AddScaled(MatmulKernels& matmul, DType dtype, const char* name) {
  matmul.scaled[static_cast<int>(dtype)].panels = {MultiplyPanel<Scaled<Codes>>, name};
}

}  // namespace

void AddPanels(MatmulKernels& matmul) {
  Add<DecodeF32>(matmul, DType::kF32, TN_KERNEL_NAME("panels_f32"));
  Add<DecodeBf16>(matmul, DType::kBF16, TN_KERNEL_NAME("panels_bf16"));
  Add<DecodeF16>(matmul, DType::kF16, TN_KERNEL_NAME("panels_f16"));
  Add<DecodeQ4_0>(matmul, DType::kQ4_0, TN_KERNEL_NAME("panels_q4_0"));
  Add<DecodeQ4_1>(matmul, DType::kQ4_1, TN_KERNEL_NAME("panels_q4_1"));
  Add<DecodeQ8_0>(matmul, DType::kQ8_0, TN_KERNEL_NAME("panels_q8_0"));
  Add<DecodeQ6K>(matmul, DType::kQ6_K, TN_KERNEL_NAME("panels_q6_k"));
  Add<DecodeQ4K>(matmul, DType::kQ4_K, TN_KERNEL_NAME("panels_q4_k"));
  AddScaled<CodesF8E4M3>(matmul, DType::kF8E4M3, TN_KERNEL_NAME("panels_f8_e4m3_scaled"));
  AddScaled<CodesI8>(matmul, DType::kI8, TN_KERNEL_NAME("panels_i8_scaled"));
  AddPacked<PackedQ4_0>(matmul, DType::kQ4_0, TN_KERNEL_NAME("packed_panels_q4_0"));
  AddPacked<PackedQ4_1>(matmul, DType::kQ4_1, TN_KERNEL_NAME("packed_panels_q4_1"));
  AddPacked<PackedQ8_0>(matmul, DType::kQ8_0, TN_KERNEL_NAME("packed_panels_q8_0"));
  AddPacked<PackedQ4K>(matmul, DType::kQ4_K, TN_KERNEL_NAME("packed_panels_q4_k"));
  AddPacked<PackedBf16>(matmul, DType::kBF16, TN_KERNEL_NAME("packed_panels_bf16"));
}

}  // namespace tenon::avx512_bf16_vnni
