// Rows of int8 weights times activations that are int8 too, one scale for each row of either side:
// sums of integers, exact whatever their order. For any number of tokens.
#include "tenon/kernels/cpu/avx512_bf16_vnni/narrow.h"
#include "tenon/kernels/cpu/avx512_bf16_vnni/quad_sums.h"

namespace tenon::avx512_bf16_vnni {
namespace {

constexpr int64_t kAhead = 8192;  // bytes that the reads run ahead of
constexpr int64_t kStep = 64;     // columns
constexpr int kRows = kMatmulTileRows;
// Bytes of rows that all tokens meet before the next ones are read: they stay in L2.
constexpr int64_t kStretchBytes = int64_t{256} * 1024;

// What the sums of a token's row become numbers with.
struct Tail {
  float scale;
  int32_t offset;  // of weights + 128
};
TN_INLINE Tail TailOf(const NarrowMatmulArgs& a, const std::byte* x) {
  return LoadAs<Tail>(x + ActivationRowBytes(ActivationForm::kInt8Row, a.cols) - kInt8TailBytes);
}

// Element r: the sum of all of v[r].
TN_INLINE __m128i Totals(const __m512i* v) {
  const __m512i sums = QuadSums(v);
  const __m256i half =
      _mm256_add_epi32(_mm512_castsi512_si256(sums), _mm512_extracti64x4_epi64(sums, 1));
  return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

// kRows rows from `row` on, of which the first `count` exist.
struct RowTail {
  __m128 scales, bias;
  __mmask8 exist;

  TN_INLINE RowTail(const NarrowMatmulArgs& a, int64_t row, int64_t count)
      : exist(static_cast<__mmask8>((1 << count) - 1)) {
    alignas(16) float scale[kRows] = {};
    for (int64_t r = 0; r < count && a.cols > 0; ++r) scale[r] = *a.scales.Row(row + r);
    scales = _mm_load_ps(scale);
    bias = a.bias == nullptr ? _mm_setzero_ps() : _mm_maskz_loadu_ps(exist, a.bias + row);
  }
  TN_INLINE void Store(__m128i sums, const Tail& token, float* y) const {
    const __m128 exact = _mm_cvtepi32_ps(_mm_add_epi32(sums, _mm_set1_epi32(token.offset)));
    const __m128 product = _mm_mul_ps(_mm_mul_ps(exact, _mm_set1_ps(token.scale)), scales);
    _mm_mask_storeu_ps(y, exist, _mm_add_ps(product, bias));
  }
};

// Rows [row, row + count) with T tokens; rows that are lacking repeat the first.
template <int T>
TN_INLINE void Tile(const NarrowMatmulArgs& a, int64_t row, int64_t count, int64_t token) {
  const std::byte* rows[kRows];
  for (int64_t r = 0; r < kRows; ++r) rows[r] = a.w + (row + (r < count ? r : 0)) * a.row_bytes;
  const std::byte* x = a.x + token * a.x_stride;
  const __m512i flip = _mm512_set1_epi8(-128);  // weights + 128 are the unsigned side
  __m512i sums[T][kRows];
  for (auto& of_token : sums) {
    for (auto& sum : of_token) sum = _mm512_setzero_si512();
  }
  const auto step = [&](int64_t c, auto load) __attribute__((always_inline)) {
    __m512i w[kRows];
    for (int r = 0; r < kRows; ++r) w[r] = _mm512_xor_si512(load(rows[r] + c), flip);
    for (int t = 0; t < T; ++t) {
      const __m512i integers = _mm512_load_si512(x + t * a.x_stride + c);
      for (int r = 0; r < kRows; ++r) sums[t][r] = _mm512_dpbusd_epi32(sums[t][r], w[r], integers);
    }
  };
  int64_t c = 0;
  for (; c + kStep <= a.cols; c += kStep) {
    for (int r = 0; r < kRows; ++r) __builtin_prefetch(rows[0] + c * kRows + kAhead + kStep * r);
    step(c, [](const std::byte* p) { return _mm512_loadu_si512(p); });
  }
  if (c < a.cols) {
    step(c, [&](const std::byte* p) {
      return _mm512_maskz_loadu_epi8((uint64_t{1} << (a.cols - c)) - 1, p);
    });
  }
  const RowTail tail(a, row, count);
  for (int t = 0; t < T; ++t) {
    tail.Store(Totals(sums[t]), TailOf(a, x + t * a.x_stride),
               a.y + (token + t) * a.y_stride + row);
  }
}

template <int T>
TN_INLINE void Tokens(const NarrowMatmulArgs& a, int64_t row, int64_t row_end, int64_t token) {
  for (; row < row_end; row += kRows) {
    Tile<T>(a, row, row_end - row < kRows ? row_end - row : kRows, token);
  }
}

void Rows(const NarrowMatmulArgs& a, int64_t row_begin, int64_t row_end) {
  const int64_t groups = kStretchBytes / (kRows * (a.row_bytes > 0 ? a.row_bytes : 1));
  const int64_t stretch = kRows * (groups > 0 ? groups : 1);
  for (int64_t row = row_begin; row < row_end; row += stretch) {
    const int64_t end = row_end - row < stretch ? row_end : row + stretch;
    int64_t t = 0;
    for (; t + 4 <= a.num_tokens; t += 4) Tokens<4>(a, row, end, t);
    for (; t + 2 <= a.num_tokens; t += 2) Tokens<2>(a, row, end, t);
    if (t < a.num_tokens) Tokens<1>(a, row, end, t);
  }
}

}  // namespace

void AddInt8Rows(MatmulKernels& matmul) {
  matmul.scaled[static_cast<int>(DType::kI8)].per_token = {
      {Rows, TN_KERNEL_NAME("rows_i8_per_token")}, ActivationForm::kInt8Row};
}

}  // namespace tenon::avx512_bf16_vnni
