// Few tokens times GGUF rows as they lie in the file, int8 activations in blocks of 32. Two loads
// and a byte permutation give the quants of four blocks of a row, one more permutation their
// scales; the -8 or -128 offset of the weights is the start value of the integer dot.
#include "tenon/kernels/cpu/avx512_bf16_vnni/narrow.h"
#include "tenon/kernels/cpu/simd.h"
#include "tenon/numeric/blocks/q4_0.h"
#include "tenon/numeric/blocks/q4_1.h"
#include "tenon/numeric/blocks/q8_0.h"

namespace tenon::avx512_bf16_vnni {
namespace {

// Bytes that a row's reads run ahead of: far enough to hide DRAM, near enough to stay in L2.
constexpr int64_t kAhead = 4096;
// Rows as long as this are read one at a time: one stream each. Shorter ones four at a time, which
// shares the conversion of their sums.
constexpr int64_t kLongRow = 2048;

struct alignas(64) ByteTable {
  uint8_t at[64];
};
template <typename F>
constexpr ByteTable MakeTable(F f) {
  ByteTable table = {};
  for (int i = 0; i < 64; ++i) table.at[i] = static_cast<uint8_t>(f(i));
  return table;
}
TN_INLINE __m512i LoadTable(const ByteTable& table) { return _mm512_load_si512(table.at); }

// Two 64-byte loads, at 0 and at `second`, cover what byte `at` of a group names.
constexpr int FromTwoLoads(int at, int second) { return at < 64 ? at : 64 + at - second; }

// The first n bytes at p; the others are 0 and not read.
TN_INLINE __m512i LoadBytes(const std::byte* p, int64_t n) {
  if (n >= 64) return _mm512_loadu_si512(p);
  if (n <= 0) return _mm512_setzero_si512();
  return _mm512_maskz_loadu_epi8((uint64_t{1} << n) - 1, p);
}
// Element r of each 128-bit lane: the sum of that lane of v[r].
TN_INLINE __m512i QuadSums(const __m512i* v) {
  const auto pair = [](__m512i a, __m512i b) {
    const __m512 x = _mm512_castsi512_ps(a);
    const __m512 y = _mm512_castsi512_ps(b);
    return _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(x, y, 0x88)),
                            _mm512_castps_si512(_mm512_shuffle_ps(x, y, 0xDD)));
  };
  return pair(pair(v[0], v[1]), pair(v[2], v[3]));
}
// Word 4 b + r: block b's scale in row r, from the first registers of four rows.
TN_INLINE __m512i QuadScales(__m512i table, const __m512i* first) {
  return _mm512_mask_blend_epi32(0xAAAA, _mm512_permutex2var_epi8(first[0], table, first[1]),
                                 _mm512_permutex2var_epi8(first[2], table, first[3]));
}
TN_INLINE __m512 HalfFloats(__m512i words) {
  return _mm512_cvtph_ps(_mm512_castsi512_si256(words));
}
TN_INLINE __m512 HighHalfFloats(__m512i words) {
  return _mm512_cvtph_ps(_mm512_extracti64x4_epi64(words, 1));
}

// Q4_0 and Q4_1: a step is four blocks of a row. Blocks that a last step lacks read as zero, their
// scale too.
template <typename BlockType, bool kHasMinimum>
struct Nibbles {
  static constexpr int kBlock = sizeof(BlockType), kHead = kBlock - 16, kBytes = 4 * kBlock;
  static constexpr int kSecond = kBytes - 64;
  static constexpr int64_t kStepBlocks = 4, kActBytes = kNibblesGroupBytes;
  static constexpr ByteTable kQuants =
      MakeTable([](int i) { return FromTwoLoads(i / 16 * kBlock + kHead + i % 16, kSecond); });
  // Words of each block's scale four times, then of its minimum.
  static constexpr ByteTable kScales =
      MakeTable([](int i) { return (i % 32) / 8 * kBlock + i / 32 * 2 + i % 2; });
  // Word 4 b + r is block b's scale in row r: rows come as two pairs of registers.
  static constexpr ByteTable kQuadScales = MakeTable(
      [](int i) { return (i % 32) / 8 * kBlock + i / 32 * 2 + i % 2 + (i / 2 % 2) * 64; });

  const __m512i quants = LoadTable(kQuants);
  const __m512i scales = LoadTable(kScales);
  const __m512i quad_scales = LoadTable(kQuadScales);
  const __m512i low = _mm512_set1_epi8(15);
  const __m512i shift = _mm512_set1_epi64(0x1020408000000000);  // the bit matrix of byte >> 4

  struct Activations {
    __m512i lo, hi, offset;
    __m512 scale, lane_sum, block_sum;
  };
  TN_INLINE static Activations LoadActivations(const std::byte* a) {
    return {_mm512_load_si512(a),
            _mm512_load_si512(a + 64),
            kHasMinimum ? _mm512_setzero_si512() : _mm512_load_si512(a + 128),
            _mm512_load_ps(a + 192),
            _mm512_load_ps(a + 256),
            _mm512_load_ps(a + 320)};
  }
  TN_INLINE __m512i Dot(__m512i first, __m512i second, const Activations& x) const {
    const __m512i q = _mm512_permutex2var_epi8(first, quants, second);
    const __m512i dot = _mm512_dpbusd_epi32(x.offset, _mm512_and_si512(q, low), x.lo);
    return _mm512_dpbusd_epi32(dot, _mm512_gf2p8affine_epi64_epi8(q, shift, 0), x.hi);
  }
  TN_INLINE static void Scale(__m512i dot, __m512i words, const Activations& x, __m512 minimum_sum,
                              __m512& sum) {
    const __m512 d = _mm512_mul_ps(HalfFloats(words), x.scale);
    if constexpr (kHasMinimum) sum = _mm512_fmadd_ps(HighHalfFloats(words), minimum_sum, sum);
    sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), d, sum);
  }
  TN_INLINE void One(const std::byte* p, int64_t bytes, const Activations& x, __m512& sum) const {
    const __m512i first = LoadBytes(p, bytes);
    const __m512i second = LoadBytes(p + kSecond, bytes - kSecond);
    Scale(Dot(first, second, x), _mm512_permutexvar_epi8(scales, first), x, x.lane_sum, sum);
  }
  TN_INLINE void Quad(const std::byte* const* rows, int64_t offset, int64_t bytes,
                      const Activations& x, __m512& sum) const {
    __m512i first[4];
    __m512i dots[4];
    for (int r = 0; r < 4; ++r) {
      const std::byte* p = rows[r] + offset;
      first[r] = LoadBytes(p, bytes);
      dots[r] = Dot(first[r], LoadBytes(p + kSecond, bytes - kSecond), x);
    }
    const __m512i words = QuadScales(quad_scales, first);
    Scale(QuadSums(dots), words, x, x.block_sum, sum);
  }
};

// Q8_0: a step is two blocks of a row; weights + 128 are the unsigned side.
struct Bytes {
  static constexpr int kBlock = sizeof(BlockQ8_0), kHead = 2, kBytes = 2 * kBlock;
  static constexpr int kSecond = kBytes - 64;
  static constexpr int64_t kStepBlocks = 2, kActBytes = kBytesGroupBytes;
  static constexpr ByteTable kQuants =
      MakeTable([](int i) { return FromTwoLoads(i / 32 * kBlock + kHead + i % 32, kSecond); });
  static constexpr ByteTable kScales =
      MakeTable([](int i) { return (i % 32) / 16 * kBlock + i % 2; });
  static constexpr ByteTable kQuadScales =
      MakeTable([](int i) { return (i % 32) / 16 * kBlock + i % 2 + (i / 2 % 2) * 64; });

  const __m512i quants = LoadTable(kQuants);
  const __m512i scales = LoadTable(kScales);
  const __m512i quad_scales = LoadTable(kQuadScales);
  const __m512i flip = _mm512_set1_epi8(-128);

  struct Activations {
    __m512i q, offset;
    __m512 scale;
  };
  TN_INLINE static Activations LoadActivations(const std::byte* a) {
    return {_mm512_load_si512(a), _mm512_load_si512(a + 64), _mm512_load_ps(a + 128)};
  }
  TN_INLINE __m512i Dot(__m512i first, __m512i second, const Activations& x) const {
    const __m512i q = _mm512_permutex2var_epi8(first, quants, second);
    return _mm512_dpbusd_epi32(x.offset, _mm512_xor_si512(q, flip), x.q);
  }
  TN_INLINE static void Scale(__m512i dot, __m512i words, const Activations& x, __m512& sum) {
    sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(HalfFloats(words), x.scale), sum);
  }
  TN_INLINE void One(const std::byte* p, int64_t bytes, const Activations& x, __m512& sum) const {
    const __m512i first = LoadBytes(p, bytes);
    const __m512i second = LoadBytes(p + kSecond, bytes - kSecond);
    Scale(Dot(first, second, x), _mm512_permutexvar_epi8(scales, first), x, sum);
  }
  TN_INLINE void Quad(const std::byte* const* rows, int64_t offset, int64_t bytes,
                      const Activations& x, __m512& sum) const {
    __m512i first[4];
    __m512i dots[4];
    for (int r = 0; r < 4; ++r) {
      const std::byte* p = rows[r] + offset;
      first[r] = LoadBytes(p, bytes);
      dots[r] = Dot(first[r], LoadBytes(p + kSecond, bytes - kSecond), x);
    }
    const __m512i words = QuadScales(quad_scales, first);
    Scale(QuadSums(dots), words, x, sum);
  }
};

TN_INLINE void Prefetch(const std::byte* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64)
    _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T0);
}

// The steps of a row: `use(offset in the row, bytes, activations)`. Prefetches once per row group,
// from the first token's pass.
template <typename Format, typename Use>
TN_INLINE void ForSteps(int64_t cols, const std::byte* x, Use use) {
  const int64_t blocks = cols / 32;
  const int64_t steps = blocks / Format::kStepBlocks;
  const int64_t rest = blocks % Format::kStepBlocks * Format::kBlock;
  for (int64_t s = 0; s < steps; ++s) {
    use(s * Format::kBytes, int64_t{Format::kBytes},
        Format::LoadActivations(x + s * Format::kActBytes));
  }
  if (rest > 0) {
    use(steps * Format::kBytes, rest, Format::LoadActivations(x + steps * Format::kActBytes));
  }
}

template <typename Format>
TN_INLINE float OneRow(const Format& format, const PackedMatmulArgs& a, const std::byte* row,
                       const std::byte* x) {
  __m512 sum = _mm512_setzero_ps();
  ForSteps<Format>(
      a.cols, x,
      [&](int64_t offset, int64_t bytes, const auto& activations) __attribute__((always_inline)) {
        Prefetch(row + offset + kAhead, Format::kBytes);
        format.One(row + offset, bytes, activations, sum);
      });
  return _mm512_reduce_add_ps(sum);
}

// Sums of four rows in one vector.
template <typename Format>
TN_INLINE __m128 FourRows(const Format& format, const PackedMatmulArgs& a, const std::byte* row,
                          const std::byte* x) {
  const std::byte* rows[4] = {row, row + a.row_bytes, row + 2 * a.row_bytes, row + 3 * a.row_bytes};
  __m512 sum = _mm512_setzero_ps();
  ForSteps<Format>(
      a.cols, x,
      [&](int64_t offset, int64_t bytes, const auto& activations) __attribute__((always_inline)) {
        // Rows are one after the other: their stream runs on through the group.
        Prefetch(row + kAhead + 4 * offset, 4 * Format::kBytes);
        format.Quad(rows, offset, bytes, activations, sum);
      });
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(sum), _mm512_extractf32x8_ps(sum, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

template <typename Format>
void Rows(const PackedMatmulArgs& a, int64_t row_begin, int64_t row_end) {
  const Format format;
  int64_t row = row_begin;
  for (; a.cols < kLongRow && row + 4 <= row_end; row += 4) {
    const __m128 bias = a.bias == nullptr ? _mm_setzero_ps() : _mm_loadu_ps(a.bias + row);
    for (int64_t t = 0; t < a.num_tokens; ++t) {
      const __m128 sums = FourRows(format, a, a.w + row * a.row_bytes, a.x + t * a.x_stride);
      _mm_storeu_ps(a.y + t * a.y_stride + row, _mm_add_ps(sums, bias));
    }
  }
  for (; row < row_end; ++row) {
    const float bias = a.bias == nullptr ? 0.0f : a.bias[row];
    for (int64_t t = 0; t < a.num_tokens; ++t) {
      a.y[t * a.y_stride + row] =
          OneRow(format, a, a.w + row * a.row_bytes, a.x + t * a.x_stride) + bias;
    }
  }
}

}  // namespace

void AddBlockRows(MatmulKernels& matmul) {
  const auto add = [&](DType dtype, PackedMatmulFunction* run, const char* name, PackedForm form) {
    matmul.few[static_cast<int>(dtype)] = {{run, name}, form};
  };
  add(DType::kQ4_0, Rows<Nibbles<BlockQ4_0, false>>, TN_KERNEL_NAME("rows_q4_0"),
      PackedForm::kNibbles);
  add(DType::kQ4_1, Rows<Nibbles<BlockQ4_1, true>>, TN_KERNEL_NAME("rows_q4_1"),
      PackedForm::kNibbles);
  add(DType::kQ8_0, Rows<Bytes>, TN_KERNEL_NAME("rows_q8_0"), PackedForm::kBytes);
}

}  // namespace tenon::avx512_bf16_vnni
