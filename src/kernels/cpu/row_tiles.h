// Rows decoded to fp32, four at a time, times tokens. Each (row, token) is one chain of sixteen
// lanes, so that its sum depends on nothing else. For the sources of this folder only. Thread-safe.
#pragma once

#include "tenon/kernels/cpu/simd.h"

namespace tenon::TN_ISA {
namespace {

constexpr int kRows = kMatmulTileRows;
constexpr int64_t kAhead = 4096;  // bytes that the reads of stored rows run ahead of
// Accumulators that the registers hold beside the operands.
#if defined(__AVX512F__)
constexpr int kTokens = 4;
#else
constexpr int kTokens = 1;
#endif

// Of kRows decoded rows, `cols` apart, with T tokens.
template <int T>
TN_INLINE void Tile(const float* w, const MatmulKernelArgs& a, const float* x, float* sums) {
  F32 sum[kRows][T] = {};
  int64_t i = 0;
  for (; i + kLanes <= a.cols; i += kLanes) {
    F32 row[kRows];
    for (int r = 0; r < kRows; ++r) row[r] = Load(w + r * a.cols + i);
    for (int t = 0; t < T; ++t) {
      const F32 v = Load(x + t * a.x_stride + i);
      for (int r = 0; r < kRows; ++r) sum[r][t] = Fma(row[r], v, sum[r][t]);
    }
  }
  if (i < a.cols) {
    const int64_t rest = a.cols - i;
    for (int t = 0; t < T; ++t) {
      const F32 v = LoadFirst(x + t * a.x_stride + i, rest);
      for (int r = 0; r < kRows; ++r) {
        sum[r][t] = Fma(LoadFirst(w + r * a.cols + i, rest), v, sum[r][t]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < T; ++t) sums[r * T + t] = Sum(sum[r][t]);
  }
}

template <int T>
TN_INLINE void StoreSums(const float* sums, const MatmulKernelArgs& a, int64_t token, int64_t row,
                         int64_t rows) {
  for (int t = 0; t < T; ++t) {
    for (int64_t r = 0; r < rows; ++r) {
      const float bias = a.bias == nullptr ? 0.0f : a.bias[row + r];
      a.y[(token + t) * a.y_stride + row + r] = sums[r * T + t] + bias;
    }
  }
}

template <int T>
TN_INLINE void Tokens(const float* w, const MatmulKernelArgs& a, int64_t token, int64_t row,
                      int64_t rows) {
  float sums[kRows * T];
  Tile<T>(w, a, a.x + token * a.x_stride, sums);
  StoreSums<T>(sums, a, token, row, rows);
}

// Rows [row, row + rows) times all tokens; a group of kRows that is not full repeats its last row.
// Tokens outside, so that a few of them stay in L1 while all decoded rows pass.
TN_INLINE void Multiply(const MatmulKernelArgs& a, const float* decoded, int64_t row,
                        int64_t rows) {
  const auto groups = [&](auto multiply) __attribute__((always_inline)) {
    for (int64_t g = 0; g < rows; g += kRows) {
      multiply(decoded + g * a.cols, row + g, rows - g < kRows ? rows - g : int64_t{kRows});
    }
  };
  int64_t t = 0;
  for (; t + kTokens <= a.num_tokens; t += kTokens) {
    groups([&](const float* w, int64_t first, int64_t n)
               __attribute__((always_inline)) { Tokens<kTokens>(w, a, t, first, n); });
  }
  for (; t < a.num_tokens; ++t) {
    groups([&](const float* w, int64_t first, int64_t n)
               __attribute__((always_inline)) { Tokens<1>(w, a, t, first, n); });
  }
}

// Rows [row_begin, row_end) times all tokens by way of scratch. decode(row, out): out [cols].
template <typename DecodeRow>
TN_INLINE void MatmulDecoded(const MatmulKernelArgs& a, int64_t row_begin, int64_t row_end,
                             float* scratch, DecodeRow decode) {
  for (int64_t row = row_begin; row < row_end; row += kMatmulScratchRows) {
    const int64_t rest = row_end - row;
    const int64_t rows = rest < kMatmulScratchRows ? rest : kMatmulScratchRows;
    const int64_t filled = (rows + kRows - 1) / kRows * kRows;
    for (int64_t r = 0; r < filled; ++r) {
      decode(row + (r < rows ? r : rows - 1), scratch + r * a.cols);
    }
    Multiply(a, scratch, row, rows);
  }
}

}  // namespace
}  // namespace tenon::TN_ISA
