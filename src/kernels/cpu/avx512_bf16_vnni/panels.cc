// Many tokens: 64 rows of weights are expanded to bf16 pairs in L2, then multiplied with blocks of
// six tokens, 6 x 64 sums in registers.
#include "tenon/kernels/cpu/avx512_bf16_vnni/narrow.h"
#include "tenon/kernels/cpu/expand.h"

namespace tenon::avx512_bf16_vnni {
namespace {

struct TileOut {
  float* y = nullptr;  // [tokens, kPanelRows]
  int64_t stride = 0;
  int64_t rows = 0;             // of the panel that exist
  const float* bias = nullptr;  // of the panel's first row, or null
  bool adds = false;            // to what earlier columns left
};

// M tokens of a block times the panel.
template <int M>
TN_INLINE void Tile(int64_t pairs, const uint32_t* block, const std::byte* panel,
                    const TileOut& out) {
  __m512 sum[M][kColumns];
  for (int m = 0; m < M; ++m) {
    for (int v = 0; v < kColumns; ++v) sum[m][v] = _mm512_setzero_ps();
  }
  const auto* b = reinterpret_cast<const __m512bh*>(panel);
  for (int64_t p = 0; p < pairs; ++p, b += kColumns, block += kBlockTokens) {
    __m512bh w[kColumns];
    for (int v = 0; v < kColumns; ++v) w[v] = b[v];
    for (int m = 0; m < M; ++m) {
      const auto x = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int32_t>(block[m])));
      for (int v = 0; v < kColumns; ++v) sum[m][v] = _mm512_dpbf16_ps(sum[m][v], x, w[v]);
    }
  }
  for (int v = 0; v < kColumns; ++v) {
    const int64_t rows = out.rows - v * kLanes;
    if (rows <= 0) break;
    const auto mask = static_cast<__mmask16>(rows >= kLanes ? 0xFFFF : (1 << rows) - 1);
    const __m512 bias = out.bias == nullptr ? _mm512_setzero_ps()
                                            : _mm512_maskz_loadu_ps(mask, out.bias + v * kLanes);
    for (int m = 0; m < M; ++m) {
      float* y = out.y + m * out.stride + v * kLanes;
      const __m512 before = out.adds ? _mm512_maskz_loadu_ps(mask, y) : bias;
      _mm512_mask_storeu_ps(y, mask, _mm512_add_ps(sum[m][v], before));
    }
  }
}

template <typename Decode>
void MultiplyPanel(const PanelArgs& a, int64_t row, int64_t token_begin, int64_t token_end,
                   std::byte* panel) {
  TileOut out;
  out.stride = a.y_stride;
  out.rows = a.rows - row < kPanelRows ? a.rows - row : kPanelRows;
  out.bias = a.bias == nullptr ? nullptr : a.bias + row;
  for (int64_t begin = 0; begin < a.cols; begin += kPanelCols) {
    const int64_t end = begin + kPanelCols < a.cols ? begin + kPanelCols : a.cols;
    Expand<Decode>(a, row, begin, end, panel);
    out.adds = begin > 0;
    const int64_t pairs = (end - begin + 1) / 2;
    for (int64_t t = token_begin; t < token_end; t += kBlockTokens) {
      const auto* block =
          reinterpret_cast<const uint32_t*>(a.x + t / kBlockTokens * BlockBytes(a.cols)) +
          begin / 2 * kBlockTokens;
      out.y = a.y + t * a.y_stride + row;
      switch (token_end - t) {
        case 1:
          Tile<1>(pairs, block, panel, out);
          break;
        case 2:
          Tile<2>(pairs, block, panel, out);
          break;
        case 3:
          Tile<3>(pairs, block, panel, out);
          break;
        case 4:
          Tile<4>(pairs, block, panel, out);
          break;
        case 5:
          Tile<5>(pairs, block, panel, out);
          break;
        default:
          Tile<6>(pairs, block, panel, out);
      }
    }
  }
}

template <typename Decode>
void Add(MatmulKernels& matmul, DType dtype, const char* name) {
  matmul.panels[static_cast<int>(dtype)] = {MultiplyPanel<Decode>, name};
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
}

}  // namespace tenon::avx512_bf16_vnni
