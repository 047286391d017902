#include "tenon/ops/gated_matmul.h"

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
  int64_t num_tokens = 0;
  int64_t x_stride = 0;      // bytes
  int64_t y_stride = 0;      // floats
  int64_t group_rows = 1;    // of a few tokens' item
  int64_t block_tokens = 1;  // of many tokens' input
  int64_t panels = 1;
  int64_t part_tokens = 0;
};

// Rows [row, row + rows) of the result for tokens [first, last), from both products [token, rows]
// in `products`.
struct Tile {
  int64_t row = 0, rows = 0;
  int64_t first = 0, last = 0;
  float* products = nullptr;

  float* Product(int i) const { return products + i * (last - first) * rows; }
};
void StoreGated(const GatedArgs& a, const RunContext& context, const Tile& tile) {
  for (int64_t t = tile.first; t < tile.last; ++t) {
    const int64_t at = (t - tile.first) * tile.rows;
    a.elementwise->gated_activate.run(a.activation, tile.Product(0) + at, tile.Product(1) + at,
                                      a.y.For<float>(context.thread) + t * a.y_stride + tile.row,
                                      tile.rows);
  }
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
      args.y = tile.Product(i);
      args.y_stride = tile.rows;
      a.few(args, 0, tile.rows);
    }
    StoreGated(a, context, tile);
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
               tile.first / a.block_tokens * a.x_stride;  // whole blocks
      args.num_tokens = tile.last - tile.first;
      args.y = tile.Product(i);
      args.y_stride = tile.rows;
      a.panel(args, 0, 0, args.num_tokens, context.scratch);
    }
    StoreGated(a, context, tile);
  }
}

GatedArgs& Fill(GatedArgs& args, const Tape& tape, std::span<const MatrixRef, 2> gate_up,
                const Value& input, const Value& y) {
  args.matrices = gate_up.data();
  args.elementwise = &tape.kernels().elementwise;
  args.num_tokens = y.dim(0);
  args.x_stride = input.stride_bytes(0);
  args.y_stride = FloatStride(y, 0);
  return args;
}

void RecordFew(Tape& tape, Activation activation, std::span<const MatrixRef, 2> gate_up,
               const Value& packed, const Value& y) {
  const FewTokensKernel& kernel = FewOf(tape.kernels(), gate_up[0]);
  const int64_t group_rows = GroupRowsOf(gate_up[0]);
  const int64_t groups = CeilDiv(y.dim(1), group_rows);
  RecordBuilder<GatedArgs> record(tape, "gated_matmul", kernel.matmul.name);
  GatedArgs& args = Fill(record.args(), tape, gate_up, packed, y);
  args.activation = activation;
  args.few = kernel.matmul.run;
  args.group_rows = group_rows;
  record.Read(&GatedArgs::x, packed).Write(&GatedArgs::y, y);
  record.Commit<RunFew>(
      {.items = groups,
       .grain = FewGrain(gate_up[0], groups, 2 * gate_up[0].row_bytes * group_rows),
       .weight_bytes = WeightBytes(gate_up),
       .operations = Operations(gate_up, y.dim(0))});
}

void RecordMany(Tape& tape, Activation activation, std::span<const MatrixRef, 2> gate_up,
                const Value& blocks, const Value& y) {
  const PanelKernel& kernel = PanelsFor(tape.kernels(), gate_up[0]);
  const int64_t panels = CeilDiv(y.dim(1), kPanelRows);
  RecordBuilder<GatedArgs> record(tape, "gated_matmul", kernel.name);
  GatedArgs& args = Fill(record.args(), tape, gate_up, blocks, y);
  args.activation = activation;
  args.panel = kernel.run;
  args.block_tokens = tape.kernels().matmul.blocks.tokens;
  args.panels = panels;
  args.part_tokens = PartTokens(tape.kernels(), panels, gate_up[0].cols, y.dim(0));
  record.Read(&GatedArgs::x, blocks).Write(&GatedArgs::y, y);
  const int64_t products = 2 * args.part_tokens * kPanelRows;
  record.Commit<RunMany>({.items = panels * CeilDiv(y.dim(0), args.part_tokens),
                          .scratch_bytes = PanelBytes(gate_up[0].cols) +
                                           products * static_cast<int64_t>(sizeof(float)),
                          .weight_bytes = WeightBytes(gate_up),
                          .operations = Operations(gate_up, y.dim(0))});
}

bool Alike(const MatrixRef& a, const MatrixRef& b) {
  return a.dtype == b.dtype && a.form == b.form && a.compute == b.compute && a.rows == b.rows;
}

}  // namespace

Value GatedMatmul(Tape& tape, Activation activation, std::span<const MatrixRef, 2> gate_up,
                  const Value& x) {
  TN_CHECK(IsMatrix(x) && gate_up[0].cols == x.dim(1) && gate_up[1].cols == x.dim(1) &&
               gate_up[0].rows == gate_up[1].rows,
           "two matrices of one shape, as wide as their input");
  const int64_t num_tokens = x.dim(0);
  const int64_t rows = gate_up[0].rows;
  NarrowMatmul narrow(tape, x);
  if (Alike(gate_up[0], gate_up[1]) && gate_up[0].compute != Compute::kFp32 && num_tokens > 0) {
    const FewTokensKernel& few = FewOf(tape.kernels(), gate_up[0]);
    const bool is_few = num_tokens <= kFewTokens;
    if (is_few ? few.matmul.run != nullptr : PanelsFor(tape.kernels(), gate_up[0]).run != nullptr) {
      const Value input = is_few ? narrow.Packed(few.form) : narrow.Blocks();
      const Value y = tape.NewValue(DType::kF32, {num_tokens, rows});
      (is_few ? RecordFew : RecordMany)(tape, activation, gate_up, input, y);
      return y;
    }
  }
  const Value both = Matmul(tape, gate_up, x);
  return GatedActivate(tape, activation, both.Slice(1, 0, rows), both.Slice(1, rows, 2 * rows));
}

}  // namespace tenon
