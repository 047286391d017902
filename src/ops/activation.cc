#include "tenon/ops/activation.h"

#include <algorithm>
#include <cmath>

#include "tenon/ops/activation_code.h"

namespace tenon {
namespace {

struct ElementwiseArgs {
  Operand a, b, y;
  const KernelTable* kernels = nullptr;
  ActivationCode code = ActivationCode::kNone;
  float number = 0;  // factor or cap
  int64_t a_stride = 0, b_stride = 0, width = 0;
};

// Items are columns in steps of kColumns within rows: one token splits over the team too.
constexpr int64_t kColumns = 512;

template <typename Body>
void ForSpans(const ElementwiseArgs& a, int64_t begin, int64_t end, Body body) {
  const int64_t spans = (a.width + kColumns - 1) / kColumns;
  for (int64_t item = begin; item < end; ++item) {
    const int64_t row = item / spans;
    const int64_t column = item % spans * kColumns;
    body(row, column, std::min(kColumns, a.width - column));
  }
}

void RunActivate(const ElementwiseArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  ForSpans(a, begin, end, [&](int64_t row, int64_t column, int64_t n) {
    a.kernels->activate(a.code, a.a.For<float>(context.thread) + row * a.a_stride + column,
                        a.y.For<float>(context.thread) + row * a.width + column, n);
  });
}

void RunGated(const ElementwiseArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  ForSpans(a, begin, end, [&](int64_t row, int64_t column, int64_t n) {
    a.kernels->gated_activate(a.code, a.a.For<float>(context.thread) + row * a.a_stride + column,
                              a.b.For<float>(context.thread) + row * a.b_stride + column,
                              a.y.For<float>(context.thread) + row * a.width + column, n);
  });
}

void RunScale(const ElementwiseArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  ForSpans(a, begin, end, [&](int64_t row, int64_t column, int64_t n) {
    const float* x = a.a.For<float>(context.thread) + row * a.a_stride + column;
    float* y = a.y.For<float>(context.thread) + row * a.width + column;
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] * a.number;
  });
}

void RunSoftCap(const ElementwiseArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  ForSpans(a, begin, end, [&](int64_t row, int64_t column, int64_t n) {
    const float* x = a.a.For<float>(context.thread) + row * a.a_stride + column;
    float* y = a.y.For<float>(context.thread) + row * a.width + column;
    for (int64_t i = 0; i < n; ++i) y[i] = a.number * std::tanh(x[i] / a.number);
  });
}

struct Names {
  const char* op;
  const char* kernel;
};

template <RecordBuilder<ElementwiseArgs>::Function kFunction>
Value Record(Tape& tape, Names names, ActivationCode code, float number, const Value& a,
             const Value* b) {
  TN_CHECK(a.shape().rank() == 2 && a.dtype() == DType::kF32, "[num_tokens, width] fp32");
  TN_CHECK(b == nullptr || b->shape() == a.shape(), "inputs of one shape");
  const Value y = tape.NewValue(DType::kF32, a.shape());
  RecordBuilder<ElementwiseArgs> record(tape, names.op, names.kernel);
  record.args().kernels = &tape.kernels();
  record.args().code = code;
  record.args().number = number;
  record.args().a_stride = a.stride_bytes(0) / 4;
  record.args().width = a.dim(1);
  record.Read(&ElementwiseArgs::a, a).Write(&ElementwiseArgs::y, y);
  if (b != nullptr) {
    record.args().b_stride = b->stride_bytes(0) / 4;
    record.Read(&ElementwiseArgs::b, *b);
  }
  record.template Commit<kFunction>({.items = a.dim(0) * ((a.dim(1) + kColumns - 1) / kColumns)});
  return y;
}

}  // namespace

Value Activate(Tape& tape, Activation activation, const Value& x) {
  return Record<RunActivate>(tape, {"activate", "reference/activate"}, CodeOf(activation), 0, x,
                             nullptr);
}

Value GatedActivate(Tape& tape, Activation activation, const Value& gate, const Value& up) {
  return Record<RunGated>(tape, {"gated_activate", "reference/gated_activate"}, CodeOf(activation),
                          0, gate, &up);
}

Value Multiply(Tape& tape, const Value& a, const Value& b) {
  return Record<RunGated>(tape, {"multiply", "reference/multiply"}, ActivationCode::kNone, 0, a,
                          &b);
}

Value Scale(Tape& tape, const Value& x, float factor) {
  return Record<RunScale>(tape, {"scale", "reference/scale"}, ActivationCode::kNone, factor, x,
                          nullptr);
}

Value SoftCap(Tape& tape, const Value& x, float cap) {
  return Record<RunSoftCap>(tape, {"soft_cap", "reference/soft_cap"}, ActivationCode::kNone, cap, x,
                            nullptr);
}

}  // namespace tenon
