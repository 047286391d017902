// Rows of weights to the groups of packed_weights.h.
#include "tenon/kernels/cpu/avx512_bf16_vnni/narrow.h"
#include "tenon/kernels/cpu/packed_weights.h"
#include "tenon/kernels/cpu/transpose.h"
#include "tenon/numeric/blocks/q4_k.h"

namespace tenon::avx512_bf16_vnni {
namespace {

// What rows that do not exist are read from.
alignas(64) constexpr std::byte kZeros[64] = {};

// The rows of a group: where they are, or zeros.
struct Rows {
  Rows(const PackWeightArgs& a, int64_t group) {
    for (int64_t r = 0; r < kPackedRows; ++r) {
      const int64_t row = group * kPackedRows + r;
      exists[r] = row < a.rows;
      at[r] = exists[r] ? a.w + row * a.row_bytes : kZeros;
    }
  }
  // Bytes [offset, offset + up to 64) of a row.
  TN_INLINE const std::byte* At(int64_t r, int64_t offset) const {
    return exists[r] ? at[r] + offset : kZeros;
  }
  const std::byte* at[kPackedRows];
  bool exists[kPackedRows];
};

// 16 bytes of each row as four vectors of [16 rows][4 bytes].
TN_INLINE void PackQuads(const Rows& rows, int64_t offset, __m512i flip, std::byte* out) {
  __m512i v[4];  // lane q of v[i]: row 4 q + i
  for (int i = 0; i < 4; ++i) {
    const auto quad = [&](int q) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows.At(4 * q + i, offset)));
    };
    v[i] = _mm512_castsi128_si512(quad(0));
    v[i] = _mm512_inserti32x4(v[i], quad(1), 1);
    v[i] = _mm512_inserti32x4(v[i], quad(2), 2);
    v[i] = _mm512_inserti32x4(v[i], quad(3), 3);
  }
  const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]);
  const __m512i b = _mm512_unpackhi_epi32(v[0], v[1]);
  const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]);
  const __m512i d = _mm512_unpackhi_epi32(v[2], v[3]);
  const __m512i quads[4] = {_mm512_unpacklo_epi64(a, c), _mm512_unpackhi_epi64(a, c),
                            _mm512_unpacklo_epi64(b, d), _mm512_unpackhi_epi64(b, d)};
  for (int i = 0; i < 4; ++i) {
    _mm512_store_si512(out + i * kVectorBytes, _mm512_xor_si512(quads[i], flip));
  }
}

// Two bytes of each row, `offset` in its block.
TN_INLINE void PackHalves(const Rows& rows, int64_t offset, std::byte* out) {
  for (int64_t r = 0; r < kPackedRows; ++r) {
    __builtin_memcpy(out + 2 * r, rows.At(r, offset), 2);
  }
}

// One block of 32 columns of all rows: its scales, its vectors.
template <typename Format>
TN_INLINE void PackOneBlock(const Rows& rows, int64_t offset, std::byte* scales,
                            std::byte* vectors) {
  constexpr int64_t kHead = offsetof(typename Format::Block, qs);
  PackHalves(rows, offset, scales);
  if constexpr (Format::kHasMinimum) PackHalves(rows, offset + 2, scales + 2 * kPackedRows);
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(Format::kNibbles ? 0 : 128));
  for (int64_t v = 0; v < Format::kBlockVectors; v += 4) {
    PackQuads(rows, offset + kHead + 4 * v, flip, vectors + v * kVectorBytes);
  }
}

template <typename Format>
void PackBlocks(const PackWeightArgs& a, int64_t group_begin, int64_t group_end) {
  constexpr int64_t kBlock = sizeof(typename Format::Block);
  const int64_t blocks = a.cols / 32;
  const int64_t units = (blocks + Format::kUnitBlocks - 1) / Format::kUnitBlocks;
  for (int64_t group = group_begin; group < group_end; ++group) {
    const Rows rows(a, group);
    std::byte* unit = a.packed + group * units * kUnitBytes<Format>;
    for (int64_t block = 0; block < units * Format::kUnitBlocks; ++block) {
      const int64_t in_unit = block % Format::kUnitBlocks;
      std::byte* scales = unit + in_unit * 2 * kPackedRows;
      std::byte* vectors = unit + kHeadBytes + in_unit * Format::kBlockVectors * kVectorBytes;
      if (block < blocks) {
        PackOneBlock<Format>(rows, block * kBlock, scales, vectors);
      } else {  // counts as zero
        __builtin_memset(scales, 0, 2 * kPackedRows);
        __builtin_memset(vectors, 0, Format::kBlockVectors * kVectorBytes);
      }
      if (in_unit == Format::kUnitBlocks - 1) unit += kUnitBytes<Format>;
    }
  }
}

// The scales of 256 columns of all rows.
TN_INLINE void PackQ4KScales(const Rows& rows, int64_t offset, std::byte* unit) {
  PackHalves(rows, offset + int64_t{offsetof(BlockQ4K, d)}, unit);
  PackHalves(rows, offset + int64_t{offsetof(BlockQ4K, dmin)}, unit + 2 * kPackedRows);
  std::byte* bytes = unit + PackedQ4K::kScales;
  for (int64_t r = 0; r < kPackedRows; ++r) {
    BlockQ4K block;
    __builtin_memcpy(&block.scales, rows.At(r, offset + int64_t{offsetof(BlockQ4K, scales)}),
                     sizeof(block.scales));
    for (int64_t group = 0; group < 8; ++group) {
      const BlockQ4K::GroupScale scale = block.ScaleOf(static_cast<int>(group));
      bytes[group * 2 * kPackedRows + r] = static_cast<std::byte>(scale.scale);
      bytes[group * 2 * kPackedRows + kPackedRows + r] = static_cast<std::byte>(scale.minimum);
    }
  }
}

void PackQ4K(const PackWeightArgs& a, int64_t group_begin, int64_t group_end) {
  const int64_t units = a.cols / PackedQ4K::kCols;
  for (int64_t group = group_begin; group < group_end; ++group) {
    const Rows rows(a, group);
    for (int64_t u = 0; u < units; ++u) {
      std::byte* unit = a.packed + (group * units + u) * PackedQ4K::kBytes;
      const int64_t offset = u * static_cast<int64_t>(sizeof(BlockQ4K));
      PackQ4KScales(rows, offset, unit);
      constexpr int64_t kQuads = PackedQ4K::kCouples * PackedQ4K::kCoupleVectors / 4;
      for (int64_t q = 0; q < kQuads; ++q) {
        const auto at = int64_t{offsetof(BlockQ4K, qs)} + 16 * q;
        PackQuads(rows, offset + at, _mm512_setzero_si512(),
                  unit + PackedQ4K::kQuants + q * 4 * kVectorBytes);
      }
    }
  }
}

void PackPairs(const PackWeightArgs& a, int64_t group_begin, int64_t group_end) {
  const int64_t padded = (a.cols + kBf16UnitCols - 1) / kBf16UnitCols * kBf16UnitCols;
  for (int64_t group = group_begin; group < group_end; ++group) {
    const Rows rows(a, group);
    auto* out = reinterpret_cast<float*>(a.packed + group * kPackedRows * 2 * padded);
    for (int64_t c = 0; c < padded; c += 32) {
      const int64_t n = a.cols - c < 32 ? a.cols - c : 32;
      const auto mask = static_cast<__mmask32>((uint64_t{1} << n) - 1);
      F32 pairs[kPackedRows];
      for (int64_t r = 0; r < kPackedRows; ++r) {
        pairs[r] = reinterpret_cast<F32>(_mm512_maskz_loadu_epi16(mask, rows.At(r, 2 * c)));
      }
      Transpose(pairs);
      for (int64_t p = 0; p < kPackedRows; ++p) Store(out + (c / 2 + p) * kPackedRows, pairs[p]);
    }
  }
}

template <typename Format>
void Add(MatmulKernels& matmul, DType dtype, const char* name) {
  PackedWeightKernels& kernels = matmul.packed[static_cast<int>(dtype)];
  kernels.pack = {PackBlocks<Format>, name};
  kernels.unit_cols = kUnitCols<Format>;
  kernels.unit_bytes = kUnitBytes<Format> / kPackedRows;
}

}  // namespace

void AddPackWeights(MatmulKernels& matmul) {
  Add<PackedQ4_0>(matmul, DType::kQ4_0, TN_KERNEL_NAME("pack_weights_q4_0"));
  Add<PackedQ4_1>(matmul, DType::kQ4_1, TN_KERNEL_NAME("pack_weights_q4_1"));
  Add<PackedQ8_0>(matmul, DType::kQ8_0, TN_KERNEL_NAME("pack_weights_q8_0"));
  PackedWeightKernels& q4_k = matmul.packed[static_cast<int>(DType::kQ4_K)];
  q4_k.pack = {PackQ4K, TN_KERNEL_NAME("pack_weights_q4_k")};
  q4_k.unit_cols = PackedQ4K::kCols;
  q4_k.unit_bytes = PackedQ4K::kBytes / kPackedRows;
  PackedWeightKernels& bf16 = matmul.packed[static_cast<int>(DType::kBF16)];
  bf16.pack = {PackPairs, TN_KERNEL_NAME("pack_weights_bf16")};
  bf16.unit_cols = kBf16UnitCols;
  bf16.unit_bytes = 2 * kBf16UnitCols;
  bf16.pays = false;  // decode 1.05 to 1.2 times as fast, a start longer by 0.4 s for each GB
}

}  // namespace tenon::avx512_bf16_vnni
