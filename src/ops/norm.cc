#include "tenon/ops/norm.h"

#include "tenon/kernels/table.h"
#include "tenon/ops/rows.h"

namespace tenon {
namespace {

const Kernel<NormFunction>& KernelOf(const Tape& tape, const NormWeights& weights) {
  return weights.kind == NormKind::kRms ? tape.kernels().norm.rms : tape.kernels().norm.layer;
}

NormKernelArgs KernelArgsOf(const NormWeights& w, int64_t width) {
  return {w.weight, w.bias, w.weight_offset, w.eps, width};
}

struct NormArgs {
  Operand x, y;
  const NormWeights* weights = nullptr;
  NormFunction* norm = nullptr;
  RowStrides x_rows, y_rows;
  int64_t width = 0;
};

void RunNorm(const NormArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const NormKernelArgs args = KernelArgsOf(*a.weights, a.width);
  const float* x = a.x.For<float>(context.thread);
  float* y = a.y.For<float>(context.thread);
  for (int64_t r = begin; r < end; ++r) {
    a.norm(args, x + a.x_rows.OffsetOf(r), y + a.y_rows.OffsetOf(r));
  }
}

void RecordNorm(Tape& tape, const NormWeights& weights, const Value& x, const Value& y,
                bool everyone) {
  TN_CHECK(IsRows(x), "a norm's input is fp32 of rank 2 or 3");
  const Kernel<NormFunction>& kernel = KernelOf(tape, weights);
  RecordBuilder<NormArgs> record(tape, "norm", kernel.name);
  record.args().weights = &weights;
  record.args().norm = kernel.run;
  record.args().x_rows = RowsOf(x);
  record.args().y_rows = RowsOf(y);
  record.args().width = x.dim(-1);
  record.Read(&NormArgs::x, x).Write(&NormArgs::y, y);
  record.Commit<RunNorm>(
      {.items = NumRows(x), .grain = RowGrain(NumRows(x)), .everyone = everyone, .by_row = true});
}

struct AddNormArgs {
  Operand x, sum, normed;
  Operand addends[kMaxAddends];
  int64_t addend_strides[kMaxAddends] = {};  // floats
  int64_t x_stride = 0;
  int32_t count = 0;
  const NormWeights* weights = nullptr;  // null: only the sum
  NormFunction* norm = nullptr;
  const ElementwiseKernels* elementwise = nullptr;
  int64_t width = 0;
};

void RunAddNorm(const AddNormArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const float* addends[kMaxAddends] = {};
    for (int32_t k = 0; k < a.count; ++k) {
      addends[k] = a.addends[k].For<float>(context.thread) + r * a.addend_strides[k];
    }
    float* sum = a.sum.For<float>(context.thread) + r * a.width;
    a.elementwise->add.run(a.x.For<float>(context.thread) + r * a.x_stride, addends, a.count, sum,
                           a.width);
    if (a.weights == nullptr) continue;
    a.norm(KernelArgsOf(*a.weights, a.width), sum,
           a.normed.For<float>(context.thread) + r * a.width);
  }
}

NormedSum RecordAddNorm(Tape& tape, const NormWeights* weights, const Value& x,
                        std::span<const Value> addends) {
  TN_CHECK(addends.size() <= kMaxAddends && IsMatrix(x), "few addends of one shape");
  NormedSum result;
  const auto [sum, everyone] = NewRowResult(tape, DType::kF32, x.shape());
  result.sum = sum;
  const ElementwiseKernels& elementwise = tape.kernels().elementwise;
  const bool only_sum = weights == nullptr;
  RecordBuilder<AddNormArgs> record(
      tape, only_sum ? "add" : "add_norm",
      only_sum ? elementwise.add.name : KernelOf(tape, *weights).name);
  AddNormArgs& args = record.args();
  args.elementwise = &elementwise;
  args.width = x.dim(1);
  args.x_stride = FloatStride(x, 0);
  args.count = static_cast<int32_t>(addends.size());
  record.Read(&AddNormArgs::x, x).Write(&AddNormArgs::sum, result.sum);
  if (!only_sum) {
    args.weights = weights;
    args.norm = KernelOf(tape, *weights).run;
    result.normed = NewRowResult(tape, DType::kF32, x.shape()).value;
    record.Write(&AddNormArgs::normed, result.normed);
  }
  for (size_t i = 0; i < addends.size(); ++i) {
    TN_CHECK(addends[i].shape() == x.shape() && IsMatrix(addends[i]),
             "addends have the residual's shape");
    args.addend_strides[i] = FloatStride(addends[i], 0);
    record.ReadInto(args.addends[i], addends[i]);
  }
  record.Commit<RunAddNorm>(
      {.items = x.dim(0), .grain = RowGrain(x.dim(0)), .everyone = everyone, .by_row = true});
  return result;
}

struct GatedNormArgs {
  Operand x, gate, y;
  const NormWeights* weights = nullptr;
  GatedNormFunction* norm = nullptr;
  int64_t x_stride = 0, gate_stride = 0;  // floats
  int64_t width = 0, group = 0;
};

void RunGatedNorm(const GatedNormArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const NormKernelArgs args = KernelArgsOf(*a.weights, a.width);
  for (int64_t r = begin; r < end; ++r) {
    a.norm(args, a.group, a.x.For<float>(context.thread) + r * a.x_stride,
           a.gate.For<float>(context.thread) + r * a.gate_stride,
           a.y.For<float>(context.thread) + r * a.width);
  }
}

}  // namespace

Value Norm(Tape& tape, const NormWeights& weights, const Value& x) {
  const auto [y, everyone] = NewRowResult(tape, DType::kF32, x.shape());
  RecordNorm(tape, weights, x, y, everyone);
  return y;
}

void NormInPlace(Tape& tape, const NormWeights& weights, const Value& x) {
  RecordNorm(tape, weights, x, x, tape.IsPrivate(x));
}

NormedSum AddNorm(Tape& tape, const NormWeights& weights, const Value& x,
                  std::span<const Value> addends) {
  return RecordAddNorm(tape, &weights, x, addends);
}

Value Add(Tape& tape, const Value& x, std::span<const Value> addends) {
  return RecordAddNorm(tape, nullptr, x, addends).sum;
}

Value GatedNorm(Tape& tape, const NormWeights& weights, const Value& x, const Value& gate,
                int64_t group) {
  TN_CHECK(IsMatrix(x) && IsMatrix(gate) && x.shape() == gate.shape(), "x and gate of one shape");
  TN_CHECK(group >= 1 && x.dim(1) % group == 0, "whole groups");
  TN_CHECK(weights.kind == NormKind::kRms, "the gated norm is an RMS norm");
  const auto [y, everyone] = NewRowResult(tape, DType::kF32, x.shape());
  const Kernel<GatedNormFunction>& kernel = tape.kernels().norm.gated_rms;
  RecordBuilder<GatedNormArgs> record(tape, "gated_norm", kernel.name);
  record.args().weights = &weights;
  record.args().norm = kernel.run;
  record.args().x_stride = FloatStride(x, 0);
  record.args().gate_stride = FloatStride(gate, 0);
  record.args().width = x.dim(1);
  record.args().group = group;
  record.Read(&GatedNormArgs::x, x).Read(&GatedNormArgs::gate, gate).Write(&GatedNormArgs::y, y);
  record.Commit<RunGatedNorm>(
      {.items = x.dim(0), .grain = RowGrain(x.dim(0)), .everyone = everyone});
  return y;
}

}  // namespace tenon
