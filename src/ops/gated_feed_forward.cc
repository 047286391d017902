#include "tenon/ops/gated_feed_forward.h"

#include <algorithm>

#include "tenon/kernels/table.h"
#include "tenon/ops/activation.h"
#include "tenon/ops/narrow_matmul.h"
#include "tenon/ops/rows.h"
#include "tenon/tensor/buffer.h"

namespace tenon {
namespace {

struct GatedArgs {
  Operand x, y;
  const MatrixRef* matrices = nullptr;  // gate, up
  const ElementwiseKernels* elementwise = nullptr;
  Activation activation = Activation::kSilu;
  NarrowMatmulFunction* few = nullptr;
  PanelFunction* panel = nullptr;
  const TokenBlocks* blocks = nullptr;
  int64_t num_tokens = 0;
  int64_t x_stride = 0;    // bytes: of a row, or of a block
  int64_t y_stride = 0;    // bytes, likewise
  int64_t group_rows = 1;  // of a few tokens' item
  int64_t panels = 1;
  int64_t part_tokens = 0;
};

// Rows [row, row + rows) of both products, [token, rows] each, for tokens [first, last).
struct Tile {
  int64_t row = 0, rows = 0;
  int64_t first = 0, last = 0;
  float* products = nullptr;

  float* Product(int i, int64_t token) const {
    return products + (i * (last - first) + token - first) * rows;
  }
};
// The first n numbers from a token on, which go on with the next one's.
void Gate(const GatedArgs& a, const Tile& tile, int64_t token, int64_t n, float* out) {
  a.elementwise->gated_activate.run(a.activation, tile.Product(0, token), tile.Product(1, token),
                                    out, n);
}

// Rows of both matrices that are worked on together.
constexpr int64_t kFewRows = 64;

// Items are groups of rows.
void RunFew(const GatedArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  alignas(64) float products[2 * kFewTokens * kFewRows];
  const int64_t rows = a.matrices[0].rows;
  const int64_t last_row = std::min(rows, end * a.group_rows);
  for (int64_t row = begin * a.group_rows; row < last_row; row += kFewRows) {
    const Tile tile{row, std::min(kFewRows, last_row - row), 0, a.num_tokens, products};
    for (int i = 0; i < 2; ++i) {
      const MatrixRef& w = a.matrices[i];
      NarrowMatmulArgs args;
      args.w = w.data + row * w.row_bytes;
      args.row_bytes = w.row_bytes;
      args.cols = w.cols;
      args.bias = w.bias == nullptr ? nullptr : w.bias + row;
      args.x = a.x.For<std::byte>(context.thread);
      args.x_stride = a.x_stride;
      args.num_tokens = a.num_tokens;
      args.y = tile.Product(i, 0);
      args.y_stride = tile.rows;
      args.scales = {w.scales, row};
      a.few(args, 0, tile.rows);
    }
    for (int64_t t = 0; t < a.num_tokens; ++t) {
      auto* y = a.y.For<std::byte>(context.thread) + t * a.y_stride;
      Gate(a, tile, t, tile.rows, reinterpret_cast<float*>(y) + row);
    }
  }
}

// The tile's columns of the blocks that `down` reads.
void StoreBlocks(const GatedArgs& a, const RunContext& context, const Tile& tile) {
  for (int64_t t = tile.first; t < tile.last; t += a.blocks->tokens) {
    const int64_t tokens = std::min(a.blocks->tokens, tile.last - t);
    Gate(a, tile, t, tokens * tile.rows, tile.Product(0, t));
    a.blocks->pack.run(tile.Product(0, t), tile.rows, tokens, tile.rows,
                       a.y.For<std::byte>(context.thread) + t / a.blocks->tokens * a.y_stride +
                           a.blocks->Bytes(tile.row));
  }
}

// Items are (part of the tokens, panel).
void RunMany(const GatedArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const int64_t panel_bytes = PanelBytes(a.matrices[0].cols);
  for (int64_t item = begin; item < end; ++item) {
    Tile tile;
    tile.row = item % a.panels * kPanelRows;
    tile.rows = std::min(kPanelRows, a.matrices[0].rows - tile.row);
    tile.first = item / a.panels * a.part_tokens;
    tile.last = std::min(a.num_tokens, tile.first + a.part_tokens);
    tile.products = reinterpret_cast<float*>(context.scratch + panel_bytes);
    for (int i = 0; i < 2; ++i) {
      const MatrixRef& w = a.matrices[i];
      PanelArgs args;
      args.w = w.data + tile.row * w.row_bytes;
      args.row_bytes = w.row_bytes;
      args.rows = tile.rows;
      args.cols = w.cols;
      args.bias = w.bias == nullptr ? nullptr : w.bias + tile.row;
      args.x = a.x.For<std::byte>(context.thread) +
               tile.first / a.blocks->tokens * a.x_stride;  // parts are whole blocks
      args.num_tokens = tile.last - tile.first;
      args.y = tile.Product(i, tile.first);
      args.y_stride = tile.rows;
      args.scales = {w.scales, tile.row};
      a.panel(args, 0, 0, args.num_tokens, context.scratch);
    }
    StoreBlocks(a, context, tile);
  }
}

GatedArgs& Fill(GatedArgs& args, const Tape& tape, std::span<const MatrixRef, 2> gate_up,
                const Value& input, const Value& y) {
  args.matrices = gate_up.data();
  args.elementwise = &tape.kernels().elementwise;
  args.x_stride = input.stride_bytes(0);
  args.y_stride = y.stride_bytes(0);
  return args;
}

// [num_tokens, rows]
Value RecordFew(Tape& tape, Activation activation, std::span<const MatrixRef, 2> gate_up,
                const Value& packed) {
  const FewTokensKernel& kernel = FewOf(tape.kernels(), gate_up[0]);
  const int64_t num_tokens = packed.dim(0);
  const int64_t group_rows = GroupRowsOf(gate_up[0]);
  const int64_t groups = CeilDiv(gate_up[0].rows, group_rows);
  const Value y = tape.NewValue(DType::kF32, {num_tokens, gate_up[0].rows});
  RecordBuilder<GatedArgs> record(tape, "gated_matmul", kernel.matmul.name);
  GatedArgs& args = Fill(record.args(), tape, gate_up, packed, y);
  args.activation = activation;
  args.num_tokens = num_tokens;
  args.few = kernel.matmul.run;
  args.group_rows = group_rows;
  record.Read(&GatedArgs::x, packed).Write(&GatedArgs::y, y);
  record.Commit<RunFew>(
      {.items = groups,
       .grain = FewGrain(gate_up[0], groups, 2 * gate_up[0].row_bytes * group_rows),
       .weight_bytes = WeightBytes(gate_up),
       .operations = Operations(gate_up, num_tokens)});
  return y;
}

// Blocks of num_tokens, as NarrowMatmul::Blocks.
Value RecordMany(Tape& tape, Activation activation, std::span<const MatrixRef, 2> gate_up,
                 const Value& blocks, int64_t num_tokens) {
  const PanelKernel& kernel = PanelsFor(tape.kernels(), gate_up[0]);
  const TokenBlocks& form = tape.kernels().matmul.blocks;
  const int64_t panels = CeilDiv(gate_up[0].rows, kPanelRows);
  const Value y = tape.NewValue(DType::kU8, {blocks.dim(0), form.Bytes(gate_up[0].rows)});
  RecordBuilder<GatedArgs> record(tape, "gated_matmul", kernel.name);
  GatedArgs& args = Fill(record.args(), tape, gate_up, blocks, y);
  args.activation = activation;
  args.num_tokens = num_tokens;
  args.panel = kernel.run;
  args.blocks = &form;
  args.panels = panels;
  args.part_tokens = PartTokens(tape.kernels(), panels, gate_up[0].cols, num_tokens);
  record.Read(&GatedArgs::x, blocks).Write(&GatedArgs::y, y);
  const int64_t products = 2 * args.part_tokens * kPanelRows;
  record.Commit<RunMany>({.items = panels * CeilDiv(num_tokens, args.part_tokens),
                          .scratch_bytes = PanelBytes(gate_up[0].cols) +
                                           products * static_cast<int64_t>(sizeof(float)),
                          .weight_bytes = WeightBytes(gate_up),
                          .operations = Operations(gate_up, num_tokens)});
  return y;
}

}  // namespace

Value GatedFeedForward(Tape& tape, Activation activation, const FeedForwardMatrices& matrices,
                       const Value& x) {
  const auto [gate_up, down] = matrices;
  TN_CHECK(IsMatrix(x) && gate_up[0].cols == x.dim(1) && gate_up[1].cols == x.dim(1) &&
               gate_up[0].rows == gate_up[1].rows && down[0].cols == gate_up[0].rows,
           "two matrices of one shape, as wide as their input, and one as wide as their result");
  const int64_t num_tokens = x.dim(0);
  const int64_t rows = gate_up[0].rows;
  const KernelTable& kernels = tape.kernels();
  for (const MatrixRef& w : {gate_up[0], gate_up[1], down[0]}) CheckScales(w);
  if (HaveOneKernel(kernels, gate_up[0], gate_up[1]) && IsNarrow(kernels, gate_up[0], num_tokens)) {
    NarrowMatmul narrow(tape, x);
    if (num_tokens <= kFewTokens) {
      const Value packed = narrow.Packed(FewOf(kernels, gate_up[0]).form);
      return Matmul(tape, down, RecordFew(tape, activation, gate_up, packed));
    }
    const bool blocks =
        !ReadsRows(kernels, gate_up[0], num_tokens) && !ReadsRows(kernels, down[0], num_tokens);
    if (blocks && IsNarrow(kernels, down[0], num_tokens)) {
      const Value y = tape.NewValue(DType::kF32, {num_tokens, down[0].rows});
      MultiplyBlocks(tape, down, RecordMany(tape, activation, gate_up, narrow.Blocks(), num_tokens),
                     y);
      return y;
    }
  }
  const Value both = Matmul(tape, gate_up, x);
  return Matmul(
      tape, down,
      GatedActivate(tape, activation, both.Slice(1, 0, rows), both.Slice(1, rows, 2 * rows)));
}

}  // namespace tenon
