// Few tokens times packed weights: sixteen rows are the lanes of a sum, an activation's four bytes
// (or pair of bf16) meet all of them at once.
#include "tenon/kernels/cpu/avx512_bf16_vnni/narrow.h"
#include "tenon/kernels/cpu/packed_weights.h"

namespace tenon::avx512_bf16_vnni {
namespace {

// Bytes that the reads run ahead of; groups, and matrices held one after the other, are one stream.
constexpr int64_t kAhead = 4096;

TN_INLINE void Prefetch(const std::byte* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T0);
  }
}

template <typename T>
TN_INLINE T Scalar(const std::byte* p) {
  T value;
  __builtin_memcpy(&value, p, sizeof(value));
  return value;
}

// T blocks of activations meet the quants of one block of 16 rows.
template <typename Format, int T>
struct BlockDot {
  TN_INLINE BlockDot(const std::byte* activations, int64_t stride)
      : x(activations), x_stride(stride) {
    for (int t = 0; t < T; ++t) {
      high[t] = _mm512_setzero_si512();
      const std::byte* offsets = x + t * x_stride + (Format::kOffset == 8 ? 72 : 76);
      low[t] = Format::kOffset == 0 ? _mm512_setzero_si512()
                                    : _mm512_set1_epi32(Scalar<int32_t>(offsets));
    }
  }
  // Columns [4 at, 4 at + 4).
  TN_INLINE void Add(__m512i quants, int at) {
    for (int t = 0; t < T; ++t) {
      const std::byte* four = x + t * x_stride + 4 * at;
      high[t] = _mm512_dpbusd_epi32(high[t], quants, _mm512_set1_epi32(Scalar<int32_t>(four)));
      low[t] = _mm512_dpbusd_epi32(low[t], quants, _mm512_set1_epi32(Scalar<int32_t>(four + 32)));
    }
  }
  TN_INLINE void AddVectors(const std::byte* w) {
    const __m512i low_half = _mm512_set1_epi8(15);
    const __m512i shift = _mm512_set1_epi64(0x1020408000000000);  // the bit matrix of byte >> 4
    for (int v = 0; v < Format::kBlockVectors; ++v) {
      const __m512i quants = _mm512_load_si512(w + v * kVectorBytes);
      if constexpr (Format::kNibbles) {
        Add(_mm512_and_si512(quants, low_half), v);
        Add(_mm512_gf2p8affine_epi64_epi8(quants, shift, 0), 4 + v);
      } else {
        Add(quants, v);
      }
    }
  }
  TN_INLINE void AddTo(const std::byte* scales, __m512* sums) const {
    const __m512 scale = HalfRows(scales);
    for (int t = 0; t < T; ++t) {
      const std::byte* factors = x + t * x_stride + 64;
      const __m512i dot = _mm512_add_epi32(_mm512_slli_epi32(high[t], 8), low[t]);
      if constexpr (Format::kHasMinimum) {
        sums[t] = _mm512_fmadd_ps(HalfRows(scales + 2 * kPackedRows),
                                  _mm512_set1_ps(Scalar<float>(factors + 4)), sums[t]);
      }
      sums[t] =
          _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot),
                          _mm512_mul_ps(scale, _mm512_set1_ps(Scalar<float>(factors))), sums[t]);
    }
  }

  const std::byte* x;
  int64_t x_stride;
  __m512i high[T], low[T];
};

template <typename Format>
struct Blocks {
  template <int T>
  TN_INLINE static void Sum(const NarrowMatmulArgs& a, const std::byte* w, const std::byte* x,
                            __m512* sums) {
    const int64_t units = (a.cols + kUnitCols<Format> - 1) / kUnitCols<Format>;
    for (int64_t u = 0; u < units; ++u, w += kUnitBytes<Format>) {
      Prefetch(w + kAhead, kUnitBytes<Format>);
      for (int64_t b = 0; b < Format::kUnitBlocks; ++b, x += kIntegersBlockBytes) {
        BlockDot<Format, T> dot(x, a.x_stride);
        dot.AddVectors(w + kHeadBytes + b * Format::kBlockVectors * kVectorBytes);
        dot.AddTo(w + b * 2 * kPackedRows, sums);
      }
    }
  }
};

struct Bf16 {
  static constexpr int kChains = 4;
  template <int T>
  TN_INLINE static void Sum(const NarrowMatmulArgs& a, const std::byte* w, const std::byte* x,
                            __m512* sums) {
    __m512 chains[kChains][T];
    for (auto& chain : chains) {
      for (auto& sum : chain) sum = _mm512_setzero_ps();
    }
    const int64_t pairs = (a.cols + kBf16UnitCols - 1) / kBf16UnitCols * (kBf16UnitCols / 2);
    for (int64_t p = 0; p < pairs; p += kChains) {
      Prefetch(w + p * kVectorBytes + kAhead, kChains * kVectorBytes);
      for (int k = 0; k < kChains; ++k) {
        const auto row = reinterpret_cast<__m512bh>(_mm512_load_si512(w + (p + k) * kVectorBytes));
        for (int t = 0; t < T; ++t) {
          const auto pair = Scalar<int32_t>(x + t * a.x_stride + 4 * (p + k));
          chains[k][t] = _mm512_dpbf16_ps(chains[k][t], row,
                                          reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair)));
        }
      }
    }
    for (int t = 0; t < T; ++t) {
      sums[t] = _mm512_add_ps(_mm512_add_ps(chains[0][t], chains[1][t]),
                              _mm512_add_ps(chains[2][t], chains[3][t]));
    }
  }
};

// T tokens with the 16 rows from `row` on, of which the masked ones exist.
template <typename Format, int T>
TN_INLINE void Tokens(const NarrowMatmulArgs& a, int64_t row, __mmask16 mask, int64_t t) {
  __m512 sums[T];
  for (auto& sum : sums) sum = _mm512_setzero_ps();
  Format::template Sum<T>(a, a.w + row * a.row_bytes, a.x + t * a.x_stride, sums);
  const __m512 bias =
      a.bias == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, a.bias + row);
  for (int i = 0; i < T; ++i) {
    _mm512_mask_storeu_ps(a.y + (t + i) * a.y_stride + row, mask, _mm512_add_ps(sums[i], bias));
  }
}

template <typename Format>
void Groups(const NarrowMatmulArgs& a, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; row += kPackedRows) {
    const int64_t rows = row_end - row < kPackedRows ? row_end - row : kPackedRows;
    const auto mask = static_cast<__mmask16>((1 << rows) - 1);
    int64_t t = 0;
    for (; t + 4 <= a.num_tokens; t += 4) Tokens<Format, 4>(a, row, mask, t);
    for (; t + 2 <= a.num_tokens; t += 2) Tokens<Format, 2>(a, row, mask, t);
    if (t < a.num_tokens) Tokens<Format, 1>(a, row, mask, t);
  }
}

template <typename Format>
void Add(MatmulKernels& matmul, DType dtype, const char* name, ActivationForm form) {
  matmul.packed[static_cast<int>(dtype)].few = {{Groups<Format>, name}, form};
}

}  // namespace

void AddPackedRows(MatmulKernels& matmul) {
  const ActivationForm integers = ActivationForm::kIntegers;
  Add<Blocks<PackedQ4_0>>(matmul, DType::kQ4_0, TN_KERNEL_NAME("packed_q4_0"), integers);
  Add<Blocks<PackedQ4_1>>(matmul, DType::kQ4_1, TN_KERNEL_NAME("packed_q4_1"), integers);
  Add<Blocks<PackedQ8_0>>(matmul, DType::kQ8_0, TN_KERNEL_NAME("packed_q8_0"), integers);
  Add<Bf16>(matmul, DType::kBF16, TN_KERNEL_NAME("packed_bf16"), ActivationForm::kBf16);
}

}  // namespace tenon::avx512_bf16_vnni
