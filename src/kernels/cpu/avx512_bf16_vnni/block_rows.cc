// Few tokens times GGUF rows as they lie in the file, activations as integers of two bytes. Two
// loads and a byte permutation give the quants of four blocks of a row, one more permutation their
// scales. The dot with the high bytes, times 256, is where that with the low bytes starts; so is
// the -8 or -128 offset of the weights.
#include "tenon/kernels/cpu/avx512_bf16_vnni/narrow.h"
#include "tenon/kernels/cpu/avx512_bf16_vnni/quad_sums.h"
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

  struct Row {
    __m512i first, second;  // elements 0-15 of each block, and 16-31
  };
  struct Scales {
    __m512 scale, minimum;
  };
  TN_INLINE Row Quants(__m512i first, __m512i second) const {
    const __m512i q = _mm512_permutex2var_epi8(first, quants, second);
    return {_mm512_and_si512(q, low), _mm512_gf2p8affine_epi64_epi8(q, shift, 0)};
  }
  TN_INLINE static Scales ScalesOf(__m512i words) {
    return {HalfFloats(words), kHasMinimum ? HighHalfFloats(words) : _mm512_setzero_ps()};
  }
  TN_INLINE static __m512i Dot(const Row& w, const std::byte* x) {
    const auto plane = [&](int64_t offset) { return _mm512_load_si512(x + offset); };
    __m512i dot = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w.first, plane(0));
    dot = _mm512_slli_epi32(_mm512_dpbusd_epi32(dot, w.second, plane(64)), 8);
    if constexpr (!kHasMinimum) dot = _mm512_add_epi32(dot, plane(256));
    dot = _mm512_dpbusd_epi32(dot, w.first, plane(128));
    return _mm512_dpbusd_epi32(dot, w.second, plane(192));
  }
  // sums: offset of scale * sum, of a lane or of a block.
  TN_INLINE static void Add(__m512i dot, const Scales& s, const std::byte* x, int64_t sums,
                            __m512& sum) {
    if constexpr (kHasMinimum) sum = _mm512_fmadd_ps(s.minimum, _mm512_load_ps(x + sums), sum);
    sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(s.scale, _mm512_load_ps(x + 320)),
                          sum);
  }
  static constexpr int64_t kLaneSums = 384, kBlockSums = 448;
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

  using Row = __m512i;
  using Scales = __m512;
  TN_INLINE Row Quants(__m512i first, __m512i second) const {
    return _mm512_xor_si512(_mm512_permutex2var_epi8(first, quants, second), flip);
  }
  TN_INLINE static Scales ScalesOf(__m512i words) { return HalfFloats(words); }
  TN_INLINE static __m512i Dot(Row w, const std::byte* x) {
    const __m512i offset = _mm512_slli_epi32(_mm512_load_si512(x + 128), 7);
    const __m512i high = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, _mm512_load_si512(x));
    return _mm512_dpbusd_epi32(_mm512_add_epi32(_mm512_slli_epi32(high, 8), offset), w,
                               _mm512_load_si512(x + 64));
  }
  TN_INLINE static void Add(__m512i dot, Scales scale, const std::byte* x, int64_t /*sums*/,
                            __m512& sum) {
    sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(scale, _mm512_load_ps(x + 192)),
                          sum);
  }
  static constexpr int64_t kLaneSums = 0, kBlockSums = 0;
};

TN_INLINE void Prefetch(const std::byte* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64)
    _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T0);
}

// The steps of a row: `use(offset in the row, bytes, offset in the activations)`.
template <typename Format, typename Use>
TN_INLINE void ForSteps(int64_t cols, Use use) {
  const int64_t blocks = cols / 32;
  const int64_t steps = blocks / Format::kStepBlocks;
  const int64_t rest = blocks % Format::kStepBlocks * Format::kBlock;
  for (int64_t s = 0; s < steps; ++s) {
    use(s * Format::kBytes, int64_t{Format::kBytes}, s * Format::kActBytes);
  }
  if (rest > 0) use(steps * Format::kBytes, rest, steps * Format::kActBytes);
}

// T tokens from x on.
template <typename Format, int T>
TN_INLINE void OneRow(const Format& format, const NarrowMatmulArgs& a, int64_t row,
                      const std::byte* x, float* y) {
  const std::byte* w = a.w + row * a.row_bytes;
  __m512 sums[T];
  for (auto& sum : sums) sum = _mm512_setzero_ps();
  ForSteps<Format>(
      a.cols, [&](int64_t offset, int64_t bytes, int64_t at) __attribute__((always_inline)) {
        Prefetch(w + offset + kAhead, Format::kBytes);
        const __m512i first = LoadBytes(w + offset, bytes);
        const __m512i second = LoadBytes(w + offset + Format::kSecond, bytes - Format::kSecond);
        const auto quants = format.Quants(first, second);
        const auto scales = Format::ScalesOf(_mm512_permutexvar_epi8(format.scales, first));
        for (int t = 0; t < T; ++t) {
          const std::byte* token = x + t * a.x_stride + at;
          Format::Add(Format::Dot(quants, token), scales, token, Format::kLaneSums, sums[t]);
        }
      });
  const float bias = a.bias == nullptr ? 0.0f : a.bias[row];
  for (int t = 0; t < T; ++t) y[t * a.y_stride + row] = _mm512_reduce_add_ps(sums[t]) + bias;
}

TN_INLINE __m128 LaneTotals(__m512 v) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

// Four rows with T tokens: a token's four sums are one vector.
template <typename Format, int T>
TN_INLINE void FourRows(const Format& format, const NarrowMatmulArgs& a, int64_t row,
                        const std::byte* x, float* y) {
  const std::byte* w = a.w + row * a.row_bytes;
  __m512 sums[T];
  for (auto& sum : sums) sum = _mm512_setzero_ps();
  ForSteps<Format>(
      a.cols, [&](int64_t offset, int64_t bytes, int64_t at) __attribute__((always_inline)) {
        // Rows are one after the other: their stream runs on through the group.
        Prefetch(w + kAhead + 4 * offset, 4 * Format::kBytes);
        __m512i first[4];
        typename Format::Row quants[4];
        for (int r = 0; r < 4; ++r) {
          const std::byte* p = w + r * a.row_bytes + offset;
          first[r] = LoadBytes(p, bytes);
          quants[r] =
              format.Quants(first[r], LoadBytes(p + Format::kSecond, bytes - Format::kSecond));
        }
        const auto scales = Format::ScalesOf(QuadScales(format.quad_scales, first));
        for (int t = 0; t < T; ++t) {
          const std::byte* token = x + t * a.x_stride + at;
          __m512i dots[4];
          for (int r = 0; r < 4; ++r) dots[r] = Format::Dot(quants[r], token);
          Format::Add(QuadSums(dots), scales, token, Format::kBlockSums, sums[t]);
        }
      });
  const __m128 bias = a.bias == nullptr ? _mm_setzero_ps() : _mm_loadu_ps(a.bias + row);
  for (int t = 0; t < T; ++t) {
    _mm_storeu_ps(y + t * a.y_stride + row, _mm_add_ps(LaneTotals(sums[t]), bias));
  }
}

template <typename Format, int T>
TN_INLINE void Tokens(const Format& format, const NarrowMatmulArgs& a, int64_t row, int rows,
                      int64_t t) {
  const std::byte* x = a.x + t * a.x_stride;
  float* y = a.y + t * a.y_stride;
  if (rows == 4) {
    FourRows<Format, T>(format, a, row, x, y);
  } else {
    OneRow<Format, T>(format, a, row, x, y);
  }
}

template <typename Format>
void Rows(const NarrowMatmulArgs& a, int64_t row_begin, int64_t row_end) {
  const Format format;
  for (int64_t row = row_begin; row < row_end;) {
    const int rows = a.cols < kLongRow && row + 4 <= row_end ? 4 : 1;
    int64_t t = 0;
    for (; t + 4 <= a.num_tokens; t += 4) Tokens<Format, 4>(format, a, row, rows, t);
    for (; t + 2 <= a.num_tokens; t += 2) Tokens<Format, 2>(format, a, row, rows, t);
    if (t < a.num_tokens) Tokens<Format, 1>(format, a, row, rows, t);
    row += rows;
  }
}

}  // namespace

void AddBlockRows(MatmulKernels& matmul) {
  const auto add = [&](DType dtype, NarrowMatmulFunction* run, const char* name,
                       ActivationForm form) {
    matmul.few[static_cast<int>(dtype)] = {{run, name}, form};
  };
  add(DType::kQ4_0, Rows<Nibbles<BlockQ4_0, false>>, TN_KERNEL_NAME("rows_q4_0"),
      ActivationForm::kNibbles);
  add(DType::kQ4_1, Rows<Nibbles<BlockQ4_1, true>>, TN_KERNEL_NAME("rows_q4_1"),
      ActivationForm::kNibbles);
  add(DType::kQ8_0, Rows<Bytes>, TN_KERNEL_NAME("rows_q8_0"), ActivationForm::kBytes);
}

}  // namespace tenon::avx512_bf16_vnni
