// Rows of weights, or groups of packed ones, to a panel of bf16 pairs (matmul_kernels.h). For the
// sources of instruction sets that have bf16. Thread-safe.
#pragma once

#include "tenon/kernels/cpu/decode.h"
#include "tenon/kernels/cpu/expand_packed.h"
#include "tenon/kernels/cpu/product.h"
#include "tenon/kernels/cpu/transpose.h"

#if defined(__AVX512BF16__)

namespace tenon::TN_ISA {
namespace {

// Numbers [begin, begin + 32) of a stored row as bf16, sixteen pairs.
template <typename Decode>
TN_INLINE F32 PairsOf(const std::byte* row, int64_t begin) {
  if constexpr (Decode::kElements == kLanes) {  // elementwise
    F32 low;
    F32 high;
    Decode::Run(row + begin * Decode::kOne, &low);
    Decode::Run(row + (begin + kLanes) * Decode::kOne, &high);
    return reinterpret_cast<F32>(
        _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(high), reinterpret_cast<__m512>(low)));
  } else {
    static_assert(Decode::kElements == 32);
    F32 values[2];
    Decode::Run(row + begin / 32 * Decode::kBytes, values);
    return reinterpret_cast<F32>(_mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(values[1]),
                                                     reinterpret_cast<__m512>(values[0])));
  }
}
template <>
TN_INLINE F32 PairsOf<DecodeBf16>(const std::byte* row, int64_t begin) {
  return LoadAs<F32>(row + 2 * begin);  // they are pairs already
}

// Blocks of 256: decoded as a whole, 16 rows at a time.
template <typename Decode>
void ExpandLarge(const PanelArgs& a, int64_t row, int64_t begin, int64_t end, PanelLayout layout,
                 std::byte* panel) {
  auto* out = reinterpret_cast<float*>(panel);
  for (int64_t v = 0; v < layout.vectors; ++v) {
    for (int64_t c = begin; c < end; c += Decode::kElements) {
      F32 pairs[kLanes][Decode::kElements / 32];
      for (int64_t r = 0; r < kLanes; ++r) {
        const int64_t at = row + v * kLanes + r;
        F32 values[Decode::kElements / kLanes];
        Decode::Run(a.w + (at < a.rows ? at : a.rows - 1) * a.row_bytes +
                        c / Decode::kElements * Decode::kBytes,
                    values);
        for (int64_t k = 0; k < Decode::kElements / 32; ++k) {
          pairs[r][k] =
              reinterpret_cast<F32>(_mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(values[2 * k + 1]),
                                                        reinterpret_cast<__m512>(values[2 * k])));
        }
      }
      for (int64_t k = 0; k < Decode::kElements / 32; ++k) {
        F32 block[kLanes];
        for (int64_t r = 0; r < kLanes; ++r) block[r] = pairs[r][k];
        Transpose(block);
        float* to = out + ((c - begin) / 2 + k * kLanes) * layout.pair + v * layout.vector;
        for (int64_t p = 0; p < kLanes; ++p) Store(to + p * layout.pair, block[p]);
      }
    }
  }
}

template <typename Decode>
void ExpandSmall(const PanelArgs& a, int64_t row, int64_t begin, int64_t end, PanelLayout layout,
                 std::byte* panel) {
  auto* out = reinterpret_cast<float*>(panel);  // pairs, as bit patterns
  for (int64_t v = 0; v < layout.vectors; ++v) {
    const std::byte* rows[kLanes];
    for (int64_t r = 0; r < kLanes; ++r) {
      const int64_t at = row + v * kLanes + r;
      rows[r] = a.w + (at < a.rows ? at : a.rows - 1) * a.row_bytes;
    }
    int64_t c = begin;
    for (; c + 32 <= end; c += 32) {
      F32 block[kLanes];
      for (int64_t r = 0; r < kLanes; ++r) block[r] = PairsOf<Decode>(rows[r], c);
      Transpose(block);
      float* to = out + (c - begin) / 2 * layout.pair + v * layout.vector;
      for (int64_t p = 0; p < kLanes; ++p) Store(to + p * layout.pair, block[p]);
    }
    if (c == end) continue;
    if constexpr (Decode::kOne > 0) {  // block types have whole blocks
      F32 block[kLanes];
      for (int64_t r = 0; r < kLanes; ++r) {
        alignas(64) std::byte rest[32 * Decode::kOne] = {};
        __builtin_memcpy(rest, rows[r] + c * Decode::kOne,
                         static_cast<size_t>((end - c) * Decode::kOne));
        block[r] = PairsOf<Decode>(rest, 0);
      }
      Transpose(block);
      float* to = out + (c - begin) / 2 * layout.pair + v * layout.vector;
      for (int64_t p = 0; p < (end - c + 1) / 2; ++p) Store(to + p * layout.pair, block[p]);
    }
  }
}

// Rows from `row` on, as many as the layout has, and columns [begin, end), begin a multiple of 32
// and of the form's block -> panel.
template <typename Form>
void Expand(const PanelArgs& a, int64_t row, int64_t begin, int64_t end, PanelLayout layout,
            std::byte* panel) {
  if constexpr (requires { Form::kUnitBlocks; }) {
    ExpandUnits<Form>(a, row, begin, end, layout, panel);
  } else if constexpr (requires { Form::kCouples; }) {
    ExpandQ4K(a, row, begin, end, layout, panel);
  } else if constexpr (requires { Form::kPairs; }) {
    CopyPairs(a, row, begin, end, layout, panel);
  } else if constexpr (Form::kElements > 32) {
    ExpandLarge<Form>(a, row, begin, end, layout, panel);
  } else {
    ExpandSmall<Form>(a, row, begin, end, layout, panel);
  }
}

}  // namespace
}  // namespace tenon::TN_ISA

#endif
