#include "tenon/ops/per_head.h"

#include <algorithm>

#include "tenon/kernels/table.h"
#include "tenon/ops/rows.h"
#include "tenon/tensor/buffer.h"

namespace tenon {
namespace {

// Rows of a head's matrix per item: one decoded row serves all tokens.
constexpr int64_t kRowBlock = 32;

struct PerHeadArgs {
  Operand x, y;
  const MatrixRef* matrices = nullptr;  // [heads]
  const KernelTable* kernels = nullptr;
  int64_t num_tokens = 0;
  int64_t rows = 0;
  int64_t blocks = 0;             // row blocks of a matrix
  int64_t x_row = 0, x_head = 0;  // strides, floats
  int64_t y_row = 0, y_head = 0;
};

// Items: (head, row block).
void RunPerHead(const PerHeadArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  for (int64_t item = begin; item < end; ++item) {
    const int64_t h = item / a.blocks;
    const int64_t from = item % a.blocks * kRowBlock;
    const MatrixRef& m = a.matrices[h];
    MatmulKernelArgs args;
    args.w = m.data;
    args.row_bytes = m.row_bytes;
    args.cols = m.cols;
    args.bias = m.bias;
    args.x = a.x.For<float>(context.thread) + h * a.x_head;
    args.x_stride = a.x_row;
    args.num_tokens = a.num_tokens;
    args.y = a.y.For<float>(context.thread) + h * a.y_head;
    args.y_stride = a.y_row;
    a.kernels->matmul.For(m.dtype).run(args, from, std::min(from + kRowBlock, a.rows),
                                       reinterpret_cast<float*>(context.scratch));
  }
}

struct CopyArgs {
  Operand x, y;
  int64_t heads = 0, width = 0;
  int64_t x_row = 0, x_head = 0;  // strides, floats
  int64_t y_row = 0, y_head = 0;
};

void RunCopy(const CopyArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t h = 0; h < a.heads; ++h) {
      std::memcpy(a.y.For<float>(context.thread) + t * a.y_row + h * a.y_head,
                  a.x.For<float>(context.thread) + t * a.x_row + h * a.x_head,
                  static_cast<size_t>(a.width) * sizeof(float));
    }
  }
}

}  // namespace

Value MatmulPerHead(Tape& tape, std::span<const MatrixRef> matrices, const Value& x,
                    int64_t extra) {
  TN_CHECK(IsRows(x) && x.shape().rank() == 3 && !matrices.empty() &&
               x.dim(1) == static_cast<int64_t>(matrices.size()),
           "one matrix per head of [num_tokens, heads, cols] fp32");
  for (const MatrixRef& m : matrices) {
    TN_CHECK(m.cols == x.dim(2) && m.rows == matrices[0].rows && m.dtype == matrices[0].dtype &&
                 m.form == HeldForm::kRows,
             "rows of one shape and dtype, as wide as the head");
  }
  const Kernel<MatmulFunction>& kernel = tape.kernels().matmul.For(matrices[0].dtype);
  TN_CHECK(kernel.run != nullptr, "a kernel for the weight's dtype");
  const Value y = tape.NewValue(DType::kF32, {x.dim(0), x.dim(1), matrices[0].rows + extra});
  RecordBuilder<PerHeadArgs> record(tape, "matmul_per_head", kernel.name);
  PerHeadArgs& args = record.args();
  args.matrices = matrices.data();
  args.kernels = &tape.kernels();
  args.num_tokens = x.dim(0);
  args.rows = matrices[0].rows;
  args.blocks = (args.rows + kRowBlock - 1) / kRowBlock;
  args.x_row = FloatStride(x, 0);
  args.x_head = FloatStride(x, 1);
  args.y_row = FloatStride(y, 0);
  args.y_head = FloatStride(y, 1);
  record.Read(&PerHeadArgs::x, x).Write(&PerHeadArgs::y, y);
  record.Commit<RunPerHead>(
      {.items = x.dim(0) == 0 ? 0 : x.dim(1) * args.blocks,
       .scratch_bytes = RoundUp(4 * MatmulScratchFloats(x.dim(2)), Buffer::kAlignment)});
  return y;
}

void CopyInto(Tape& tape, const Value& x, const Value& target) {
  TN_CHECK(x.shape() == target.shape() && x.shape().rank() == 3 && x.dtype() == DType::kF32 &&
               target.dtype() == DType::kF32,
           "copies keep the shape");
  RecordBuilder<CopyArgs> record(tape, "copy", "memcpy");
  CopyArgs& args = record.args();
  args.heads = x.dim(1);
  args.width = x.dim(2);
  args.x_row = FloatStride(x, 0);
  args.x_head = FloatStride(x, 1);
  args.y_row = FloatStride(target, 0);
  args.y_head = FloatStride(target, 1);
  record.Read(&CopyArgs::x, x).Update(&CopyArgs::y, target);
  record.Commit<RunCopy>({.items = x.dim(0), .grain = 8, .everyone = tape.IsPrivate(target)});
}

}  // namespace tenon
