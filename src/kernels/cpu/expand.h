// Rows of weights, or groups of packed ones, to a panel of bf16 pairs (matmul_kernels.h). For the
// sources of instruction sets that have bf16. Thread-safe.
#pragma once

#include "tenon/kernels/cpu/codes.h"
#include "tenon/kernels/cpu/decode.h"
#include "tenon/kernels/cpu/expand_packed.h"
#include "tenon/kernels/cpu/product.h"
#include "tenon/kernels/cpu/transpose.h"

#if defined(__AVX512BF16__)

namespace tenon::TN_ISA {
namespace {

TN_INLINE F32 PairsOf(F32 low, F32 high) {
  return reinterpret_cast<F32>(
      _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(high), reinterpret_cast<__m512>(low)));
}

// Sixteen rows of a weight; rows that are lacking repeat the last one. A form knows where numbers
// [c, c + 32) of a row start, and gives numbers there as bf16, sixteen pairs.
template <typename Decode>
struct StoredRows16 {
  static constexpr int64_t kOne = Decode::kOne;  // bytes of a number; 0: of blocks, always whole
  const std::byte* rows[kLanes];

  TN_INLINE StoredRows16(const PanelArgs& a, int64_t row) {
    for (int64_t r = 0; r < kLanes; ++r) {
      rows[r] = a.w + (row + r < a.rows ? row + r : a.rows - 1) * a.row_bytes;
    }
  }
  TN_INLINE const std::byte* At(int64_t r, int64_t c) const {
    return rows[r] + (kOne > 0 ? c * kOne : c / 32 * Decode::kBytes);
  }
  TN_INLINE F32 Pairs(int64_t /*r*/, int64_t /*c*/, const std::byte* p) const {
    if constexpr (requires { Decode::kBf16; }) {
      return LoadAs<F32>(p);  // they are pairs already
    } else if constexpr (Decode::kElements == kLanes) {
      F32 low;
      F32 high;
      Decode::Run(p, &low);
      Decode::Run(p + kLanes * kOne, &high);
      return PairsOf(low, high);
    } else {
      static_assert(Decode::kElements == 32);
      F32 values[2];
      Decode::Run(p, values);
      return PairsOf(values[0], values[1]);
    }
  }
};

// Codes with scales beside them, as a form of weights.
template <typename Codes>
struct Scaled {
  static constexpr int64_t kElements = kLanes;
  static constexpr bool kScaled = true;
};
template <typename Codes>
struct StoredRows16<Scaled<Codes>> {
  static constexpr int64_t kOne = 1;
  const std::byte* rows[kLanes];
  const float* scales[kLanes];
  const int64_t scale_cols;

  TN_INLINE StoredRows16(const PanelArgs& a, int64_t row) : scale_cols(a.scales.grid.cols) {
    for (int64_t r = 0; r < kLanes; ++r) {
      const int64_t at = row + r < a.rows ? row + r : a.rows - 1;
      rows[r] = a.w + at * a.row_bytes;
      scales[r] = a.scales.Row(at);
    }
  }
  TN_INLINE const std::byte* At(int64_t r, int64_t c) const { return rows[r] + c; }
  TN_INLINE F32 Pairs(int64_t r, int64_t c, const std::byte* p) const {
    const F32 scale = All(scales[r][c / scale_cols] * Codes::kFactor);
    return PairsOf(Codes::Numbers(p) * scale, Codes::Numbers(p + kLanes) * scale);
  }
};

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
          pairs[r][k] = PairsOf(values[2 * k], values[2 * k + 1]);
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

template <typename Form>
void ExpandSmall(const PanelArgs& a, int64_t row, int64_t begin, int64_t end, PanelLayout layout,
                 std::byte* panel) {
  auto* out = reinterpret_cast<float*>(panel);  // pairs, as bit patterns
  for (int64_t v = 0; v < layout.vectors; ++v) {
    const StoredRows16<Form> rows(a, row + v * kLanes);
    int64_t c = begin;
    for (; c + 32 <= end; c += 32) {
      F32 block[kLanes];
      for (int64_t r = 0; r < kLanes; ++r) block[r] = rows.Pairs(r, c, rows.At(r, c));
      Transpose(block);
      float* to = out + (c - begin) / 2 * layout.pair + v * layout.vector;
      for (int64_t p = 0; p < kLanes; ++p) Store(to + p * layout.pair, block[p]);
    }
    if (c == end) continue;
    if constexpr (rows.kOne > 0) {  // block types have whole blocks
      F32 block[kLanes];
      for (int64_t r = 0; r < kLanes; ++r) {
        alignas(64) std::byte rest[32 * rows.kOne] = {};
        __builtin_memcpy(rest, rows.At(r, c), static_cast<size_t>((end - c) * rows.kOne));
        block[r] = rows.Pairs(r, c, rest);
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
