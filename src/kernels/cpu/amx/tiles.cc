// Many tokens with bf16 tiles: 64 rows of weights are expanded to pairs in L2, then multiplied with
// blocks of 32 tokens, 32 x 32 sums in four tiles.
#include "tenon/kernels/cpu/amx/tiles.h"

#include "tenon/kernels/cpu/expand.h"

namespace tenon::amx {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileCols = 32;                // bf16 numbers of a tile's row
constexpr int64_t kBlockTokens = 32;             // two tiles
constexpr int64_t kPairStride = kPanelRows * 4;  // bytes between pairs of columns in a panel

constexpr int64_t PaddedCols(int64_t cols) {
  return (cols + kTileCols - 1) / kTileCols * kTileCols;
}
constexpr int64_t BlockBytes(int64_t cols) { return kBlockTokens * 2 * PaddedCols(cols); }

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

// A block is [32 tokens][padded cols].
void PackBlock(const float* x, int64_t x_stride, int64_t tokens, int64_t cols, std::byte* block) {
  const int64_t padded = PaddedCols(cols);
  for (int64_t t = 0; t < kBlockTokens; ++t) {
    std::byte* to = block + t * 2 * padded;
    for (int64_t i = 0; i < padded; i += kLanes) {
      const int64_t n = t < tokens ? cols - i : 0;
      const F32 v = n >= kLanes ? Load(x + t * x_stride + i)
                    : n <= 0    ? F32{}
                                : LoadFirst(x + t * x_stride + i, n);
      const auto bits = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(reinterpret_cast<__m512>(v)));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 2 * i), bits);
    }
  }
}

// sums [32 tokens][32 rows] = block times two tiles of the panel's rows, from `steps` tiles of
// columns.
TN_INLINE void Multiply(const std::byte* block, int64_t token_stride, const std::byte* panel,
                        int64_t steps, float* sums) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  const std::byte* second = block + kTileRows * token_stride;
  for (int64_t s = 0; s < steps; ++s) {
    _tile_loadd(4, block + s * 64, static_cast<size_t>(token_stride));
    _tile_loadd(6, panel + s * kTileRows * kPairStride, kPairStride);
    _tile_loadd(7, panel + s * kTileRows * kPairStride + 64, kPairStride);
    _tile_loadd(5, second + s * 64, static_cast<size_t>(token_stride));
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  constexpr size_t kStride = 2 * kTileRows * sizeof(float);
  _tile_stored(0, sums, kStride);
  _tile_stored(1, sums + kTileRows, kStride);
  _tile_stored(2, sums + kTileRows * 2 * kTileRows, kStride);
  _tile_stored(3, sums + kTileRows * 2 * kTileRows + kTileRows, kStride);
}

struct TileOut {
  float* y = nullptr;  // [tokens, 32 rows]
  int64_t stride = 0;
  int64_t tokens = 0;
  int64_t rows = 0;
  const float* bias = nullptr;
  bool adds = false;  // to what earlier columns left
};

TN_INLINE void StoreSums(const float* sums, const TileOut& out) {
  for (int64_t v = 0; v < 2; ++v) {
    const int64_t rows = out.rows - v * kLanes;
    if (rows <= 0) return;
    const auto mask = static_cast<__mmask16>(rows >= kLanes ? 0xFFFF : (1 << rows) - 1);
    const __m512 bias = out.bias == nullptr ? _mm512_setzero_ps()
                                            : _mm512_maskz_loadu_ps(mask, out.bias + v * kLanes);
    for (int64_t t = 0; t < out.tokens; ++t) {
      float* y = out.y + t * out.stride + v * kLanes;
      const __m512 before = out.adds ? _mm512_maskz_loadu_ps(mask, y) : bias;
      const __m512 sum = _mm512_load_ps(sums + t * 2 * kLanes + v * kLanes);
      _mm512_mask_storeu_ps(y, mask, _mm512_add_ps(sum, before));
    }
  }
}

// The panel's columns that only fill the last tile are zero.
void ClearPadding(int64_t cols, std::byte* panel) {
  const int64_t begin = (cols + 1) / 2;
  const int64_t end = PaddedCols(cols) / 2;
  for (int64_t p = begin; p < end; ++p) {
    for (int64_t i = 0; i < kPairStride; i += 64) {
      _mm512_store_si512(panel + p * kPairStride + i, _mm512_setzero_si512());
    }
  }
}

template <typename Decode>
void MultiplyPanel(const PanelArgs& a, int64_t row, int64_t token_begin, int64_t token_end,
                   std::byte* panel) {
  alignas(64) float sums[kBlockTokens * 2 * kTileRows];
  const TileConfig config;
  const int64_t token_stride = 2 * PaddedCols(a.cols);
  const int64_t panel_rows = a.rows - row < kPanelRows ? a.rows - row : kPanelRows;
  for (int64_t begin = 0; begin < a.cols; begin += kPanelCols) {
    const int64_t end = begin + kPanelCols < a.cols ? begin + kPanelCols : a.cols;
    Expand<Decode>(a, row, begin, end, panel);
    ClearPadding(end - begin, panel);
    _tile_loadconfig(&config);
    for (int64_t half = 0; half * 2 * kTileRows < panel_rows; ++half) {
      for (int64_t t = token_begin; t < token_end; t += kBlockTokens) {
        const std::byte* block = a.x + t / kBlockTokens * BlockBytes(a.cols) + 2 * begin;
        Multiply(block, token_stride, panel + half * 2 * 64, PaddedCols(end - begin) / kTileCols,
                 sums);
        const int64_t first = row + half * 2 * kTileRows;
        StoreSums(sums, {a.y + t * a.y_stride + first, a.y_stride,
                         token_end - t < kBlockTokens ? token_end - t : kBlockTokens,
                         panel_rows - half * 2 * kTileRows,
                         a.bias == nullptr ? nullptr : a.bias + first, begin > 0});
      }
    }
    _tile_release();
  }
}

// Four chains of products on registers.
float Probe(int64_t steps) {
  const TileConfig config;
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  for (int64_t i = 0; i < steps; ++i) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  alignas(64) float sums[kTileRows * kTileRows];
  _tile_stored(0, sums, kTileRows * sizeof(float));
  _tile_release();
  return sums[0];
}

template <typename Decode>
void Add(MatmulKernels& matmul, DType dtype, const char* name) {
  matmul.panels[static_cast<int>(dtype)] = {MultiplyPanel<Decode>, name};
}

}  // namespace

void AddTileProbe(ProbeKernels& probes) {
  probes.multiply = {Probe, TN_KERNEL_NAME("multiply")};
  probes.operations_per_step = 4.0 * 2 * kTileRows * kTileRows * kTileCols;
}

void AddTiles(MatmulKernels& matmul) {
  matmul.blocks = {{PackBlock, TN_KERNEL_NAME("pack_block")}, kBlockTokens, kTileCols};
  Add<DecodeF32>(matmul, DType::kF32, TN_KERNEL_NAME("tiles_f32"));
  Add<DecodeBf16>(matmul, DType::kBF16, TN_KERNEL_NAME("tiles_bf16"));
  Add<DecodeF16>(matmul, DType::kF16, TN_KERNEL_NAME("tiles_f16"));
  Add<DecodeQ4_0>(matmul, DType::kQ4_0, TN_KERNEL_NAME("tiles_q4_0"));
  Add<DecodeQ4_1>(matmul, DType::kQ4_1, TN_KERNEL_NAME("tiles_q4_1"));
  Add<DecodeQ8_0>(matmul, DType::kQ8_0, TN_KERNEL_NAME("tiles_q8_0"));
  Add<DecodeQ6K>(matmul, DType::kQ6_K, TN_KERNEL_NAME("tiles_q6_k"));
  Add<DecodeQ4K>(matmul, DType::kQ4_K, TN_KERNEL_NAME("tiles_q4_k"));
}

}  // namespace tenon::amx
