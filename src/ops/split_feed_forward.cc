#include "tenon/ops/split_feed_forward.h"

#include <algorithm>

#include "tenon/kernels/table.h"
#include "tenon/ops/narrow_matmul.h"
#include "tenon/ops/rows.h"
#include "tenon/tensor/buffer.h"

namespace tenon {
namespace {

struct SplitArgs {
  Operand x, y;
  const FeedForwardPart* parts = nullptr;
  const ElementwiseKernels* elementwise = nullptr;
  Activation activation = Activation::kSilu;
  NarrowMatmulFunction* first = nullptr;   // of gate and up
  NarrowMatmulFunction* second = nullptr;  // of down
  PackRowFunction* pack = nullptr;         // the activations for down
  int64_t part_rows = 0;
};

// One token with a whole matrix.
void Multiply(NarrowMatmulFunction* run, const MatrixRef& w, const std::byte* x, float* y) {
  NarrowMatmulArgs args;
  args.w = w.data;
  args.row_bytes = w.row_bytes;
  args.cols = w.cols;
  args.bias = w.bias;
  args.x = x;
  args.num_tokens = 1;
  args.y = y;
  args.y_stride = w.rows;
  args.scales.grid = w.scales;
  run(args, 0, w.rows);
}

int64_t RoundedFloats(int64_t n) { return RoundUp(n, 16); }

// Items are parts.
void RunSplit(const SplitArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const int64_t rows = a.part_rows;
  auto* gate = reinterpret_cast<float*>(context.scratch);
  float* up = gate + RoundedFloats(rows);
  auto* packed = reinterpret_cast<std::byte*>(up + RoundedFloats(rows));
  for (int64_t i = begin; i < end; ++i) {
    const FeedForwardPart& part = a.parts[i];
    const auto* x = a.x.For<std::byte>(context.thread);
    Multiply(a.first, part.gate_up[0], x, gate);
    Multiply(a.first, part.gate_up[1], x, up);
    a.elementwise->gated_activate.run(a.activation, gate, up, gate, rows);
    a.pack(gate, rows, packed);
    Multiply(a.second, *part.down, packed, a.y.For<float>(context.thread) + i * part.down->rows);
  }
}

bool Alike(const KernelTable& kernels, const MatrixRef& a, const MatrixRef& b) {
  return HaveOneKernel(kernels, a, b) && a.rows == b.rows && a.cols == b.cols;
}

}  // namespace

bool CanSplitFeedForward(const KernelTable& kernels, std::span<const FeedForwardPart> parts) {
  if (parts.empty()) return false;
  const FeedForwardPart& first = parts[0];
  if (!IsNarrow(kernels, first.gate_up[0], 1) || !IsNarrow(kernels, *first.down, 1)) return false;
  return first.gate_up[0].rows == first.down->cols &&
         std::all_of(parts.begin(), parts.end(), [&](const FeedForwardPart& part) {
           return Alike(kernels, part.gate_up[0], first.gate_up[0]) &&
                  Alike(kernels, part.gate_up[1], first.gate_up[0]) &&
                  Alike(kernels, *part.down, *first.down) && part.down->bias == nullptr;
         });
}

Value SplitFeedForward(Tape& tape, Activation activation, std::span<const FeedForwardPart> parts,
                       const Value& x) {
  TN_CHECK(IsMatrix(x) && x.dim(0) == 1 && CanSplitFeedForward(tape.kernels(), parts),
           "one token, and parts of one kind");
  const KernelTable& kernels = tape.kernels();
  const MatrixRef& gate = parts[0].gate_up[0];
  const MatrixRef& down = *parts[0].down;
  const FewTokensKernel& first = FewOf(kernels, gate);
  const FewTokensKernel& second = FewOf(kernels, down);
  const Value packed = NarrowMatmul(tape, x).Packed(first.form);
  const Value y = tape.NewValue(DType::kF32, {static_cast<int64_t>(parts.size()), down.rows});
  RecordBuilder<SplitArgs> record(tape, "split_feed_forward", first.matmul.name);
  SplitArgs& args = record.args();
  args.parts = parts.data();
  args.elementwise = &kernels.elementwise;
  args.activation = activation;
  args.first = first.matmul.run;
  args.second = second.matmul.run;
  args.pack = kernels.matmul.Pack(second.form).run;
  args.part_rows = gate.rows;
  record.Read(&SplitArgs::x, packed).Write(&SplitArgs::y, y);
  Work work;
  work.items = static_cast<int64_t>(parts.size());
  work.scratch_bytes = RoundUp(2 * RoundedFloats(gate.rows) * static_cast<int64_t>(sizeof(float)) +
                                   ActivationRowBytes(second.form, gate.rows),
                               Buffer::kAlignment);
  for (const FeedForwardPart& part : parts) {
    work.weight_bytes += WeightBytes({part.gate_up, 2}) + WeightBytes({part.down, 1});
    work.operations += Operations({part.gate_up, 2}, 1) + Operations({part.down, 1}, 1);
  }
  record.Commit<RunSplit>(work);
  return y;
}

}  // namespace tenon
