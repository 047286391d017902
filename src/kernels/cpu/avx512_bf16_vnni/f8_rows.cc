// Few tokens times rows of fp8 codes as they lie in the file; bf16 activations, fp32 sums, one
// scale per block of columns. A code is a bf16 number exactly, subnormals included: both of its
// bytes come from a table of 128, so that no conversion and no rounding of a weight is left.
#include "tenon/kernels/cpu/avx512_bf16_vnni/narrow.h"
#include "tenon/kernels/cpu/simd.h"
#include "tenon/numeric/codecs.h"

namespace tenon::avx512_bf16_vnni {
namespace {

constexpr int64_t kAhead = 8192;  // bytes that the reads run ahead of
constexpr int64_t kCodes = 64;    // of one step
constexpr int kRows = 4;

struct alignas(64) CodeTable {
  uint8_t at[128];
};
// Byte `byte` of the bf16 number of each code without its sign.
constexpr CodeTable TableOf(int byte) {
  CodeTable table = {};
  for (int code = 0; code < 128; ++code) {
    const auto bits = std::bit_cast<uint32_t>(F8E4M3ToFloat(static_cast<uint8_t>(code)));
    table.at[code] = static_cast<uint8_t>(bits >> (16 + 8 * byte));
  }
  return table;
}
constexpr CodeTable kLowBytes = TableOf(0);
constexpr CodeTable kHighBytes = TableOf(1);

// 64 numbers: of each sixteen the first eight, and the others.
struct Numbers {
  __m512bh first, second;
};

struct Decoder {
  const __m512i low[2] = {_mm512_load_si512(kLowBytes.at), _mm512_load_si512(kLowBytes.at + 64)};
  const __m512i high[2] = {_mm512_load_si512(kHighBytes.at), _mm512_load_si512(kHighBytes.at + 64)};
  const __m512i sign = _mm512_set1_epi8(-128);

  TN_INLINE Numbers Of(__m512i codes) const {
    constexpr int kOrWithSign = 0xF8;  // a | (b & c)
    const __m512i bytes = _mm512_permutex2var_epi8(low[0], codes, low[1]);
    const __m512i tops = _mm512_ternarylogic_epi32(
        _mm512_permutex2var_epi8(high[0], codes, high[1]), codes, sign, kOrWithSign);
    return {reinterpret_cast<__m512bh>(_mm512_unpacklo_epi8(bytes, tops)),
            reinterpret_cast<__m512bh>(_mm512_unpackhi_epi8(bytes, tops))};
  }
};

// The first n of 64 bf16 activations, in the order of Numbers; the others are 0.
TN_INLINE Numbers Activations(const std::byte* x, int64_t n) {
  const auto load = [&](int64_t begin) {
    if (n >= begin + 32) return _mm512_loadu_si512(x + 2 * begin);
    if (n <= begin) return _mm512_setzero_si512();
    return _mm512_maskz_loadu_epi16((uint32_t{1} << (n - begin)) - 1, x + 2 * begin);
  };
  const __m512i a = load(0);
  const __m512i b = load(32);
  return {reinterpret_cast<__m512bh>(_mm512_shuffle_i32x4(a, b, 0x88)),
          reinterpret_cast<__m512bh>(_mm512_shuffle_i32x4(a, b, 0xDD))};
}
TN_INLINE __m512i FirstCodes(const std::byte* p, int64_t n) {
  return _mm512_maskz_loadu_epi8((uint64_t{1} << n) - 1, p);
}

// Sums of R rows with T tokens.
template <int R, int T>
struct Sums {
  __m512 at[R][T];

  TN_INLINE void Clear() {
    for (auto& row : at) {
      for (auto& sum : row) sum = _mm512_setzero_ps();
    }
  }
};

// A sum is one chain for each block of columns and one over the blocks, whatever R and T are.
template <int R, int T>
TN_INLINE void Tile(const NarrowMatmulArgs& a, int64_t row, const std::byte* x, float* y) {
  const Decoder decoder;
  const std::byte* w = a.w + row * a.row_bytes;
  const float* scales[R];
  for (int r = 0; r < R; ++r) scales[r] = a.scales.Row(row + r);
  Sums<R, T> totals, sums;
  totals.Clear();
  const auto step = [&](int64_t c, int64_t n, auto codes) __attribute__((always_inline)) {
    Numbers tokens[T];
    for (int t = 0; t < T; ++t) tokens[t] = Activations(x + t * a.x_stride + 2 * c, n);
    for (int r = 0; r < R; ++r) {
      const Numbers numbers = decoder.Of(codes(w + r * a.row_bytes + c));
      for (int t = 0; t < T; ++t) {
        __m512& sum = sums.at[r][t];
        sum = _mm512_dpbf16_ps(sum, numbers.first, tokens[t].first);
        sum = _mm512_dpbf16_ps(sum, numbers.second, tokens[t].second);
      }
    }
  };
  int64_t c = 0;
  for (int64_t block = 0; c < a.cols; ++block) {
    const int64_t end = a.cols - c < a.scales.grid.cols ? a.cols : c + a.scales.grid.cols;
    sums.Clear();
    for (; c + kCodes <= end; c += kCodes) {
      for (int r = 0; r < R; ++r) __builtin_prefetch(w + c * R + kAhead + kCodes * r);
      step(c, kCodes, [](const std::byte* p) { return _mm512_loadu_si512(p); });
    }
    if (c < end) {
      step(c, end - c, [&](const std::byte* p) { return FirstCodes(p, end - c); });
      c = end;
    }
    for (int r = 0; r < R; ++r) {
      const __m512 scale = _mm512_set1_ps(scales[r][block]);
      for (int t = 0; t < T; ++t) {
        totals.at[r][t] = _mm512_fmadd_ps(sums.at[r][t], scale, totals.at[r][t]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    const float bias = a.bias == nullptr ? 0.0f : a.bias[row + r];
    for (int t = 0; t < T; ++t) {
      y[t * a.y_stride + row + r] = _mm512_reduce_add_ps(totals.at[r][t]) + bias;
    }
  }
}

template <int R>
TN_INLINE void AllTokens(const NarrowMatmulArgs& a, int64_t row) {
  int64_t t = 0;
  constexpr int kWide = 2;  // as many sums as registers hold
  for (; t + kWide <= a.num_tokens; t += kWide) {
    Tile<R, kWide>(a, row, a.x + t * a.x_stride, a.y + t * a.y_stride);
  }
  for (; t < a.num_tokens; ++t) Tile<R, 1>(a, row, a.x + t * a.x_stride, a.y + t * a.y_stride);
}

void Rows(const NarrowMatmulArgs& a, int64_t row_begin, int64_t row_end) {
  int64_t row = row_begin;
  for (; row + kRows <= row_end; row += kRows) AllTokens<kRows>(a, row);
  for (; row < row_end; ++row) AllTokens<1>(a, row);
}

}  // namespace

void AddF8Rows(MatmulKernels& matmul) {
  matmul.scaled[static_cast<int>(DType::kF8E4M3)].few = {
      {Rows, TN_KERNEL_NAME("rows_f8_e4m3_scaled")}, ActivationForm::kBf16};
}

}  // namespace tenon::avx512_bf16_vnni
