// Few tokens times rows of Q4_K and Q6_K as they lie in the file, activations as integers of two
// bytes in the elements' own order. A block of 256 is four steps of 64 elements; the factors of its
// groups are made once and spread over the lanes of each step.
#include "tenon/kernels/cpu/avx512_bf16_vnni/narrow.h"
#include "tenon/kernels/cpu/simd.h"
#include "tenon/numeric/blocks/q4_k.h"
#include "tenon/numeric/blocks/q6_k.h"

namespace tenon::avx512_bf16_vnni {
namespace {

constexpr int64_t kAhead = 4096;  // bytes that the reads run ahead of
constexpr int64_t kSteps = 4;
constexpr int64_t kBlockActBytes = kSteps * kBytesGroupBytes;

// One number for the lower 32 bytes of a vector, one for the upper.
TN_INLINE __m512i Halves(int64_t lower, int64_t upper) {
  return _mm512_set_epi64(upper, upper, upper, upper, lower, lower, lower, lower);
}
TN_INLINE __m512i TwiceBytes32(const std::byte* p) {
  return _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
// Unsigned weights times the integers.
TN_INLINE __m512i Dot(__m512i w, const std::byte* x) {
  const __m512i high = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, _mm512_load_si512(x));
  return _mm512_dpbusd_epi32(_mm512_slli_epi32(high, 8), w, _mm512_load_si512(x + 64));
}
// Lane i of step s gets factor (16 s + i) / kLanesEach.
template <int kLanesEach>
TN_INLINE __m512 Spread(__m512 factors, int64_t step) {
  const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i index =
      _mm512_srli_epi32(_mm512_add_epi32(lane, _mm512_set1_epi32(static_cast<int32_t>(16 * step))),
                        kLanesEach == 8 ? 3 : 2);
  return _mm512_permutexvar_ps(index, factors);
}

// Activations of some tokens.
struct Tokens {
  const std::byte* x = nullptr;  // of the first, at the step's columns
  int64_t stride = 0;            // bytes
};

struct Q4K {
  using Block = BlockQ4K;
  // [8 scales | 8 minima] times the block's factors.
  TN_INLINE static __m512 Factors(const std::byte* p) {
    constexpr uint32_t kSix = 0x3F3F3F3F, kFour = 0x0F0F0F0F, kTwo = 0x03030303;
    const std::byte* scales = p + offsetof(BlockQ4K, scales);
    const auto a = LoadAs<uint32_t>(scales);
    const auto b = LoadAs<uint32_t>(scales + 4);
    const auto c = LoadAs<uint32_t>(scales + 8);
    const __m128i bytes =
        _mm_set_epi32(static_cast<int32_t>(((c >> 4) & kFour) | (((b >> 6) & kTwo) << 4)),
                      static_cast<int32_t>(b & kSix),
                      static_cast<int32_t>((c & kFour) | (((a >> 6) & kTwo) << 4)),
                      static_cast<int32_t>(a & kSix));
    const float d = HalfToFloat(LoadAs<uint16_t>(p));
    const float minimum = -HalfToFloat(LoadAs<uint16_t>(p + offsetof(BlockQ4K, dmin)));
    const __m512 factor = _mm512_insertf32x8(_mm512_set1_ps(d), _mm256_set1_ps(minimum), 1);
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)), factor);
  }
  template <int T>
  TN_INLINE static void Step(const std::byte* p, int64_t step, __m512 factors, Tokens tokens,
                             __m512* sums) {
    const std::byte* x = tokens.x;
    const __m512i q = _mm512_and_si512(
        _mm512_srlv_epi64(TwiceBytes32(p + offsetof(BlockQ4K, qs) + 32 * step), Halves(0, 4)),
        _mm512_set1_epi8(15));
    const __m512 scale = Spread<8>(factors, step);
    const __m512 minimum = Spread<8>(factors, step + 4);
    for (int t = 0; t < T; ++t, x += tokens.stride) {
      sums[t] = _mm512_fmadd_ps(minimum, _mm512_load_ps(x + 256), sums[t]);
      sums[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(Dot(q, x)),
                                _mm512_mul_ps(scale, _mm512_load_ps(x + 192)), sums[t]);
    }
  }
};

struct Q6K {
  using Block = BlockQ6K;
  TN_INLINE static __m512 Factors(const std::byte* p) {
    const __m128i scales =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + offsetof(BlockQ6K, scales)));
    const float d = HalfToFloat(LoadAs<uint16_t>(p + offsetof(BlockQ6K, d)));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(scales)), _mm512_set1_ps(d));
  }
  // Elements 64 step ...: the low or the high nibbles of 64 bytes, and two bits each of 32 bytes.
  TN_INLINE static __m512i Quants(const std::byte* p, int64_t step) {
    const __m512i low = _mm512_loadu_si512(p + 64 * (step / 2));
    const __m512i high = TwiceBytes32(p + offsetof(BlockQ6K, qh) + 32 * (step / 2));
    const __m512i top = step % 2 == 0 ? _mm512_sllv_epi64(high, Halves(4, 2))
                                      : _mm512_srlv_epi64(high, Halves(0, 2));
    const __m512i nibbles = step % 2 == 0 ? low : _mm512_srli_epi16(low, 4);
    return _mm512_or_si512(_mm512_and_si512(nibbles, _mm512_set1_epi8(15)),
                           _mm512_and_si512(top, _mm512_set1_epi8(0x30)));
  }
  template <int T>
  TN_INLINE static void Step(const std::byte* p, int64_t step, __m512 factors, Tokens tokens,
                             __m512* sums) {
    const std::byte* x = tokens.x;
    const __m512i q = Quants(p, step);
    const __m512 scale = Spread<4>(factors, step);
    for (int t = 0; t < T; ++t, x += tokens.stride) {
      const __m512i offset = _mm512_slli_epi32(_mm512_load_si512(x + 128), 5);  // weights - 32
      const __m512i dot = _mm512_add_epi32(Dot(q, x), offset);
      sums[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot),
                                _mm512_mul_ps(scale, _mm512_load_ps(x + 192)), sums[t]);
    }
  }
};

// T tokens from x on. Every other step has sums of its own: short chains.
template <typename Format, int T>
TN_INLINE void Row(const NarrowMatmulArgs& a, int64_t row, const std::byte* x, float* y) {
  constexpr int64_t kBytes = sizeof(typename Format::Block);
  constexpr int kSums = 2;
  const std::byte* w = a.w + row * a.row_bytes;
  __m512 sums[kSums][T];
  for (auto& step : sums) {
    for (auto& sum : step) sum = _mm512_setzero_ps();
  }
  for (int64_t block = 0; block < a.cols / Format::Block::kElements; ++block, w += kBytes) {
    for (int64_t i = 0; i < kBytes; i += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(w + kAhead + i), _MM_HINT_T0);
    }
    const __m512 factors = Format::Factors(w);
    for (int64_t step = 0; step < kSteps; ++step) {
      Format::template Step<T>(w, step, factors,
                               {x + block * kBlockActBytes + step * kBytesGroupBytes, a.x_stride},
                               sums[step % kSums]);
    }
  }
  const float bias = a.bias == nullptr ? 0.0f : a.bias[row];
  for (int t = 0; t < T; ++t) {
    __m512 sum = sums[0][t];
    for (int s = 1; s < kSums; ++s) sum = _mm512_add_ps(sum, sums[s][t]);
    y[t * a.y_stride + row] = _mm512_reduce_add_ps(sum) + bias;
  }
}

template <typename Format>
void Rows(const NarrowMatmulArgs& a, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    const auto x = [&](int64_t t) { return a.x + t * a.x_stride; };
    const auto y = [&](int64_t t) { return a.y + t * a.y_stride; };
    int64_t t = 0;
    for (; t + 4 <= a.num_tokens; t += 4) Row<Format, 4>(a, row, x(t), y(t));
    for (; t + 2 <= a.num_tokens; t += 2) Row<Format, 2>(a, row, x(t), y(t));
    if (t < a.num_tokens) Row<Format, 1>(a, row, x(t), y(t));
  }
}

}  // namespace

void AddKRows(MatmulKernels& matmul) {
  matmul.few[static_cast<int>(DType::kQ4_K)] = {{Rows<Q4K>, TN_KERNEL_NAME("rows_q4_k")},
                                                ActivationForm::kBytes};
  matmul.few[static_cast<int>(DType::kQ6_K)] = {{Rows<Q6K>, TN_KERNEL_NAME("rows_q6_k")},
                                                ActivationForm::kBytes};
}

}  // namespace tenon::avx512_bf16_vnni
