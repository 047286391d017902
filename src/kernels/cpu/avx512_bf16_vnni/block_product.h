// A block of six packed tokens times a panel of 64 rows: 6 x 64 sums in registers. Private to the
// folder. Thread-safe.
#pragma once

#include "tenon/kernels/cpu/avx512_bf16_vnni/narrow.h"
#include "tenon/kernels/cpu/product.h"

namespace tenon::avx512_bf16_vnni {
namespace {

constexpr int kVectors = kPanelRows / kLanes;

// M tokens of a block times the panel.
template <int M>
TN_INLINE void Tile(int64_t pairs, const uint32_t* block, const std::byte* panel,
                    const ProductOut& out) {
  __m512 sum[M][kVectors];
  for (int m = 0; m < M; ++m) {
    for (int v = 0; v < kVectors; ++v) sum[m][v] = _mm512_setzero_ps();
  }
  const auto* b = reinterpret_cast<const __m512bh*>(panel);
  for (int64_t p = 0; p < pairs; ++p, b += kVectors, block += kBlockTokens) {
    __m512bh w[kVectors];
    for (int v = 0; v < kVectors; ++v) w[v] = b[v];
    for (int m = 0; m < M; ++m) {
      const auto x = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int32_t>(block[m])));
      for (int v = 0; v < kVectors; ++v) sum[m][v] = _mm512_dpbf16_ps(sum[m][v], x, w[v]);
    }
  }
  for (int v = 0; v < kVectors; ++v) {
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

TN_INLINE void MultiplyBlock(int64_t pairs, const uint32_t* block, const std::byte* panel,
                             const ProductOut& out) {
  switch (out.tokens) {
    case 1:
      return Tile<1>(pairs, block, panel, out);
    case 2:
      return Tile<2>(pairs, block, panel, out);
    case 3:
      return Tile<3>(pairs, block, panel, out);
    case 4:
      return Tile<4>(pairs, block, panel, out);
    case 5:
      return Tile<5>(pairs, block, panel, out);
    default:
      return Tile<6>(pairs, block, panel, out);
  }
}

}  // namespace
}  // namespace tenon::avx512_bf16_vnni
