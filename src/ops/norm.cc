#include "tenon/ops/norm.h"

#include "tenon/kernels/table.h"
#include "tenon/ops/rows.h"

namespace tenon {
namespace {

struct NormArgs {
  Operand x, y;
  const NormWeights* weights = nullptr;
  const KernelTable* kernels = nullptr;
  RowStrides x_rows, y_rows;
  int64_t width = 0;
};

NormKernelArgs KernelArgs(const NormWeights& w, int64_t width) {
  return {w.weight, w.bias, w.weight_offset, w.eps, width};
}

void NormRow(const KernelTable& kernels, const NormWeights& w, int64_t width, const float* x,
             float* y) {
  (w.kind == NormKind::kRms ? kernels.rms_norm : kernels.layer_norm)(KernelArgs(w, width), x, y);
}

void RunNorm(const NormArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    NormRow(*a.kernels, *a.weights, a.width, a.x.For<float>(context.thread) + a.x_rows.OffsetOf(r),
            a.y.For<float>(context.thread) + a.y_rows.OffsetOf(r));
  }
}

struct AddNormArgs {
  Operand x, sum, normed;
  Operand addends[kMaxAddends];
  int64_t addend_strides[kMaxAddends] = {};
  int64_t x_stride = 0;
  int32_t count = 0;
  const NormWeights* weights = nullptr;  // null: only the sum
  const KernelTable* kernels = nullptr;
  int64_t width = 0;
};

void RunAddNorm(const AddNormArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const float* x = a.x.For<float>(context.thread) + r * a.x_stride;
    float* sum = a.sum.For<float>(context.thread) + r * a.width;
    for (int64_t i = 0; i < a.width; ++i) sum[i] = x[i];
    for (int32_t k = 0; k < a.count; ++k) {
      const float* addend = a.addends[k].For<float>(context.thread) + r * a.addend_strides[k];
      for (int64_t i = 0; i < a.width; ++i) sum[i] += addend[i];
    }
    if (a.weights == nullptr) continue;
    NormRow(*a.kernels, *a.weights, a.width, sum,
            a.normed.For<float>(context.thread) + r * a.width);
  }
}

struct GatedNormArgs {
  Operand x, gate, y;
  const NormWeights* weights = nullptr;
  const KernelTable* kernels = nullptr;
  int64_t x_stride = 0, gate_stride = 0;
  int64_t width = 0, group = 0;
};

void RunGatedNorm(const GatedNormArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const float* x = a.x.For<float>(context.thread) + r * a.x_stride;
    const float* gate = a.gate.For<float>(context.thread) + r * a.gate_stride;
    float* y = a.y.For<float>(context.thread) + r * a.width;
    a.kernels->gated_activate(ActivationCode::kSilu, gate, x, y, a.width);
    for (int64_t g = 0; g < a.width; g += a.group) {
      NormKernelArgs args = KernelArgs(*a.weights, a.group);
      if (args.weight != nullptr) args.weight += g;
      a.kernels->rms_norm(args, y + g, y + g);
    }
  }
}

bool WorthEveryone(const Value& x) { return NumRows(x) <= Tape::kEveryoneRows; }

// Small results are private: each thread computes its own.
Value NewLike(Tape& tape, const Value& x, bool everyone) {
  return everyone ? tape.NewPrivateValue(DType::kF32, x.shape())
                  : tape.NewValue(DType::kF32, x.shape());
}

void RecordNorm(Tape& tape, const NormWeights& weights, const Value& x, const Value& y,
                bool everyone) {
  RecordBuilder<NormArgs> record(
      tape, "norm", weights.kind == NormKind::kRms ? "reference/rms_norm" : "reference/layer_norm");
  record.args().weights = &weights;
  record.args().kernels = &tape.kernels();
  record.args().x_rows = RowsOf(x);
  record.args().y_rows = RowsOf(y);
  record.args().width = x.dim(-1);
  record.Read(&NormArgs::x, x).Write(&NormArgs::y, y);
  record.Commit<RunNorm>({.items = NumRows(x), .everyone = everyone});
}

NormedSum RecordAddNorm(Tape& tape, const NormWeights* weights, const Value& x,
                        std::span<const Value> addends) {
  TN_CHECK(addends.size() <= kMaxAddends && x.shape().rank() == 2, "few addends of one shape");
  const bool everyone = WorthEveryone(x);
  NormedSum result{NewLike(tape, x, everyone),
                   weights == nullptr ? Value() : NewLike(tape, x, everyone)};
  RecordBuilder<AddNormArgs> record(tape, weights == nullptr ? "add" : "add_norm",
                                    weights == nullptr ? "reference/add" : "reference/add_norm");
  AddNormArgs& args = record.args();
  args.weights = weights;
  args.kernels = &tape.kernels();
  args.width = x.dim(1);
  args.x_stride = x.stride_bytes(0) / 4;
  args.count = static_cast<int32_t>(addends.size());
  record.Read(&AddNormArgs::x, x).Write(&AddNormArgs::sum, result.sum);
  if (weights != nullptr) record.Write(&AddNormArgs::normed, result.normed);
  for (size_t i = 0; i < addends.size(); ++i) {
    TN_CHECK(addends[i].shape() == x.shape(), "addends have the residual's shape");
    args.addend_strides[i] = addends[i].stride_bytes(0) / 4;
    record.ReadInto(args.addends[i], addends[i]);
  }
  record.Commit<RunAddNorm>({.items = x.dim(0), .everyone = everyone});
  return result;
}

}  // namespace

Value Norm(Tape& tape, const NormWeights& weights, const Value& x) {
  const bool everyone = WorthEveryone(x);
  const Value y = NewLike(tape, x, everyone);
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
  TN_CHECK(x.shape() == gate.shape() && x.dim(1) % group == 0, "whole groups");
  const bool everyone = WorthEveryone(x);
  const Value y = NewLike(tape, x, everyone);
  RecordBuilder<GatedNormArgs> record(tape, "gated_norm", "reference/gated_norm");
  record.args().weights = &weights;
  record.args().kernels = &tape.kernels();
  record.args().x_stride = x.stride_bytes(0) / 4;
  record.args().gate_stride = gate.stride_bytes(0) / 4;
  record.args().width = x.dim(1);
  record.args().group = group;
  record.Read(&GatedNormArgs::x, x).Read(&GatedNormArgs::gate, gate).Write(&GatedNormArgs::y, y);
  record.Commit<RunGatedNorm>({.items = x.dim(0), .everyone = everyone});
  return y;
}

}  // namespace tenon
