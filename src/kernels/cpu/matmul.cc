// Products with fp32 activations: rows are decoded to fp32, in registers for few tokens, then
// multiplied.
#include "tenon/kernels/cpu/cpu.h"
#include "tenon/kernels/cpu/decode.h"
#include "tenon/kernels/cpu/row_tiles.h"

namespace tenon::TN_ISA {
namespace {

// T tokens with kRows rows as they are stored, decoded in registers: the same sums as Tile.
template <typename Decode, int T>
TN_INLINE void StoredTile(const std::byte* const* rows, const MatmulKernelArgs& a, const float* x,
                          float* sums) {
  constexpr int64_t kVectors = Decode::kElements / kLanes;
  F32 sum[kRows][T] = {};
  const auto step = [&](int64_t i, auto decode, auto load) __attribute__((always_inline)) {
    for (int r = 0; r < kRows; ++r) {
      F32 w[kVectors];
      decode(rows[r], w);
      for (int64_t v = 0; v < kVectors; ++v) {
        for (int t = 0; t < T; ++t) {
          sum[r][t] = Fma(w[v], load(x + t * a.x_stride + i + v * kLanes), sum[r][t]);
        }
      }
    }
  };
  int64_t i = 0;
  int64_t at = 0;
  // Rows lie one after the other: running ahead over kRows of them is one stream.
  const std::byte* ahead = rows[0] + kAhead;
  for (; i + Decode::kElements <= a.cols; i += Decode::kElements, at += Decode::kBytes) {
    for (int64_t b = 0; b < kRows * Decode::kBytes; b += 64) __builtin_prefetch(ahead + b);
    ahead += kRows * Decode::kBytes;
    step(
        i,
        [&](const std::byte* row, F32* w)
            __attribute__((always_inline)) { Decode::Run(row + at, w); },
        [](const float* p) __attribute__((always_inline)) { return Load(p); });
  }
  if constexpr (Decode::kOne > 0) {
    if (i < a.cols) {
      const int64_t n = a.cols - i;
      step(
          i,
          [&](const std::byte* row, F32* w)
              __attribute__((always_inline)) { DecodeFirst<Decode>(row + at, n, w); },
          [&](const float* p) __attribute__((always_inline)) { return LoadFirst(p, n); });
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < T; ++t) sums[r * T + t] = Sum(sum[r][t]);
  }
}

template <typename Decode, int T>
TN_INLINE void StoredRows(const MatmulKernelArgs& a, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; row += kRows) {
    const int64_t count = row_end - row < kRows ? row_end - row : int64_t{kRows};
    const std::byte* rows[kRows];
    for (int64_t r = 0; r < kRows; ++r) rows[r] = a.w + (row + (r < count ? r : 0)) * a.row_bytes;
    float sums[kRows * T];
    StoredTile<Decode, T>(rows, a, a.x, sums);
    StoreSums<T>(sums, a, 0, row, count);
  }
}

template <typename Decode>
void Matmul(const MatmulKernelArgs& a, int64_t row_begin, int64_t row_end, float* scratch) {
  switch (a.num_tokens) {
    case 1:
      return StoredRows<Decode, 1>(a, row_begin, row_end);
#if defined(__AVX512F__)
    case 2:
      return StoredRows<Decode, 2>(a, row_begin, row_end);
    case 3:
      return StoredRows<Decode, 3>(a, row_begin, row_end);
    case 4:
      return StoredRows<Decode, 4>(a, row_begin, row_end);
#endif
    default:
      break;
  }
  MatmulDecoded(
      a, row_begin, row_end, scratch, [&](int64_t row, float* out) __attribute__((always_inline)) {
        DecodeRow<Decode>(a.w + row * a.row_bytes, a.cols, out);
      });
}

template <typename Decode>
void Add(MatmulKernels& matmul, DType dtype, const char* name) {
  matmul.of[static_cast<int>(dtype)] = {Matmul<Decode>, name};
}

}  // namespace

void AddMatmuls(MatmulKernels& matmul) {
  Add<DecodeF32>(matmul, DType::kF32, TN_KERNEL_NAME("matmul_f32"));
  Add<DecodeBf16>(matmul, DType::kBF16, TN_KERNEL_NAME("matmul_bf16"));
  Add<DecodeF16>(matmul, DType::kF16, TN_KERNEL_NAME("matmul_f16"));
  Add<DecodeQ4_0>(matmul, DType::kQ4_0, TN_KERNEL_NAME("matmul_q4_0"));
  Add<DecodeQ4_1>(matmul, DType::kQ4_1, TN_KERNEL_NAME("matmul_q4_1"));
  Add<DecodeQ8_0>(matmul, DType::kQ8_0, TN_KERNEL_NAME("matmul_q8_0"));
  Add<DecodeQ6K>(matmul, DType::kQ6_K, TN_KERNEL_NAME("matmul_q6_k"));
  Add<DecodeQ4K>(matmul, DType::kQ4_K, TN_KERNEL_NAME("matmul_q4_k"));
}

}  // namespace tenon::TN_ISA
