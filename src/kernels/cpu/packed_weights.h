// How groups of 16 rows of packed weights lie in memory (matmul_kernels.h, PackedWeightKernels).
// For the sources of instruction sets that have bf16. Constant; thread-safe.
//
// bf16: [cols / 2][16 rows] of pairs. Blocks of 32: a unit is one or two blocks of all rows: 64
// bytes of fp16 scales [block][16 rows] (or scales, then minimums), then the quants of each block
// as vectors of [16 rows][4 bytes]. Byte i of vector c is column 4 c + i; of nibbles the low half
// is that column, the high half column 16 + 4 c + i, as in the file.
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

struct PackedBf16 {
  static constexpr bool kPairs = true;
};
// A panel's columns are padded to whole tiles, so these are too.
constexpr int64_t kBf16UnitCols = 32;

}  // namespace
}  // namespace tenon::TN_ISA

#endif
