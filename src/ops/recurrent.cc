#include "tenon/ops/recurrent.h"

#include <cmath>

#include "tenon/ops/activation_code.h"

namespace tenon {
namespace {

struct ConvArgs {
  Operand x, y;
  const CausalConvSpec* spec = nullptr;
  const KernelTable* kernels = nullptr;
  SequenceRuns runs;
  const StatePool* pool = nullptr;
  int64_t x_stride = 0;
};

float* StateOf(const StatePool& pool, const SequenceRun& run) {
  return reinterpret_cast<float*>(pool.base + run.slot * pool.slot_bytes);
}

// Items are channels: each walks all sequences, so a state is touched by one thread only.
void RunConv(const ConvArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const CausalConvSpec& s = *a.spec;
  const int64_t taps = s.width;
  const float* x = a.x.For<float>(context.thread);
  float* y = a.y.For<float>(context.thread);
  for (int32_t i = 0; i < *a.runs.count; ++i) {
    const SequenceRun& run = a.runs.runs[i];
    float* state = StateOf(*a.pool, run);  // [width - 1, channels]
    for (int64_t c = begin; c < end; ++c) {
      // Row j of the sequence's past and present: j < 0 comes from the state.
      const auto input = [&](int64_t j) {
        if (j >= 0) return x[(run.begin + j) * a.x_stride + c];
        return run.fresh ? 0.0f : state[(taps - 1 + j) * s.channels + c];
      };
      const int64_t rows = run.end - run.begin;
      for (int64_t t = 0; t < rows; ++t) {
        double sum = s.bias == nullptr ? 0.0 : static_cast<double>(s.bias[c]);
        for (int64_t k = 0; k < taps; ++k) {
          sum += static_cast<double>(s.weight[c * taps + k]) *
                 static_cast<double>(input(t - taps + 1 + k));
        }
        y[(run.begin + t) * s.channels + c] = static_cast<float>(sum);
      }
      // Oldest first: an entry is read before it is overwritten, since its source lies at or after
      // it.
      for (int64_t k = 0; k < taps - 1; ++k) state[k * s.channels + c] = input(rows - taps + 1 + k);
    }
    if (s.activation == Activation::kNone) continue;
    const ActivationCode code = CodeOf(s.activation);
    for (int64_t t = run.begin; t < run.end; ++t) {
      a.kernels->activate(code, y + t * s.channels + begin, y + t * s.channels + begin,
                          end - begin);
    }
  }
}

struct ScanArgs {
  Operand x, b, c, dt, y;
  const SelectiveScanSpec* spec = nullptr;
  const KernelTable* kernels = nullptr;
  SequenceRuns runs;
  const StatePool* pool = nullptr;
  int64_t x_stride = 0, b_stride = 0, c_stride = 0, dt_stride = 0;
};

// Items are heads.
void RunScan(const ScanArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const SelectiveScanSpec& s = *a.spec;
  const int64_t width = s.heads * s.head_dim;
  for (int64_t h = begin; h < end; ++h) {
    const int64_t group = h / (s.heads / s.groups);
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
    args.y_stride = width;
    for (int32_t i = 0; i < *a.runs.count; ++i) {
      const SequenceRun& run = a.runs.runs[i];
      args.x = a.x.For<float>(context.thread) + run.begin * a.x_stride + h * s.head_dim;
      args.b = a.b.For<float>(context.thread) + run.begin * a.b_stride + group * s.state_size;
      args.c = a.c.For<float>(context.thread) + run.begin * a.c_stride + group * s.state_size;
      args.dt = a.dt.For<float>(context.thread) + run.begin * a.dt_stride + h;
      args.y = a.y.For<float>(context.thread) + run.begin * width + h * s.head_dim;
      args.state = StateOf(*a.pool, run) + h * s.head_dim * s.state_size;
      if (run.fresh) {
        for (int64_t n = 0; n < s.head_dim * s.state_size; ++n) args.state[n] = 0;
      }
      a.kernels->selective_scan(args, run.end - run.begin);
    }
  }
}

}  // namespace

int64_t StateBytesOf(const CausalConvSpec& spec) { return 4 * (spec.width - 1) * spec.channels; }

int64_t StateBytesOf(const SelectiveScanSpec& spec) {
  return 4 * spec.heads * spec.head_dim * spec.state_size;
}

Value CausalConv(Tape& tape, const CausalConvSpec& spec, const Value& x, const SequenceRuns& runs,
                 const StatePool& state) {
  TN_CHECK(x.dim(1) == spec.channels && spec.width >= 1, "the convolution's channels");
  const Value y = tape.NewValue(DType::kF32, x.shape());
  RecordBuilder<ConvArgs> record(tape, "causal_conv", "reference/causal_conv");
  record.args().spec = &spec;
  record.args().kernels = &tape.kernels();
  record.args().runs = runs;
  record.args().pool = &state;
  record.args().x_stride = x.stride_bytes(0) / 4;
  record.Read(&ConvArgs::x, x).Write(&ConvArgs::y, y).WriteResource(&state);
  record.Commit<RunConv>({.items = spec.channels, .grain = 64});
  return y;
}

Value SelectiveScan(Tape& tape, const SelectiveScanSpec& spec, const SelectiveScanInput& input,
                    const SequenceRuns& runs, const StatePool& state) {
  TN_CHECK(input.x.dim(1) == spec.heads * spec.head_dim &&
               input.b.dim(1) == spec.groups * spec.state_size &&
               input.c.shape() == input.b.shape() && input.dt.dim(1) == spec.heads &&
               spec.heads % spec.groups == 0,
           "the scan's geometry");
  const Value y = tape.NewValue(DType::kF32, input.x.shape());
  RecordBuilder<ScanArgs> record(tape, "selective_scan", "reference/selective_scan");
  ScanArgs& args = record.args();
  args.spec = &spec;
  args.kernels = &tape.kernels();
  args.runs = runs;
  args.pool = &state;
  args.x_stride = input.x.stride_bytes(0) / 4;
  args.b_stride = input.b.stride_bytes(0) / 4;
  args.c_stride = input.c.stride_bytes(0) / 4;
  args.dt_stride = input.dt.stride_bytes(0) / 4;
  record.Read(&ScanArgs::x, input.x).Read(&ScanArgs::b, input.b).Read(&ScanArgs::c, input.c);
  record.Read(&ScanArgs::dt, input.dt).Write(&ScanArgs::y, y).WriteResource(&state);
  record.Commit<RunScan>({.items = spec.heads});
  return y;
}

}  // namespace tenon
