// Products of codes that have scales beside them with fp32 activations. A weight is code * scale,
// rounded to fp32 once, whether it stays in registers (few tokens) or goes through scratch.
#include "tenon/kernels/cpu/codes.h"
#include "tenon/kernels/cpu/cpu.h"
#include "tenon/kernels/cpu/row_tiles.h"

namespace tenon::TN_ISA {
namespace {

// kRows rows of a matrix; rows that are lacking repeat the first.
struct CodeRows {
  const std::byte* codes[kRows];
  const float* scales[kRows];  // [blocks of columns]

  TN_INLINE CodeRows(const MatmulKernelArgs& a, int64_t row, int64_t count) {
    for (int64_t r = 0; r < kRows; ++r) {
      const int64_t at = row + (r < count ? r : 0);
      codes[r] = a.w + at * a.row_bytes;
      scales[r] = a.scales.Row(at);
    }
  }
};

// Calls block(b, begin, end) for the blocks of columns that have a scale each.
template <typename Block>
TN_INLINE void ForBlocks(const MatmulKernelArgs& a, Block block) {
  int64_t begin = 0;
  for (int64_t b = 0; begin < a.cols; ++b) {
    const int64_t end = a.cols - begin < a.scales.grid.cols ? a.cols : begin + a.scales.grid.cols;
    block(b, begin, end);
    begin = end;
  }
}

// T tokens with the rows: the same sums as Tile.
template <typename Codes, int T>
TN_INLINE void CodesTile(const CodeRows& rows, const MatmulKernelArgs& a, float* sums) {
  F32 sum[kRows][T] = {};
  const std::byte* ahead = rows.codes[0] + kAhead;
  ForBlocks(
      a, [&](int64_t b, int64_t i, int64_t end) __attribute__((always_inline)) {
        F32 scale[kRows];
        for (int r = 0; r < kRows; ++r) scale[r] = All(rows.scales[r][b] * Codes::kFactor);
        for (; i + kLanes <= end; i += kLanes) {
          static_assert(kRows * kLanes == 64);
          __builtin_prefetch(ahead);
          ahead += kRows * kLanes;
          for (int r = 0; r < kRows; ++r) {
            const F32 w = Codes::Numbers(rows.codes[r] + i) * scale[r];
            for (int t = 0; t < T; ++t) {
              sum[r][t] = Fma(w, Load(a.x + t * a.x_stride + i), sum[r][t]);
            }
          }
        }
        if (i == end) return;
        for (int r = 0; r < kRows; ++r) {
          const F32 w = FirstNumbers<Codes>(rows.codes[r] + i, end - i) * scale[r];
          for (int t = 0; t < T; ++t) {
            sum[r][t] = Fma(w, LoadFirst(a.x + t * a.x_stride + i, end - i), sum[r][t]);
          }
        }
      });
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < T; ++t) sums[r * T + t] = Sum(sum[r][t]);
  }
}

template <typename Codes, int T>
TN_INLINE void CodesRows(const MatmulKernelArgs& a, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; row += kRows) {
    const int64_t count = row_end - row < kRows ? row_end - row : int64_t{kRows};
    float sums[kRows * T];
    CodesTile<Codes, T>(CodeRows(a, row, count), a, sums);
    StoreSums<T>(sums, a, 0, row, count);
  }
}

// out [cols]
template <typename Codes>
TN_INLINE void DecodeCodes(const MatmulKernelArgs& a, int64_t row, float* out) {
  const std::byte* codes = a.w + row * a.row_bytes;
  const float* scales = a.scales.Row(row);
  ForBlocks(
      a, [&](int64_t b, int64_t i, int64_t end) __attribute__((always_inline)) {
        const F32 scale = All(scales[b] * Codes::kFactor);
        for (; i + kLanes <= end; i += kLanes) Store(out + i, Codes::Numbers(codes + i) * scale);
        if (i < end) {
          StoreFirst(out + i, FirstNumbers<Codes>(codes + i, end - i) * scale, end - i);
        }
      });
}

template <typename Codes>
void Matmul(const MatmulKernelArgs& a, int64_t row_begin, int64_t row_end, float* scratch) {
  switch (a.num_tokens) {
    case 1:
      return CodesRows<Codes, 1>(a, row_begin, row_end);
#if defined(__AVX512F__)
    case 2:
      return CodesRows<Codes, 2>(a, row_begin, row_end);
    case 3:
      return CodesRows<Codes, 3>(a, row_begin, row_end);
    case 4:
      return CodesRows<Codes, 4>(a, row_begin, row_end);
#endif
    default:
      return MatmulDecoded(
          a, row_begin, row_end,
          scratch, [&](int64_t row, float* out) __attribute__((always_inline)) {
            DecodeCodes<Codes>(a, row, out);
          });
  }
}

}  // namespace

void AddScaledMatmuls(MatmulKernels& matmul) {
  const auto add = [&](DType dtype, MatmulFunction* run, const char* name) {
    matmul.scaled[static_cast<int>(dtype)].fp32 = {run, name};
  };
  add(DType::kF8E4M3, Matmul<CodesF8E4M3>, TN_KERNEL_NAME("matmul_f8_e4m3_scaled"));
  add(DType::kI8, Matmul<CodesI8>, TN_KERNEL_NAME("matmul_i8_scaled"));
}

}  // namespace tenon::TN_ISA
