// Matmul kernels: a weight's rows as they are stored times activations, in fp32 or with narrow
// activations (bf16, or integers in blocks of 32 with a scale each). Plain functions over raw
// pointers, single-threaded over a range, no STL. Part of table.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tenon/numeric/dtype.h"
#include "tenon/numeric/scale_grid.h"

namespace tenon {

// A kernel and the name that plans, profiles and dispatch counters print: "reference/rms_norm".
template <typename Function>
struct Kernel {
  Function* run = nullptr;
  const char* name = "";
};

// The scales of rows of codes. Beside the reference, kernels take grids whose cols are a multiple
// of kScaleCols or a whole row.
struct WeightScales {
  ScaleGrid grid;
  int64_t first_row = 0;  // the grid's row that row 0 of the codes has

  // Of row r of the codes: [ceil(cols / grid.cols)].
  [[gnu::always_inline]] const float* Row(int64_t r) const {
    return grid.data + (first_row + r) / grid.rows * grid.stride;
  }
};
inline constexpr int64_t kScaleCols = 32;

// y[t * y_stride + r] = dot(w row r, x row t) + bias[r] for r in [row_begin, row_end). A row's
// result depends on neither the range nor num_tokens.
struct MatmulKernelArgs {
  const std::byte* w = nullptr;  // [rows, cols], row_bytes apart, at any byte address
  int64_t row_bytes = 0;
  int64_t cols = 0;
  const float* bias = nullptr;  // [rows] or null
  const float* x = nullptr;     // [num_tokens, cols], x_stride floats apart
  int64_t x_stride = 0;
  int64_t num_tokens = 0;
  float* y = nullptr;  // [num_tokens, rows], y_stride floats apart
  int64_t y_stride = 0;
  WeightScales scales = {};  // for kernels of ScaledWeightKernels
};
// scratch: MatmulScratchFloats(cols) floats: decoded rows.
using MatmulFunction = void(const MatmulKernelArgs& args, int64_t row_begin, int64_t row_end,
                            float* scratch);
inline constexpr int64_t kMatmulTileRows = 4;
inline constexpr int64_t kMatmulScratchRows = 16;
constexpr int64_t MatmulScratchFloats(int64_t cols) { return kMatmulScratchRows * cols; }

// --- narrow activations

// How a row of activations is packed for the kernels of a weight format. Rows are multiples of 64
// bytes; columns beyond the last count as zero.
enum class ActivationForm : uint8_t {
  kBf16,  // [cols] bf16
  // Integers of 16 bits in blocks of 32, scale = max|x| / kIntegerTop, as two planes of bytes: the
  // integer is 256 * high + low, both int8. Exact enough that the weights' own rounding is all
  // that is left. Groups of 4 blocks: high plane of elements 0-15 of each block, then of 16-31 (as
  // nibbles lie in Q4_0 and Q4_1), the low plane likewise, then per 4-byte lane of both: -8 * sum
  // of the integers (i32), the block's scale, scale * sum, scale * sum over the whole block (f32).
  kNibbles,
  // The same integers in groups of 2 blocks in their own order: high plane, low plane, then per
  // 4-byte lane: -sum (i32), the scale, scale * sum (f32).
  kBytes,
  // The same integers block after block, for packed weights: 32 high bytes, 32 low bytes, the
  // block's scale, scale * sum (f32), -8 * sum, -128 * sum (i32). Columns up to a multiple of 64.
  kIntegers,
  // int8 with one scale for the whole row, max|x| / 127, ties to even: [cols up to a multiple of
  // 64], then the scale (f32) and -128 * sum of the integers (i32). The scale is NaN where a number
  // is not finite, and 0, with zeros, where all are below 2^-119.
  kInt8Row,
};
inline constexpr int kActivationForms = 5;
inline constexpr float kIntegerTop = 127 * 256;
inline constexpr float kInt8Top = 127;
inline constexpr int64_t kInt8TailBytes = 64;
// Sums of products of int8 stay within 32 bits.
inline constexpr int64_t kMostInt8Cols = 131072;
constexpr int64_t kNibblesGroup = 128, kNibblesGroupBytes = 512;
constexpr int64_t kBytesGroup = 64, kBytesGroupBytes = 320;
constexpr int64_t kIntegersBlockBytes = 80;
constexpr int64_t ActivationRowBytes(ActivationForm form, int64_t cols) {
  switch (form) {
    case ActivationForm::kBf16:
      return (2 * cols + 63) / 64 * 64;
    case ActivationForm::kNibbles:
      return (cols + kNibblesGroup - 1) / kNibblesGroup * kNibblesGroupBytes;
    case ActivationForm::kBytes:
      return (cols + kBytesGroup - 1) / kBytesGroup * kBytesGroupBytes;
    case ActivationForm::kIntegers:
      return ((cols + 63) / 64 * 2 * kIntegersBlockBytes + 63) / 64 * 64;
    case ActivationForm::kInt8Row:
      return (cols + 63) / 64 * 64 + kInt8TailBytes;
  }
  return 0;
}
// x [cols] -> packed, 64-byte aligned.
using PackRowFunction = void(const float* x, int64_t cols, std::byte* packed);

// As MatmulKernelArgs, with packed activations.
struct NarrowMatmulArgs {
  const std::byte* w = nullptr;
  int64_t row_bytes = 0;
  int64_t cols = 0;
  const float* bias = nullptr;
  const std::byte* x = nullptr;  // [num_tokens] rows of ActivationRowBytes
  int64_t x_stride = 0;          // bytes
  int64_t num_tokens = 0;
  float* y = nullptr;
  int64_t y_stride = 0;      // floats
  WeightScales scales = {};  // as in MatmulKernelArgs
};
// row_begin is a multiple of kMatmulTileRows (of packed weights: kPackedRows); row_end too, or the
// last row: which rows are summed together is part of a result.
using NarrowMatmulFunction = void(const NarrowMatmulArgs& args, int64_t row_begin, int64_t row_end);

// Few tokens: the weight is read once, as it is held.
struct FewTokensKernel {
  Kernel<NarrowMatmulFunction> matmul;
  ActivationForm form = ActivationForm::kBf16;
};

// --- many tokens: panels of bf16

// A panel is [cols / 2][64 rows of the weight] of bf16 pairs; missing rows and columns count as
// zero.
inline constexpr int64_t kPanelRows = 64;
// Columns of a panel that are expanded together: 256 KiB, so that it stays in L2.
inline constexpr int64_t kPanelCols = 2048;
constexpr int64_t PanelBytes(int64_t cols) {
  return kPanelRows * 2 * (((cols < kPanelCols ? cols : kPanelCols) + 31) / 32 * 32);
}

struct PanelArgs {
  const std::byte* w = nullptr;  // as in MatmulKernelArgs
  int64_t row_bytes = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  const float* bias = nullptr;
  const std::byte* x = nullptr;  // blocks of tokens
  int64_t num_tokens = 0;
  float* y = nullptr;
  int64_t y_stride = 0;      // floats
  WeightScales scales = {};  // as in MatmulKernelArgs
};
// Output rows [row, row + kPanelRows) for tokens [token_begin, token_end), token_begin a multiple
// of the block's tokens. panel: PanelBytes(cols) of scratch, 64-byte aligned.
using PanelFunction = void(const PanelArgs& args, int64_t row, int64_t token_begin,
                           int64_t token_end, std::byte* panel);
// x: tokens [0, tokens) of a block, x_stride floats apart.
using PackBlockFunction = void(const float* x, int64_t x_stride, int64_t tokens, int64_t cols,
                               std::byte* block);

// How the activations of many tokens are packed: blocks of some tokens, bf16, in an order that only
// the table's own kernels know. Missing tokens and columns count as zero.
struct TokenBlocks {
  Kernel<PackBlockFunction> pack;
  int64_t tokens = 1;       // of a block
  int64_t cols_padded = 2;  // columns are padded to a multiple of it

  int64_t Bytes(int64_t cols) const {
    return tokens * 2 * ((cols + cols_padded - 1) / cols_padded * cols_padded);
  }
};

// --- packed weights

// A weight's rows in groups of 16, such that one vector holds the same columns of all of them: a
// product permutes nothing and sums nothing across lanes. About as many bytes as the rows have.
// What a group looks like is known to the kernels of one table only.
inline constexpr int64_t kPackedRows = 16;
// Groups that kernels of few tokens like to get together: as many streams from memory.
inline constexpr int64_t kPackedStreams = 4;

struct PackWeightArgs {
  const std::byte* w = nullptr;  // as in MatmulKernelArgs
  int64_t row_bytes = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  std::byte* packed = nullptr;  // groups one after the other, 64-byte aligned
};
// Groups [group_begin, group_end); rows that the last one lacks become zero.
using PackWeightFunction = void(const PackWeightArgs& args, int64_t group_begin, int64_t group_end);

// `few` and `panels` read groups: w is the first one, row_bytes a sixteenth of one.
struct PackedWeightKernels {
  Kernel<PackWeightFunction> pack;
  int64_t unit_cols = 1;   // packed rows have a multiple of it
  int64_t unit_bytes = 0;  // of one row's unit_cols
  bool pays = true;  // for the copy that a start makes, by what was measured (docs/performance.md)
  FewTokensKernel few;
  Kernel<PanelFunction> panels;
};

// --- weights stored as codes, with scales beside them

// kF8E4M3 and kI8; fp32 is there for both in every table. per_token rounds activations to kInt8Row,
// multiplies integers, and takes any number of tokens and only grids with whole rows.
struct ScaledWeightKernels {
  Kernel<MatmulFunction> fp32;
  FewTokensKernel few;
  Kernel<PanelFunction> panels;
  FewTokensKernel per_token;
};

// By weight dtype; null: no kernel.
struct MatmulKernels {
  static constexpr int kDTypes = 32;
  Kernel<MatmulFunction> of[kDTypes] = {};
  FewTokensKernel few[kDTypes] = {};
  Kernel<PanelFunction> panels[kDTypes] = {};
  PackedWeightKernels packed[kDTypes] = {};
  ScaledWeightKernels scaled[kDTypes] = {};
  Kernel<PackRowFunction> pack[kActivationForms] = {};  // by ActivationForm
  TokenBlocks blocks;

  const Kernel<MatmulFunction>& For(DType dtype) const { return of[static_cast<int>(dtype)]; }
  const FewTokensKernel& Few(DType dtype) const { return few[static_cast<int>(dtype)]; }
  const Kernel<PanelFunction>& Panels(DType dtype) const { return panels[static_cast<int>(dtype)]; }
  const PackedWeightKernels& Packed(DType dtype) const { return packed[static_cast<int>(dtype)]; }
  const ScaledWeightKernels& Scaled(DType dtype) const { return scaled[static_cast<int>(dtype)]; }
  const Kernel<PackRowFunction>& Pack(ActivationForm form) const {
    return pack[static_cast<int>(form)];
  }
};

}  // namespace tenon
