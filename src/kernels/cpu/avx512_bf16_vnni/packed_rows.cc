// Few tokens times packed weights: sixteen rows are the lanes of a sum, an activation's four bytes
// (or pair of bf16) meet all of them at once.
#include "tenon/kernels/cpu/avx512_bf16_vnni/narrow.h"
#include "tenon/kernels/cpu/packed_weights.h"

namespace tenon::avx512_bf16_vnni {
namespace {

// Bytes that the reads of each group run ahead of.
constexpr int64_t kAhead = 2048;

// Groups whose units are read in turn, one token's or several: streams that the memory serves at
// once. One stream had 18.6 GB/s from DRAM where four had 22.6 (docs/performance.md).
template <int T>
constexpr int kStreams = kPackedStreams / T;

TN_INLINE void Prefetch(const std::byte* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T0);
  }
}

// The streams' bytes from `offset` on, some of their groups' bytes ahead; where a group ends, the
// group that its stream goes on with.
template <int S>
TN_INLINE void PrefetchStreams(const std::byte* w, int64_t group_bytes, int64_t offset,
                               int64_t bytes) {
  int64_t at = offset + kAhead;
  if (at >= group_bytes) at += (S - 1) * group_bytes;
  for (int s = 0; s < S; ++s) Prefetch(w + s * group_bytes + at, bytes);
}

template <typename T>
TN_INLINE T Scalar(const std::byte* p) {
  T value;
  __builtin_memcpy(&value, p, sizeof(value));
  return value;
}

TN_INLINE __m512i LowHalves(__m512i bytes) { return _mm512_and_si512(bytes, _mm512_set1_epi8(15)); }
TN_INLINE __m512i HighHalves(__m512i bytes) {
  // The bit matrix of byte >> 4.
  return _mm512_gf2p8affine_epi64_epi8(bytes, _mm512_set1_epi64(0x1020408000000000), 0);
}

// T blocks of activations meet the quants of one block of 16 rows; kOffset is what the quants have
// been raised by.
template <int kOffset, int T>
struct BlockDot {
  TN_INLINE BlockDot(const std::byte* activations, int64_t stride)
      : x(activations), x_stride(stride) {
    for (int t = 0; t < T; ++t) {
      high[t] = _mm512_setzero_si512();
      const std::byte* offsets = x + t * x_stride + (kOffset == 8 ? 72 : 76);
      low[t] = kOffset == 0 ? _mm512_setzero_si512() : _mm512_set1_epi32(Scalar<int32_t>(offsets));
    }
  }
  // Columns [4 at, 4 at + 4).
  TN_INLINE void Add(__m512i quants, int64_t at) {
    for (int t = 0; t < T; ++t) {
      const std::byte* four = x + t * x_stride + 4 * at;
      high[t] = _mm512_dpbusd_epi32(high[t], quants, _mm512_set1_epi32(Scalar<int32_t>(four)));
      low[t] = _mm512_dpbusd_epi32(low[t], quants, _mm512_set1_epi32(Scalar<int32_t>(four + 32)));
    }
  }
  // The activations' scales and sums.
  TN_INLINE __m512 ScaleOf(int t) const {
    return _mm512_set1_ps(Scalar<float>(x + t * x_stride + 64));
  }
  TN_INLINE __m512 SumOf(int t) const {
    return _mm512_set1_ps(Scalar<float>(x + t * x_stride + 68));
  }
  TN_INLINE void AddTo(__m512 scale, __m512* sums) const {
    for (int t = 0; t < T; ++t) {
      const __m512i dot = _mm512_add_epi32(_mm512_slli_epi32(high[t], 8), low[t]);
      sums[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(scale, ScaleOf(t)), sums[t]);
    }
  }

  const std::byte* x;
  int64_t x_stride;
  __m512i high[T], low[T];
};

// A block's vectors and scales.
template <typename Format, int T>
TN_INLINE void AddBlock(BlockDot<Format::kOffset, T> dot, const std::byte* vectors,
                        const std::byte* scales, __m512* sums) {
  for (int64_t v = 0; v < Format::kBlockVectors; ++v) {
    const __m512i quants = _mm512_load_si512(vectors + v * kVectorBytes);
    if constexpr (Format::kNibbles) {
      dot.Add(LowHalves(quants), v);
      dot.Add(HighHalves(quants), 4 + v);
    } else {
      dot.Add(quants, v);
    }
  }
  if constexpr (Format::kHasMinimum) {
    const __m512 minimum = HalfRows(scales + 2 * kPackedRows);
    for (int t = 0; t < T; ++t) sums[t] = _mm512_fmadd_ps(minimum, dot.SumOf(t), sums[t]);
  }
  dot.AddTo(HalfRows(scales), sums);
}

template <typename Format>
struct Blocks {
  template <int T, int S>
  TN_INLINE static void Sum(const NarrowMatmulArgs& a, const std::byte* w, const std::byte* x,
                            __m512 (*sums)[T]) {
    const int64_t units = (a.cols + kUnitCols<Format> - 1) / kUnitCols<Format>;
    const int64_t group_bytes = kPackedRows * a.row_bytes;
    for (int64_t u = 0; u < units; ++u) {
      const int64_t offset = u * kUnitBytes<Format>;
      PrefetchStreams<S>(w, group_bytes, offset, kUnitBytes<Format>);
      for (int64_t b = 0; b < Format::kUnitBlocks; ++b, x += kIntegersBlockBytes) {
        for (int s = 0; s < S; ++s) {
          const std::byte* unit = w + s * group_bytes + offset;
          AddBlock<Format, T>({x, a.x_stride},
                              unit + kHeadBytes + b * Format::kBlockVectors * kVectorBytes,
                              unit + b * 2 * kPackedRows, sums[s]);
        }
      }
    }
  }
};

struct Q4K {
  static constexpr int64_t kCoupleBytes = PackedQ4K::kCoupleVectors * kVectorBytes;

  template <int T, int S>
  TN_INLINE static void Sum(const NarrowMatmulArgs& a, const std::byte* w, const std::byte* x,
                            __m512 (*sums)[T]) {
    const int64_t group_bytes = kPackedRows * a.row_bytes;
    for (int64_t unit = 0; unit < group_bytes; unit += PackedQ4K::kBytes) {
      PrefetchStreams<S>(w, group_bytes, unit, PackedQ4K::kQuants);
      for (int64_t p = 0; p < PackedQ4K::kCouples; ++p, x += 2 * kIntegersBlockBytes) {
        PrefetchStreams<S>(w, group_bytes, unit + PackedQ4K::kQuants + p * kCoupleBytes,
                           kCoupleBytes);
        for (int s = 0; s < S; ++s) {
          AddCouple<T>({x, a.x_stride}, {x + kIntegersBlockBytes, a.x_stride},
                       w + s * group_bytes + unit, p, sums[s]);
        }
      }
    }
  }

  // Groups 2 couple and 2 couple + 1.
  template <int T>
  TN_INLINE static void AddCouple(BlockDot<0, T> low, BlockDot<0, T> high, const std::byte* unit,
                                  int64_t couple, __m512* sums) {
    const std::byte* quants = unit + PackedQ4K::kQuants + couple * kCoupleBytes;
    for (int64_t v = 0; v < PackedQ4K::kCoupleVectors; ++v) {
      const __m512i q = _mm512_load_si512(quants + v * kVectorBytes);
      low.Add(LowHalves(q), v);
      high.Add(HighHalves(q), v);
    }
    for (int64_t i = 0; i < 2; ++i) {
      const BlockDot<0, T>& dot = i == 0 ? low : high;
      const GroupScales scales = ScalesOf(unit, 2 * couple + i);
      for (int t = 0; t < T; ++t) sums[t] = _mm512_fnmadd_ps(scales.minimum, dot.SumOf(t), sums[t]);
      dot.AddTo(scales.scale, sums);
    }
  }
};

struct Bf16 {
  static constexpr int kChains = 4;
  template <int T, int S>
  TN_INLINE static void Sum(const NarrowMatmulArgs& a, const std::byte* w, const std::byte* x,
                            __m512 (*sums)[T]) {
    __m512 chains[S][kChains][T];
    for (auto& stream : chains) {
      for (auto& chain : stream) {
        for (auto& sum : chain) sum = _mm512_setzero_ps();
      }
    }
    const int64_t pairs = (a.cols + kBf16UnitCols - 1) / kBf16UnitCols * (kBf16UnitCols / 2);
    const int64_t group_bytes = kPackedRows * a.row_bytes;
    for (int64_t p = 0; p < pairs; p += kChains) {
      PrefetchStreams<S>(w, group_bytes, p * kVectorBytes, kChains * kVectorBytes);
      for (int s = 0; s < S; ++s) {
        for (int k = 0; k < kChains; ++k) {
          const auto row = reinterpret_cast<__m512bh>(
              _mm512_load_si512(w + s * group_bytes + (p + k) * kVectorBytes));
          for (int t = 0; t < T; ++t) {
            const auto pair = Scalar<int32_t>(x + t * a.x_stride + 4 * (p + k));
            chains[s][k][t] = _mm512_dpbf16_ps(chains[s][k][t], row,
                                               reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair)));
          }
        }
      }
    }
    for (int s = 0; s < S; ++s) {
      for (int t = 0; t < T; ++t) {
        sums[s][t] = _mm512_add_ps(_mm512_add_ps(chains[s][0][t], chains[s][1][t]),
                                   _mm512_add_ps(chains[s][2][t], chains[s][3][t]));
      }
    }
  }
};

// T tokens with S groups of 16 rows from `row` on; of the last group the masked ones exist.
template <typename Format, int T, int S>
TN_INLINE void Streams(const NarrowMatmulArgs& a, int64_t row, __mmask16 mask, int64_t t) {
  __m512 sums[S][T];
  for (auto& stream : sums) {
    for (auto& sum : stream) sum = _mm512_setzero_ps();
  }
  Format::template Sum<T, S>(a, a.w + row * a.row_bytes, a.x + t * a.x_stride, sums);
  for (int s = 0; s < S; ++s, row += kPackedRows) {
    const __mmask16 exist = s == S - 1 ? mask : static_cast<__mmask16>(0xFFFF);
    const __m512 bias =
        a.bias == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(exist, a.bias + row);
    for (int i = 0; i < T; ++i) {
      _mm512_mask_storeu_ps(a.y + (t + i) * a.y_stride + row, exist,
                            _mm512_add_ps(sums[s][i], bias));
    }
  }
}

// T tokens with rows [row, row_end): whole streams, then group by group.
template <typename Format, int T>
TN_INLINE void Tokens(const NarrowMatmulArgs& a, int64_t row, int64_t row_end, int64_t t) {
  const auto exist = [&](int64_t rows) {
    return static_cast<__mmask16>(rows >= kPackedRows ? 0xFFFF : (1 << rows) - 1);
  };
  constexpr int64_t kRows = kStreams<T> * kPackedRows;
  for (; row_end - row > kRows - kPackedRows; row += kRows) {
    Streams<Format, T, kStreams<T>>(a, row, exist(row_end - row - kRows + kPackedRows), t);
  }
  for (; row < row_end; row += kPackedRows) Streams<Format, T, 1>(a, row, exist(row_end - row), t);
}

// Rows that all tokens meet before the next ones are read.
constexpr int64_t kStretch = kPackedStreams * kPackedRows;

template <typename Format>
void Groups(const NarrowMatmulArgs& a, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; row += kStretch) {
    const int64_t end = row_end - row < kStretch ? row_end : row + kStretch;
    int64_t t = 0;
    for (; t + 4 <= a.num_tokens; t += 4) Tokens<Format, 4>(a, row, end, t);
    for (; t + 2 <= a.num_tokens; t += 2) Tokens<Format, 2>(a, row, end, t);
    if (t < a.num_tokens) Tokens<Format, 1>(a, row, end, t);
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
  Add<Q4K>(matmul, DType::kQ4_K, TN_KERNEL_NAME("packed_q4_k"), integers);
  Add<Bf16>(matmul, DType::kBF16, TN_KERNEL_NAME("packed_bf16"), ActivationForm::kBf16);
}

}  // namespace tenon::avx512_bf16_vnni
