// Many tokens with bf16 tiles: 64 rows of weights are expanded to pairs in L2, then multiplied with
// blocks of 32 tokens, 32 x 32 sums in four tiles.
#include "tenon/kernels/cpu/amx/tiles.h"

#include "tenon/kernels/cpu/amx/tile_product.h"
#include "tenon/kernels/cpu/expand.h"

namespace tenon::amx {

void PackBlock(const float* x, int64_t x_stride, int64_t tokens, int64_t cols, std::byte* block) {
  const int64_t padded = PaddedCols(cols);
  for (int64_t t = 0; t < kBlockTokens; ++t) {
    for (int64_t i = 0; i < padded; i += kLanes) {
      const int64_t n = t < tokens ? cols - i : 0;
      const F32 v = n >= kLanes ? Load(x + t * x_stride + i)
                    : n <= 0    ? F32{}
                                : LoadFirst(x + t * x_stride + i, n);
      const auto bits = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(reinterpret_cast<__m512>(v)));
      std::byte* to = block + i / kTileCols * kBlockStepBytes + t * 64 + i % kTileCols * 2;
      _mm256_store_si256(reinterpret_cast<__m256i*>(to), bits);
    }
  }
}

namespace {

// The panel's columns that only fill the last tile are zero.
void ClearPadding(int64_t cols, std::byte* panel) {
  const PanelLayout layout = PanelOf(cols);
  auto* out = reinterpret_cast<float*>(panel);
  for (int64_t v = 0; v < kPanelRows / kLanes; ++v) {
    for (int64_t p = (cols + 1) / 2; p < PaddedCols(cols) / 2; ++p) {
      Store(out + v * layout.vector + p * layout.pair, F32{});
    }
  }
}

// Packed pairs are tiles already; others are expanded.
template <typename Form>
TN_INLINE Panel PanelFor(const PanelArgs& a, int64_t row, int64_t begin, int64_t end,
                         std::byte* panel) {
  if constexpr (requires { Form::kPairs; }) {
    return {a.w + row * a.row_bytes + begin / 2 * kVectorBytes, kPackedRows * a.row_bytes};
  } else {
    Expand<Form>(a, row, begin, end, PanelOf(end - begin), panel);
    ClearPadding(end - begin, panel);
    return WholePanel(panel, end - begin);
  }
}

template <typename Form>
void MultiplyPanel(const PanelArgs& a, int64_t row, int64_t token_begin, int64_t token_end,
                   std::byte* scratch) {
  const float* bias = a.bias == nullptr ? nullptr : a.bias + row;
  const int64_t rows = a.rows - row < kPanelRows ? a.rows - row : kPanelRows;
  for (int64_t begin = 0; begin < a.cols; begin += kPanelCols) {
    const int64_t end = begin + kPanelCols < a.cols ? begin + kPanelCols : a.cols;
    const Panel panel = PanelFor<Form>(a, row, begin, end, scratch);
    const Tiles tiles;
    for (int64_t t = token_begin; t < token_end; t += kBlockTokens) {
      const int64_t tokens = token_end - t < kBlockTokens ? token_end - t : kBlockTokens;
      const std::byte* block = a.x + t / kBlockTokens * BlockBytes(a.cols);
      MultiplyBlock(block + begin / kTileCols * kBlockStepBytes, end - begin, panel,
                    {a.y + t * a.y_stride + row, a.y_stride, tokens, rows, bias, begin > 0});
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
  AddPacked<PackedQ4_0>(matmul, DType::kQ4_0, TN_KERNEL_NAME("packed_tiles_q4_0"));
  AddPacked<PackedQ4_1>(matmul, DType::kQ4_1, TN_KERNEL_NAME("packed_tiles_q4_1"));
  AddPacked<PackedQ8_0>(matmul, DType::kQ8_0, TN_KERNEL_NAME("packed_tiles_q8_0"));
  AddPacked<PackedBf16>(matmul, DType::kBF16, TN_KERNEL_NAME("packed_tiles_bf16"));
}

}  // namespace tenon::amx
