// A block of 32 packed tokens times a panel of 64 rows with bf16 tiles: 32 x 32 sums in four tiles
// at a time. Private to the folder. Thread-safe.
#pragma once

#include "tenon/kernels/cpu/product.h"

namespace tenon::amx {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileCols = 32;     // bf16 numbers of a tile's row
constexpr int64_t kBlockTokens = 32;  // two tiles
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kBlockStepBytes = 2 * kTileBytes;

constexpr int64_t PaddedCols(int64_t cols) {
  return (cols + kTileCols - 1) / kTileCols * kTileCols;
}
// A block is [padded cols / 32][32 tokens][32 cols], a panel [4 vectors of rows][pairs][16 rows]:
// each tile is one stretch of memory.
constexpr int64_t BlockBytes(int64_t cols) { return kBlockTokens * 2 * PaddedCols(cols); }
constexpr PanelLayout PanelOf(int64_t cols) { return {kLanes, PaddedCols(cols) / 2 * kLanes}; }

// Eight full tiles. A thread has no tiles before and gives them back after, for the system saves
// them at every switch while they are in use.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);
// Constant memory: g++ 12 takes stores that only the instruction reads for dead.
constexpr TileConfig kTileConfig;

// Where 32 tokens x 32 rows of sums are.
struct Sums {
  float* at = nullptr;
  int64_t stride = 0;  // floats between tokens
  float* Tile(int i) const { return at + i / 2 * kTileRows * stride + i % 2 * kTileRows; }
};

// `count` tiles of columns: of two times 16 tokens and of two vectors of a panel's rows.
struct Steps {
  const std::byte* block = nullptr;  // kBlockStepBytes from step to step
  const std::byte* panel = nullptr;  // kTileBytes from step to step
  int64_t panel_stride = 0;          // bytes between the two vectors
  int64_t count = 0;
};

// Whether tokens take room in L1. Where a panel meets many blocks it is the panel that stays.
enum class Tokens { kStay, kPass };

// Tiles 0 to 3 += tokens times panel. Calls before(i) ahead of step i.
template <Tokens kTokens, typename Before>
TN_INLINE void AddSteps(const Steps& steps, Before before) {
  for (int64_t s = 0; s < steps.count; ++s) {
    before(s);
    const std::byte* tokens = steps.block + s * kBlockStepBytes;
    const std::byte* rows = steps.panel + s * kTileBytes;
    if constexpr (kTokens == Tokens::kPass) {
      _tile_stream_loadd(4, tokens, 64);
      _tile_stream_loadd(5, tokens + kTileBytes, 64);
    } else {
      _tile_loadd(4, tokens, 64);
      _tile_loadd(5, tokens + kTileBytes, 64);
    }
    _tile_loadd(6, rows, 64);
    _tile_loadd(7, rows + steps.panel_stride, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}
TN_INLINE void ClearSums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}
TN_INLINE void StoreSums(Sums sums) {
  const auto stride = static_cast<size_t>(sums.stride) * sizeof(float);
  _tile_stored(0, sums.Tile(0), stride);
  _tile_stored(1, sums.Tile(1), stride);
  _tile_stored(2, sums.Tile(2), stride);
  _tile_stored(3, sums.Tile(3), stride);
}

TN_INLINE void StartSums(bool adds, Sums sums) {
  if (!adds) return ClearSums();
  const auto stride = static_cast<size_t>(sums.stride) * sizeof(float);
  _tile_loadd(0, sums.Tile(0), stride);
  _tile_loadd(1, sums.Tile(1), stride);
  _tile_loadd(2, sums.Tile(2), stride);
  _tile_loadd(3, sums.Tile(3), stride);
}

// sums = the product; added to what is there, or not.
template <Tokens kTokens>
TN_INLINE void Multiply(const Steps& steps, bool adds, Sums sums) {
  StartSums(adds, sums);
  AddSteps<kTokens>(steps, [](int64_t) {});
  StoreSums(sums);
}

// The same while the lines of the sums that come next are asked for: stores leave in their order,
// and one that waits for its line holds up all the others.
TN_INLINE void MultiplyAndAsk(const Steps& steps, bool adds, Sums sums, Sums next) {
  const int64_t rows = (kBlockTokens + steps.count - 1) / steps.count;  // per step
  StartSums(adds, sums);
  AddSteps<Tokens::kPass>(
      steps, [&](int64_t step) __attribute__((always_inline)) {
        const float* at = next.at + step * rows * next.stride;
        for (int64_t i = 0; i < rows; ++i, at += next.stride) {
          __builtin_prefetch(at, 1);
          __builtin_prefetch(at + kTileRows, 1);
        }
      });
  StoreSums(sums);
}

// Calls use(place, the lanes that exist, offset of the vector in a buffer of 32 x 32, row of the
// vector) for up to 32 rows of all tokens.
template <typename Use>
TN_INLINE void ForVectors(const ProductOut& out, Use use) {
  for (int64_t v = 0; v < 2; ++v) {
    const int64_t rows = out.rows - v * kLanes;
    if (rows <= 0) return;
    const auto mask = static_cast<__mmask16>(rows >= kLanes ? 0xFFFF : (1 << rows) - 1);
    for (int64_t t = 0; t < out.tokens; ++t) {
      use(out.y + t * out.stride + v * kLanes, mask, (2 * t + v) * kLanes, v * kLanes);
    }
  }
}

// The tiles of a scope.
struct Tiles {
  Tiles() { _tile_loadconfig(&kTileConfig); }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

// Up to 32 rows of fewer tokens than a block has, or with a bias: by way of a buffer. Sums start
// from the same numbers as without one.
TN_INLINE void MultiplyPart(const Steps& steps, const ProductOut& out) {
  alignas(64) float buffer[kBlockTokens * 2 * kTileRows];
  const bool starts = out.adds || out.bias != nullptr;
  if (starts) {
    ForVectors(out, [&](const float* y, __mmask16 mask, int64_t at, int64_t row) {
      _mm512_store_ps(buffer + at, _mm512_maskz_loadu_ps(mask, out.adds ? y : out.bias + row));
    });
  }
  Multiply<Tokens::kStay>(steps, starts, {buffer, 2 * kTileRows});
  ForVectors(out, [&](float* y, __mmask16 mask, int64_t at, int64_t /*row*/) {
    _mm512_mask_storeu_ps(y, mask, _mm512_load_ps(buffer + at));
  });
}

// Can the sums be stored as whole tiles?
TN_INLINE bool IsWhole(const ProductOut& out) {
  return out.tokens == kBlockTokens && out.rows >= 2 * kTileRows &&
         (out.adds || out.bias == nullptr);
}

// Vectors of 16 rows as tiles of columns, `stride` bytes apart.
struct Panel {
  const std::byte* at = nullptr;
  int64_t stride = 0;
};
TN_INLINE Panel WholePanel(const std::byte* panel, int64_t cols) {
  return {panel, PanelOf(cols).vector * 4};
}

// 32 rows of a panel from row `first` on, of which `rows` exist. A vector of which none exists may
// lie in no memory.
TN_INLINE Steps StepsOf(const std::byte* block, Panel panel, int64_t first, int64_t rows,
                        int64_t cols) {
  return {block, panel.at + first / kTileRows * panel.stride, rows > kTileRows ? panel.stride : 0,
          PaddedCols(cols) / kTileCols};
}
TN_INLINE ProductOut RowsFrom(const ProductOut& out, int64_t first) {
  return {out.y + first,
          out.stride,
          out.tokens,
          out.rows - first,
          out.bias == nullptr ? nullptr : out.bias + first,
          out.adds};
}

// A block times a panel, from `cols` columns.
TN_INLINE void MultiplyBlock(const std::byte* block, int64_t cols, Panel panel,
                             const ProductOut& out) {
  for (int64_t first = 0; first < out.rows; first += 2 * kTileRows) {
    const ProductOut half = RowsFrom(out, first);
    const Steps steps = StepsOf(block, panel, first, half.rows, cols);
    if (IsWhole(half)) {
      Multiply<Tokens::kStay>(steps, half.adds, {half.y, half.stride});
    } else {
      MultiplyPart(steps, half);
    }
  }
}

// The sum of several blocks times whole panels of 64 rows, all tokens, without a bias.
template <int kCount>
TN_INLINE void MultiplyTerms(const ProductTerm* terms, int64_t cols, const ProductOut& out) {
  for (int64_t first = 0; first < kPanelRows; first += 2 * kTileRows) {
    ClearSums();
    for (int i = 0; i < kCount; ++i) {
      AddSteps<Tokens::kStay>(
          StepsOf(terms[i].block, WholePanel(terms[i].panel, cols), first, kPanelRows, cols),
          [](int64_t) {});
    }
    StoreSums({out.y + first, out.stride});
  }
}

}  // namespace
}  // namespace tenon::amx
