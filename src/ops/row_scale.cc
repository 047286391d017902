#include "tenon/ops/row_scale.h"

#include <cmath>

#include "tenon/kernels/table.h"
#include "tenon/ops/rows.h"

namespace tenon {
namespace {

struct ScaleRowsArgs {
  Operand x, factors, y;
  const ElementwiseKernels* kernels = nullptr;
  RowStrides x_rows;
  int64_t width = 0;
  int64_t factor_stride = 0;  // floats
};

void RunScaleRows(const ScaleRowsArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const float* factors = a.factors.For<float>(context.thread);
  for (int64_t r = begin; r < end; ++r) {
    a.kernels->scale.run(factors[r / a.x_rows.heads * a.factor_stride],
                         a.x.For<float>(context.thread) + a.x_rows.OffsetOf(r),
                         a.y.For<float>(context.thread) + r * a.width, a.width);
  }
}

struct TemperatureArgs {
  Operand y;
  const PositionTemperature* temperature = nullptr;
  const int32_t* positions = nullptr;
};

void RunTemperature(const TemperatureArgs& a, const RunContext& context, int64_t begin,
                    int64_t end) {
  const PositionTemperature& t = *a.temperature;
  float* y = a.y.For<float>(context.thread);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t intervals = (a.positions[i] + t.offset) / t.interval;
    y[i] = 1 + t.beta * std::log1p(static_cast<float>(intervals));
  }
}

}  // namespace

Value ScaleRows(Tape& tape, const Value& x, const Value& factors) {
  TN_CHECK(IsRows(x) && IsMatrix(factors), "fp32 rows and their factors");
  TN_CHECK(factors.dim(0) == x.dim(0) && factors.dim(1) == 1, "one factor for each token");
  const auto [y, everyone] = NewRowResult(tape, DType::kF32, x.shape());
  RecordBuilder<ScaleRowsArgs> record(tape, "scale_rows", tape.kernels().elementwise.scale.name);
  ScaleRowsArgs& args = record.args();
  args.kernels = &tape.kernels().elementwise;
  args.x_rows = RowsOf(x);
  args.width = x.dim(-1);
  args.factor_stride = FloatStride(factors, 0);
  record.Read(&ScaleRowsArgs::x, x).Read(&ScaleRowsArgs::factors, factors);
  record.Write(&ScaleRowsArgs::y, y);
  record.Commit<RunScaleRows>(
      {.items = NumRows(x), .grain = RowGrain(NumRows(x)), .everyone = everyone});
  return y;
}

Value TemperatureOf(Tape& tape, const PositionTemperature& temperature, const int32_t* positions,
                    int64_t num_tokens) {
  TN_CHECK(temperature.interval > 0, "intervals of positions");
  const auto [y, everyone] = NewRowResult(tape, DType::kF32, Shape{num_tokens, 1});
  RecordBuilder<TemperatureArgs> record(tape, "temperature", "scalar/temperature");
  record.args().temperature = &temperature;
  record.args().positions = positions;
  record.Write(&TemperatureArgs::y, y);
  record.Commit<RunTemperature>(
      {.items = num_tokens, .grain = RowGrain(num_tokens), .everyone = everyone});
  return y;
}

}  // namespace tenon
