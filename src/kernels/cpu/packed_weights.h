// How groups of 16 rows of packed weights lie in memory (matmul_kernels.h, PackedWeightKernels).
// For the sources of instruction sets that have bf16. Constant; thread-safe.
//
// bf16: [cols / 2][16 rows] of pairs. Blocks of 32: a unit is one or two blocks of all rows: 64
// bytes of fp16 scales [block][16 rows] (or scales, then minimums), then the quants of each block
// as vectors of [16 rows][4 bytes]. Byte i of vector c is column 4 c + i; of nibbles the low half
// is that column, the high half column 16 + 4 c + i, as in the file. Q4_K: a unit is 256 columns:
// fp16 d [16 rows], dmin [16 rows]; then for each two groups of 32 columns bytes [16 rows] of the
// first one's scale, of its minimum, of the other's; then as vectors the quants of each two groups,
// the low halves one's, the high halves the other's.
#pragma once

#include "tenon/kernels/cpu/simd.h"
#include "tenon/numeric/blocks/q4_0.h"
#include "tenon/numeric/blocks/q4_1.h"
#include "tenon/numeric/blocks/q8_0.h"

#if defined(__AVX512BF16__)

namespace tenon::TN_ISA {
namespace {

constexpr int64_t kHeadBytes = 64;    // of a unit: scales
constexpr int64_t kVectorBytes = 64;  // [16 rows][4 bytes]

TN_INLINE __m512 HalfRows(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
}

// A weight is scale * quant + minimum, quants not negative.
struct PackedQ4_0 {
  using Block = BlockQ4_0;
  static constexpr int64_t kUnitBlocks = 2, kBlockVectors = 4;
  static constexpr bool kNibbles = true, kHasMinimum = false;
  static constexpr int kOffset = 8;
};
struct PackedQ4_1 {
  using Block = BlockQ4_1;
  static constexpr int64_t kUnitBlocks = 1, kBlockVectors = 4;
  static constexpr bool kNibbles = true, kHasMinimum = true;
  static constexpr int kOffset = 0;
};
struct PackedQ8_0 {  // quants + 128
  using Block = BlockQ8_0;
  static constexpr int64_t kUnitBlocks = 2, kBlockVectors = 8;
  static constexpr bool kNibbles = false, kHasMinimum = false;
  static constexpr int kOffset = 128;
};
template <typename Format>
constexpr int64_t kUnitBytes =
    kHeadBytes + Format::kUnitBlocks* Format::kBlockVectors* kVectorBytes;
template <typename Format>
constexpr int64_t kUnitCols = 32 * Format::kUnitBlocks;

struct PackedQ4K {
  static constexpr int64_t kCols = 256, kCouples = 4, kCoupleVectors = 8;
  static constexpr int64_t kScales = kHeadBytes;  // where they start
  static constexpr int64_t kCoupleScaleBytes = 4 * kPackedRows;
  static constexpr int64_t kQuants = kScales + kCouples * kCoupleScaleBytes;
  static constexpr int64_t kBytes = kQuants + kCouples * kCoupleVectors * kVectorBytes;
};

// Bytes [16 rows] as numbers.
TN_INLINE __m512 ByteRows(const std::byte* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(p))));
}

// A group's weights are scale * quant - minimum.
struct GroupScales {
  __m512 scale, minimum;
};
// Of group `group`, of a unit.
TN_INLINE GroupScales ScalesOf(const std::byte* unit, int64_t group) {
  const std::byte* bytes = unit + PackedQ4K::kScales + group * 2 * kPackedRows;
  return {_mm512_mul_ps(HalfRows(unit), ByteRows(bytes)),
          _mm512_mul_ps(HalfRows(unit + 2 * kPackedRows), ByteRows(bytes + kPackedRows))};
}

struct PackedBf16 {
  static constexpr bool kPairs = true;
};
// A panel's columns are padded to whole tiles, so these are too.
constexpr int64_t kBf16UnitCols = 32;

}  // namespace
}  // namespace tenon::TN_ISA

#endif
