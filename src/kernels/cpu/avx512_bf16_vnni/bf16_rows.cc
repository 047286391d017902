// Few tokens times rows of bf16 as they lie in the file; bf16 activations, fp32 sums.
#include "tenon/kernels/cpu/avx512_bf16_vnni/narrow.h"
#include "tenon/kernels/cpu/simd.h"

namespace tenon::avx512_bf16_vnni {
namespace {

constexpr int64_t kAhead = 8192;  // bytes that the reads run ahead of
constexpr int64_t kPairs = 32;    // numbers of one vector
constexpr int kRows = 4;
constexpr int kTokens = 4;

TN_INLINE __m512bh Numbers(const std::byte* p) {
  return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p));
}
TN_INLINE __m512bh FirstNumbers(const std::byte* p, int64_t n) {
  return reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi16((uint32_t{1} << n) - 1, p));
}

// R rows with T tokens. A sum is one chain, whatever R and T are, but for the two halves that a
// single row alternates between.
template <int R, int T>
TN_INLINE void Tile(const NarrowMatmulArgs& a, const std::byte* w, const std::byte* x, float* y) {
  __m512 sums[2][R][T];
  for (auto& half : sums) {
    for (auto& row : half) {
      for (auto& sum : row) sum = _mm512_setzero_ps();
    }
  }
  const auto step = [&](int half, int64_t c, auto load) __attribute__((always_inline)) {
    __m512bh tokens[T];
    for (int t = 0; t < T; ++t) tokens[t] = load(x + t * a.x_stride + 2 * c);
    for (int r = 0; r < R; ++r) {
      const __m512bh row = load(w + r * a.row_bytes + 2 * c);
      for (int t = 0; t < T; ++t) {
        sums[half][r][t] = _mm512_dpbf16_ps(sums[half][r][t], row, tokens[t]);
      }
    }
  };
  const auto whole = [](const std::byte* p) { return Numbers(p); };
  int64_t c = 0;
  for (; c + 2 * kPairs <= a.cols; c += 2 * kPairs) {
    for (int r = 0; r < R; ++r) {
      const auto* ahead = reinterpret_cast<const char*>(w + 2 * c * R + kAhead + int64_t{128} * r);
      _mm_prefetch(ahead, _MM_HINT_T0);
      _mm_prefetch(ahead + 64, _MM_HINT_T0);
    }
    step(0, c, whole);
    step(1, c + kPairs, whole);
  }
  if (c + kPairs <= a.cols) {
    step(0, c, whole);
    c += kPairs;
  }
  if (c < a.cols) {
    step(1, c, [&](const std::byte* p) { return FirstNumbers(p, a.cols - c); });
  }
  for (int r = 0; r < R; ++r) {
    for (int t = 0; t < T; ++t) {
      y[t * a.y_stride + r] = _mm512_reduce_add_ps(_mm512_add_ps(sums[0][r][t], sums[1][r][t]));
    }
  }
}

template <int R>
TN_INLINE void AllTokens(const NarrowMatmulArgs& a, int64_t row) {
  const std::byte* w = a.w + row * a.row_bytes;
  int64_t t = 0;
  constexpr int kWide = R == 1 ? kTokens : 2;  // as many sums as registers hold
  for (; t + kWide <= a.num_tokens; t += kWide) {
    Tile<R, kWide>(a, w, a.x + t * a.x_stride, a.y + t * a.y_stride + row);
  }
  for (; t < a.num_tokens; ++t) Tile<R, 1>(a, w, a.x + t * a.x_stride, a.y + t * a.y_stride + row);
  if (a.bias == nullptr) return;
  for (t = 0; t < a.num_tokens; ++t) {
    for (int r = 0; r < R; ++r) a.y[t * a.y_stride + row + r] += a.bias[row + r];
  }
}

void Rows(const NarrowMatmulArgs& a, int64_t row_begin, int64_t row_end) {
  int64_t row = row_begin;
  for (; row + kRows <= row_end; row += kRows) AllTokens<kRows>(a, row);
  for (; row < row_end; ++row) AllTokens<1>(a, row);
}

}  // namespace

void AddBf16Rows(MatmulKernels& matmul) {
  matmul.few[static_cast<int>(DType::kBF16)] = {{Rows, TN_KERNEL_NAME("rows_bf16")},
                                                ActivationForm::kBf16};
}

}  // namespace tenon::avx512_bf16_vnni
