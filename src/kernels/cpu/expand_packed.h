// Groups of packed weights to a panel of bf16 pairs: lanes are rows on both sides, so nothing is
// transposed. For the sources of instruction sets that have bf16. Thread-safe.
#pragma once

#include "tenon/kernels/cpu/packed_weights.h"
#include "tenon/kernels/cpu/product.h"

#if defined(__AVX512BF16__)

namespace tenon::TN_ISA {
namespace {

// Bytes that reads of weights are asked for ahead.
constexpr int64_t kExpandAhead = 2048;

// Lane r: even, then odd.
TN_INLINE F32 PairRows(__m512 even, __m512 odd) {
  alignas(64) static constexpr uint16_t kInterleave[32] = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const auto halves = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
  return reinterpret_cast<F32>(_mm512_permutexvar_epi16(_mm512_load_si512(kInterleave), halves));
}

// scale * quant + minimum of rows.
struct RowWeights {
  __m512 scale, minimum;
  // Quants of kMask in the low bits.
  template <int kMask>
  TN_INLINE __m512 Of(__m512i quants) const {
    const __m512i q = _mm512_and_si512(quants, _mm512_set1_epi32(kMask));
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(q), scale, minimum);
  }
};

template <typename Format>
TN_INLINE RowWeights WeightsOf(const std::byte* scales) {
  const __m512 scale = HalfRows(scales);
  if constexpr (Format::kHasMinimum) {
    return {scale, HalfRows(scales + 2 * kPackedRows)};
  } else {
    return {scale, _mm512_mul_ps(scale, _mm512_set1_ps(-Format::kOffset))};
  }
}

// The 16 pairs of a block of 32 columns.
template <typename Format>
TN_INLINE void ExpandBlock(const std::byte* scales, const std::byte* vectors, PanelLayout layout,
                           float* out) {
  const RowWeights weights = WeightsOf<Format>(scales);
  for (int v = 0; v < Format::kBlockVectors; ++v) {
    const __m512i q = _mm512_load_si512(vectors + v * kVectorBytes);
    __builtin_prefetch(vectors + v * kVectorBytes + kExpandAhead);
    const auto pair = [&](int at, auto of, int shift) __attribute__((always_inline)) {
      const int next = shift + 8;
      Store(out + at * layout.pair,
            PairRows(of(_mm512_srli_epi32(q, static_cast<unsigned>(shift))),
                     of(_mm512_srli_epi32(q, static_cast<unsigned>(next)))));
    };
    if constexpr (Format::kNibbles) {
      const auto of = [&](__m512i quants) { return weights.template Of<15>(quants); };
      pair(2 * v, of, 0);
      pair(2 * v + 1, of, 16);
      pair(8 + 2 * v, of, 4);
      pair(8 + 2 * v + 1, of, 20);
    } else {
      const auto of = [&](__m512i quants) { return weights.template Of<255>(quants); };
      pair(2 * v, of, 0);
      pair(2 * v + 1, of, 16);
    }
  }
}

// The group of vector v of the panel; where rows end, the last one again.
TN_INLINE const std::byte* GroupAt(const PanelArgs& a, int64_t row, int64_t v) {
  const int64_t last = (a.rows - 1) / kPackedRows * kPackedRows;
  const int64_t first = row + v * kPackedRows;
  return a.w + (first < last ? first : last) * a.row_bytes;
}

// As Expand (expand.h), from groups.
template <typename Format>
void ExpandUnits(const PanelArgs& a, int64_t row, int64_t begin, int64_t end, PanelLayout layout,
                 std::byte* panel) {
  auto* out = reinterpret_cast<float*>(panel);
  for (int64_t v = 0; v < layout.vectors; ++v) {
    const std::byte* group = GroupAt(a, row, v);
    for (int64_t c = begin; c < end; c += 32) {
      const int64_t block = c / 32;
      const int64_t in_unit = block % Format::kUnitBlocks;
      const std::byte* unit = group + block / Format::kUnitBlocks * kUnitBytes<Format>;
      __builtin_prefetch(unit + kExpandAhead);
      ExpandBlock<Format>(unit + in_unit * 2 * kPackedRows,
                          unit + kHeadBytes + in_unit * Format::kBlockVectors * kVectorBytes,
                          layout, out + (c - begin) / 2 * layout.pair + v * layout.vector);
    }
  }
}

// Begin and end are multiples of 64, or end is the last column.
void ExpandQ4K(const PanelArgs& a, int64_t row, int64_t begin, int64_t end, PanelLayout layout,
               std::byte* panel) {
  auto* out = reinterpret_cast<float*>(panel);
  for (int64_t v = 0; v < layout.vectors; ++v) {
    const std::byte* group = GroupAt(a, row, v);
    for (int64_t c = begin; c < end; c += 64) {
      const std::byte* unit = group + c / PackedQ4K::kCols * PackedQ4K::kBytes;
      const int64_t two = c % PackedQ4K::kCols / 64;
      const auto weights = [&](int64_t i) {
        const GroupScales scales = ScalesOf(unit, 2 * two + i);
        return RowWeights{scales.scale, _mm512_sub_ps(_mm512_setzero_ps(), scales.minimum)};
      };
      const RowWeights low = weights(0);
      const RowWeights high = weights(1);
      float* to = out + (c - begin) / 2 * layout.pair + v * layout.vector;
      for (int64_t i = 0; i < PackedQ4K::kCoupleVectors; ++i, to += 2 * layout.pair) {
        const std::byte* at =
            unit + PackedQ4K::kQuants + (two * PackedQ4K::kCoupleVectors + i) * kVectorBytes;
        const __m512i q = _mm512_load_si512(at);
        __builtin_prefetch(at + kExpandAhead);
        const auto pair = [&](const RowWeights& of, unsigned shift) {
          return PairRows(of.template Of<15>(_mm512_srli_epi32(q, shift)),
                          of.template Of<15>(_mm512_srli_epi32(q, shift + 8)));
        };
        Store(to, pair(low, 0));
        Store(to + layout.pair, pair(low, 16));
        Store(to + 16 * layout.pair, pair(high, 4));
        Store(to + 17 * layout.pair, pair(high, 20));
      }
    }
  }
}

// Pairs are there already.
inline void CopyPairs(const PanelArgs& a, int64_t row, int64_t begin, int64_t end,
                      PanelLayout layout, std::byte* panel) {
  auto* out = reinterpret_cast<float*>(panel);
  for (int64_t v = 0; v < layout.vectors; ++v) {
    const std::byte* group = GroupAt(a, row, v);
    for (int64_t p = 0; p < (end - begin + 1) / 2; ++p) {
      Store(out + p * layout.pair + v * layout.vector,
            LoadAs<F32>(group + (begin / 2 + p) * kVectorBytes));
    }
  }
}

}  // namespace
}  // namespace tenon::TN_ISA

#endif
