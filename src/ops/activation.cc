#include "tenon/ops/activation.h"

#include <algorithm>

#include "tenon/kernels/table.h"
#include "tenon/ops/rows.h"

namespace tenon {
namespace {

struct Setting {
  Activation activation = Activation::kNone;
  float number = 0;  // factor or cap
};

struct ElementwiseArgs {
  Operand a, b, y;
  const ElementwiseKernels* kernels = nullptr;
  Setting setting;
  RowStrides a_rows, b_rows;
  int64_t width = 0;
};

// Items are columns in steps of kColumns within rows: one long row splits over the team too.
constexpr int64_t kColumns = 512;

int64_t SpansOf(int64_t width) { return (width + kColumns - 1) / kColumns; }

// body(a, b, y, n) for each span of the items; b is null without a second input.
template <typename Body>
void ForSpans(const ElementwiseArgs& args, int thread, int64_t begin, int64_t end, Body body) {
  const int64_t spans = SpansOf(args.width);
  const float* a = args.a.For<float>(thread);
  const float* b = args.b.base == nullptr ? nullptr : args.b.For<float>(thread);
  float* y = args.y.For<float>(thread);
  for (int64_t item = begin; item < end; ++item) {
    const int64_t row = item / spans;
    const int64_t column = item % spans * kColumns;
    body(a + args.a_rows.OffsetOf(row) + column,
         b == nullptr ? nullptr : b + args.b_rows.OffsetOf(row) + column,
         y + row * args.width + column, std::min(kColumns, args.width - column));
  }
}

void RunActivate(const ElementwiseArgs& args, const RunContext& context, int64_t begin,
                 int64_t end) {
  ForSpans(args, context.thread, begin, end,
           [&](const float* a, const float*, float* y, int64_t n) {
             args.kernels->activate.run(args.setting.activation, a, y, n);
           });
}

void RunGated(const ElementwiseArgs& args, const RunContext& context, int64_t begin, int64_t end) {
  ForSpans(args, context.thread, begin, end,
           [&](const float* a, const float* b, float* y, int64_t n) {
             args.kernels->gated_activate.run(args.setting.activation, a, b, y, n);
           });
}

void RunMultiply(const ElementwiseArgs& args, const RunContext& context, int64_t begin,
                 int64_t end) {
  ForSpans(args, context.thread, begin, end,
           [&](const float* a, const float* b, float* y, int64_t n) {
             args.kernels->multiply.run(a, b, y, n);
           });
}

void RunScale(const ElementwiseArgs& args, const RunContext& context, int64_t begin, int64_t end) {
  ForSpans(args, context.thread, begin, end,
           [&](const float* a, const float*, float* y, int64_t n) {
             args.kernels->scale.run(args.setting.number, a, y, n);
           });
}

void RunSoftCap(const ElementwiseArgs& args, const RunContext& context, int64_t begin,
                int64_t end) {
  ForSpans(args, context.thread, begin, end,
           [&](const float* a, const float*, float* y, int64_t n) {
             args.kernels->soft_cap.run(args.setting.number, a, y, n);
           });
}

struct Names {
  const char* op;
  const char* kernel;
};

template <RecordBuilder<ElementwiseArgs>::Function kFunction>
Value Record(Tape& tape, Names names, const Setting& setting, const Value& a, const Value* b) {
  TN_CHECK(IsRows(a), "fp32 of rank 2 or 3");
  TN_CHECK(b == nullptr || (IsRows(*b) && b->shape() == a.shape()), "inputs of one shape");
  const auto [y, everyone] = NewRowResult(tape, DType::kF32, a.shape());
  RecordBuilder<ElementwiseArgs> record(tape, names.op, names.kernel);
  record.args().setting = setting;
  record.args().kernels = &tape.kernels().elementwise;
  record.args().a_rows = RowsOf(a);
  record.args().width = a.dim(-1);
  record.Read(&ElementwiseArgs::a, a).Write(&ElementwiseArgs::y, y);
  if (b != nullptr) {
    record.args().b_rows = RowsOf(*b);
    record.Read(&ElementwiseArgs::b, *b);
  }
  const int64_t spans = NumRows(a) * SpansOf(a.dim(-1));
  record.template Commit<kFunction>(
      {.items = spans, .grain = RowGrain(spans), .everyone = everyone});
  return y;
}

}  // namespace

Value Activate(Tape& tape, Activation activation, const Value& x) {
  return Record<RunActivate>(tape, {"activate", tape.kernels().elementwise.activate.name},
                             {.activation = activation}, x, nullptr);
}

Value GatedActivate(Tape& tape, Activation activation, const Value& gate, const Value& up) {
  return Record<RunGated>(tape, {"gated_activate", tape.kernels().elementwise.gated_activate.name},
                          {.activation = activation}, gate, &up);
}

Value Multiply(Tape& tape, const Value& a, const Value& b) {
  return Record<RunMultiply>(tape, {"multiply", tape.kernels().elementwise.multiply.name}, {}, a,
                             &b);
}

Value Scale(Tape& tape, const Value& x, float factor) {
  return Record<RunScale>(tape, {"scale", tape.kernels().elementwise.scale.name},
                          {.number = factor}, x, nullptr);
}

Value SoftCap(Tape& tape, const Value& x, float cap) {
  return Record<RunSoftCap>(tape, {"soft_cap", tape.kernels().elementwise.soft_cap.name},
                            {.number = cap}, x, nullptr);
}

}  // namespace tenon
