// Many tokens with bf16 tiles: 32 rows of weights are expanded to pairs that stay in L1 while
// blocks of 32 tokens pass by, 32 x 32 sums in four tiles.
#include "tenon/kernels/cpu/amx/tiles.h"

#include "tenon/kernels/cpu/amx/tile_product.h"
#include "tenon/kernels/cpu/expand.h"

namespace tenon::amx {

namespace {

// Sixteen numbers of a row from column i on, of `cols`; those beyond are zero.
TN_INLINE __m512 FloatsAt(const float* row, int64_t i, int64_t cols) {
  const int64_t n = cols - i;
  return reinterpret_cast<__m512>(n >= kLanes ? Load(row + i)
                                  : n <= 0    ? F32{}
                                              : LoadFirst(row + i, n));
}

}  // namespace

// The block is written from its beginning to its end: stores that wait for their lines cost more
// than loads that do.
void PackBlock(const float* x, int64_t x_stride, int64_t tokens, int64_t cols, std::byte* block) {
  for (int64_t c = 0; c < PaddedCols(cols); c += kTileCols) {
    for (int64_t t = 0; t < kBlockTokens; ++t, block += 64) {
      __builtin_prefetch(block + kBlockStepBytes, 1);
      const float* row = x + t * x_stride;
      const int64_t n = t < tokens ? cols : 0;
      const __m512bh pairs = _mm512_cvtne2ps_pbh(FloatsAt(row, c + kLanes, n), FloatsAt(row, c, n));
      _mm512_store_si512(block, reinterpret_cast<__m512i>(pairs));
    }
  }
}

namespace {

// Rows that are multiplied together, and columns of them that stay in L1: 36 KiB, 32 of blocks of
// 256.
constexpr int64_t kStripRows = 2 * kTileRows;
template <typename Form>
constexpr int64_t kStripCols = 576;
template <typename Form>
requires(Form::kElements > 32) constexpr int64_t kStripCols<Form> = 512;

// The strip's columns that only fill the last tile are zero.
void ClearPadding(int64_t cols, PanelLayout layout, std::byte* strip) {
  auto* out = reinterpret_cast<float*>(strip);
  for (int64_t v = 0; v < layout.vectors; ++v) {
    for (int64_t p = (cols + 1) / 2; p < PaddedCols(cols) / 2; ++p) {
      Store(out + v * layout.vector + p * layout.pair, F32{});
    }
  }
}

// kStripRows rows from `row` on. Packed pairs are tiles already; others are expanded.
template <typename Form>
TN_INLINE Panel StripFor(const PanelArgs& a, int64_t row, int64_t begin, int64_t end,
                         std::byte* strip) {
  if constexpr (requires { Form::kPairs; }) {
    return {a.w + row * a.row_bytes + begin / 2 * kVectorBytes, kPackedRows * a.row_bytes};
  } else {
    PanelLayout layout = PanelOf(end - begin);
    layout.vectors = kStripRows / kLanes;
    Expand<Form>(a, row, begin, end, layout, strip);
    ClearPadding(end - begin, layout, strip);
    return WholePanel(strip, end - begin);
  }
}

// A strip, from `cols` columns, times tokens [0, tokens) of blocks that are block_bytes apart.
struct StripProduct {
  Panel strip;
  int64_t cols = 0;
  const std::byte* blocks = nullptr;
  int64_t block_bytes = 0;
  int64_t tokens = 0;
};
TN_INLINE void MultiplyStrip(const StripProduct& p, const ProductOut& out) {
  for (int64_t t = 0; t < p.tokens; t += kBlockTokens) {
    ProductOut part = out;
    part.y += t * out.stride;
    part.tokens = p.tokens - t < kBlockTokens ? p.tokens - t : kBlockTokens;
    const Steps steps =
        StepsOf(p.blocks + t / kBlockTokens * p.block_bytes, p.strip, 0, out.rows, p.cols);
    if (IsWhole(part)) {
      MultiplyAndAsk(steps, out.adds, {part.y, out.stride},
                     {part.y + kBlockTokens * out.stride, out.stride});
    } else {
      MultiplyPart(steps, part);
    }
  }
}

template <typename Form>
void MultiplyPanel(const PanelArgs& a, int64_t row, int64_t token_begin, int64_t token_end,
                   std::byte* scratch) {
  const int64_t last = a.rows < row + kPanelRows ? a.rows : row + kPanelRows;
  const std::byte* blocks = a.x + token_begin / kBlockTokens * BlockBytes(a.cols);
  const Tiles tiles;
  for (int64_t r = row; r < last; r += kStripRows) {
    for (int64_t c = 0; c < a.cols; c += kStripCols<Form>) {
      const int64_t end = c + kStripCols<Form> < a.cols ? c + kStripCols<Form> : a.cols;
      const StripProduct product = {StripFor<Form>(a, r, c, end, scratch), end - c,
                                    blocks + c / kTileCols * kBlockStepBytes, BlockBytes(a.cols),
                                    token_end - token_begin};
      MultiplyStrip(product, {a.y + token_begin * a.y_stride + r, a.y_stride, 0, last - r,
                              a.bias == nullptr ? nullptr : a.bias + r, c > 0});
    }
  }
}

// Four chains of products on registers.
float Probe(int64_t steps) {
  const Tiles tiles;
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
  return sums[0];
}

template <typename Decode>
void Add(MatmulKernels& matmul, DType dtype, const char* name) {
  matmul.panels[static_cast<int>(dtype)] = {MultiplyPanel<Decode>, name};
}
template <typename Format>
void AddPacked(MatmulKernels& matmul, DType dtype, const char* name) {
  matmul.packed[static_cast<int>(dtype)].panels = {MultiplyPanel<Format>, name};
}
template <typename Codes>
void AddScaled(MatmulKernels& matmul, DType dtype, const char* name) {
  matmul.scaled[static_cast<int>(dtype)].panels = {MultiplyPanel<Scaled<Codes>>, name};
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
  AddScaled<CodesF8E4M3>(matmul, DType::kF8E4M3, TN_KERNEL_NAME("tiles_f8_e4m3_scaled"));
  AddScaled<CodesI8>(matmul, DType::kI8, TN_KERNEL_NAME("tiles_i8_scaled"));
  AddPacked<PackedQ4_0>(matmul, DType::kQ4_0, TN_KERNEL_NAME("packed_tiles_q4_0"));
  AddPacked<PackedQ4_1>(matmul, DType::kQ4_1, TN_KERNEL_NAME("packed_tiles_q4_1"));
  AddPacked<PackedQ8_0>(matmul, DType::kQ8_0, TN_KERNEL_NAME("packed_tiles_q8_0"));
  AddPacked<PackedQ4K>(matmul, DType::kQ4_K, TN_KERNEL_NAME("packed_tiles_q4_k"));
  AddPacked<PackedBf16>(matmul, DType::kBF16, TN_KERNEL_NAME("packed_tiles_bf16"));
}

}  // namespace tenon::amx
