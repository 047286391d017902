#include "tenon/ops/recurrent.h"

#include <cmath>

#include "tenon/kernels/table.h"
#include "tenon/ops/rows.h"
#include "tenon/tensor/buffer.h"

namespace tenon {
namespace {

// Items are channels or heads and each walks all sequences, so that a number of a state is touched
// by one thread only.
float* StateOf(const StatePool& pool, const SequenceRun& run) {
  return reinterpret_cast<float*>(pool.base + run.slot * pool.slot_bytes);
}

struct ConvArgs {
  Operand x, y;
  const CausalConvSpec* spec = nullptr;
  const KernelTable* kernels = nullptr;
  SequenceRuns runs;
  const StatePool* pool = nullptr;
  int64_t x_stride = 0;  // floats
};

void RunConv(const ConvArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const CausalConvSpec& s = *a.spec;
  for (int32_t i = 0; i < *a.runs.count; ++i) {
    const SequenceRun& run = a.runs.runs[i];
    ConvKernelArgs args;
    args.channels = s.channels;
    args.width = s.width;
    args.weight = s.weight;
    args.bias = s.bias;
    args.x = a.x.For<float>(context.thread) + run.begin * a.x_stride;
    args.x_stride = a.x_stride;
    args.y = a.y.For<float>(context.thread) + run.begin * s.channels;
    args.y_stride = s.channels;
    args.rows = run.end - run.begin;
    args.state = StateOf(*a.pool, run);
    args.fresh = run.fresh;
    a.kernels->recurrent.conv.run(args, begin, end);
    if (s.activation == Activation::kNone) continue;
    for (int64_t t = 0; t < args.rows; ++t) {
      float* y = args.y + t * s.channels + begin;
      a.kernels->elementwise.activate.run(s.activation, y, y, end - begin);
    }
  }
}

struct ScanArgs {
  Operand x, b, c, dt, y;
  const SelectiveScanSpec* spec = nullptr;
  const KernelTable* kernels = nullptr;
  SequenceRuns runs;
  const StatePool* pool = nullptr;
  int64_t x_stride = 0, b_stride = 0, c_stride = 0, dt_stride = 0;  // floats
};

// What does not depend on the sequence.
ScanKernelArgs HeadArgs(const ScanArgs& a, int64_t h) {
  const SelectiveScanSpec& s = *a.spec;
  ScanKernelArgs args;
  args.head_dim = s.head_dim;
  args.state_size = s.state_size;
  args.decay = -std::exp(s.a_log[h]);
  args.d = s.d[h];
  args.dt_bias = s.dt_bias[h];
  args.dt_min = s.dt_min;
  args.dt_max = s.dt_max;
  args.x_stride = a.x_stride;
  args.b_stride = a.b_stride;
  args.c_stride = a.c_stride;
  args.dt_stride = a.dt_stride;
  args.y_stride = s.heads * s.head_dim;
  return args;
}

void RunScan(const ScanArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const SelectiveScanSpec& s = *a.spec;
  for (int64_t h = begin; h < end; ++h) {
    const int64_t group = h / (s.heads / s.groups);
    ScanKernelArgs args = HeadArgs(a, h);
    for (int32_t i = 0; i < *a.runs.count; ++i) {
      const SequenceRun& run = a.runs.runs[i];
      args.x = a.x.For<float>(context.thread) + run.begin * a.x_stride + h * s.head_dim;
      args.b = a.b.For<float>(context.thread) + run.begin * a.b_stride + group * s.state_size;
      args.c = a.c.For<float>(context.thread) + run.begin * a.c_stride + group * s.state_size;
      args.dt = a.dt.For<float>(context.thread) + run.begin * a.dt_stride + h;
      args.y = a.y.For<float>(context.thread) + run.begin * args.y_stride + h * s.head_dim;
      args.rows = run.end - run.begin;
      args.state = StateOf(*a.pool, run) + h * s.head_dim * s.state_size;
      args.fresh = run.fresh;
      a.kernels->recurrent.scan.run(args);
    }
  }
}

struct DeltaArgs {
  Operand q, k, v, dt, b, y;
  const GatedDeltaSpec* spec = nullptr;
  const KernelTable* kernels = nullptr;
  SequenceRuns runs;
  const StatePool* pool = nullptr;
  RowStrides q_rows, k_rows, v_rows, dt_rows, b_rows;
};

// Items are value heads.
void RunDelta(const DeltaArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const GatedDeltaSpec& s = *a.spec;
  const int64_t shared = s.value_heads / s.key_heads;
  DeltaKernelArgs args;
  args.key_dim = s.key_dim;
  args.value_dim = s.value_dim;
  args.query_scale = 1.0f / std::sqrt(static_cast<float>(s.key_dim));
  args.eps = 1e-6f;
  args.q_stride = a.q_rows.outer;
  args.k_stride = a.k_rows.outer;
  args.v_stride = a.v_rows.outer;
  args.dt_stride = a.dt_rows.outer;
  args.b_stride = a.b_rows.outer;
  args.y_stride = s.value_heads * s.value_dim;
  for (int64_t h = begin; h < end; ++h) {
    const int64_t g = h / shared;
    args.decay = -std::exp(s.a_log[h]);
    args.dt_bias = s.dt_bias[h];
    for (int32_t i = 0; i < *a.runs.count; ++i) {
      const SequenceRun& run = a.runs.runs[i];
      const auto from = [&](const Operand& operand, const RowStrides& rows, int64_t head) {
        return operand.For<float>(context.thread) + run.begin * rows.outer + head * rows.inner;
      };
      args.q = from(a.q, a.q_rows, g);
      args.k = from(a.k, a.k_rows, g);
      args.v = from(a.v, a.v_rows, h);
      args.dt = from(a.dt, a.dt_rows, g) + h % shared;
      args.b = from(a.b, a.b_rows, g) + h % shared;
      args.y = a.y.For<float>(context.thread) + run.begin * args.y_stride + h * s.value_dim;
      args.rows = run.end - run.begin;
      args.state = StateOf(*a.pool, run) + h * s.key_dim * s.value_dim;
      args.fresh = run.fresh;
      a.kernels->recurrent.delta.run(args, reinterpret_cast<float*>(context.scratch));
    }
  }
}

}  // namespace

int64_t StateBytesOf(const CausalConvSpec& spec) { return 4 * (spec.width - 1) * spec.channels; }

int64_t StateBytesOf(const SelectiveScanSpec& spec) {
  return 4 * spec.heads * spec.head_dim * spec.state_size;
}

int64_t StateBytesOf(const GatedDeltaSpec& spec) {
  return 4 * spec.value_heads * spec.key_dim * spec.value_dim;
}

Value CausalConv(Tape& tape, const CausalConvSpec& spec, const Value& x, const SequenceRuns& runs,
                 const StatePool& state) {
  TN_CHECK(IsMatrix(x) && x.dim(1) == spec.channels && spec.width >= 1,
           "the convolution's channels");
  const Value y = tape.NewValue(DType::kF32, x.shape());
  RecordBuilder<ConvArgs> record(tape, "causal_conv", tape.kernels().recurrent.conv.name);
  record.args().spec = &spec;
  record.args().kernels = &tape.kernels();
  record.args().runs = runs;
  record.args().pool = &state;
  record.args().x_stride = FloatStride(x, 0);
  record.Read(&ConvArgs::x, x).Write(&ConvArgs::y, y).WriteResource(&state);
  record.Commit<RunConv>({.items = spec.channels, .grain = 64});
  return y;
}

Value SelectiveScan(Tape& tape, const SelectiveScanSpec& spec, const SelectiveScanInput& input,
                    const SequenceRuns& runs, const StatePool& state) {
  TN_CHECK(spec.groups >= 1 && spec.heads % spec.groups == 0, "whole groups of heads");
  const int64_t rows = input.x.dim(0);
  const auto is_input = [&](const Value& value, int64_t width) {
    return IsMatrix(value) && value.dim(0) == rows && value.dim(1) == width;
  };
  TN_CHECK(is_input(input.x, spec.heads * spec.head_dim) &&
               is_input(input.b, spec.groups * spec.state_size) &&
               is_input(input.c, spec.groups * spec.state_size) && is_input(input.dt, spec.heads),
           "the scan's geometry");
  const Value y = tape.NewValue(DType::kF32, input.x.shape());
  RecordBuilder<ScanArgs> record(tape, "selective_scan", tape.kernels().recurrent.scan.name);
  ScanArgs& args = record.args();
  args.spec = &spec;
  args.kernels = &tape.kernels();
  args.runs = runs;
  args.pool = &state;
  args.x_stride = FloatStride(input.x, 0);
  args.b_stride = FloatStride(input.b, 0);
  args.c_stride = FloatStride(input.c, 0);
  args.dt_stride = FloatStride(input.dt, 0);
  record.Read(&ScanArgs::x, input.x).Read(&ScanArgs::b, input.b).Read(&ScanArgs::c, input.c);
  record.Read(&ScanArgs::dt, input.dt).Write(&ScanArgs::y, y).WriteResource(&state);
  record.Commit<RunScan>({.items = spec.heads});
  return y;
}

Value GatedDelta(Tape& tape, const GatedDeltaSpec& spec, const GatedDeltaInput& input,
                 const SequenceRuns& runs, const StatePool& state) {
  TN_CHECK(spec.key_heads >= 1 && spec.value_heads % spec.key_heads == 0, "whole groups of heads");
  const int64_t rows = input.v.dim(0);
  const auto is_input = [&](const Value& value, int64_t heads, int64_t width) {
    return IsRows(value) && value.shape() == Shape{rows, heads, width};
  };
  const int64_t shared = spec.value_heads / spec.key_heads;
  TN_CHECK(is_input(input.q, spec.key_heads, spec.key_dim) &&
               is_input(input.k, spec.key_heads, spec.key_dim) &&
               is_input(input.v, spec.value_heads, spec.value_dim) &&
               is_input(input.dt, spec.key_heads, shared) &&
               is_input(input.b, spec.key_heads, shared),
           "the delta rule's geometry");
  const Value y = tape.NewValue(DType::kF32, {rows, spec.value_heads, spec.value_dim});
  RecordBuilder<DeltaArgs> record(tape, "gated_delta", tape.kernels().recurrent.delta.name);
  DeltaArgs& args = record.args();
  args.spec = &spec;
  args.kernels = &tape.kernels();
  args.runs = runs;
  args.pool = &state;
  args.q_rows = RowsOf(input.q);
  args.k_rows = RowsOf(input.k);
  args.v_rows = RowsOf(input.v);
  args.dt_rows = RowsOf(input.dt);
  args.b_rows = RowsOf(input.b);
  record.Read(&DeltaArgs::q, input.q).Read(&DeltaArgs::k, input.k).Read(&DeltaArgs::v, input.v);
  record.Read(&DeltaArgs::dt, input.dt).Read(&DeltaArgs::b, input.b);
  record.Write(&DeltaArgs::y, y).WriteResource(&state);
  record.Commit<RunDelta>(
      {.items = spec.value_heads,
       .scratch_bytes =
           RoundUp(4 * DeltaScratchFloats(spec.key_dim, spec.value_dim), Buffer::kAlignment)});
  return y;
}

}  // namespace tenon
