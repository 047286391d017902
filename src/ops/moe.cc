#include "tenon/ops/moe.h"

#include "tenon/ops/activation_code.h"
#include "tenon/tensor/buffer.h"

namespace tenon {
namespace {

struct RouteArgs {
  Operand logits, experts, weights;
  const RoutingSpec* spec = nullptr;
  const KernelTable* kernels = nullptr;
  int64_t logits_stride = 0;
};

void RunRoute(const RouteArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const RoutingSpec& s = *a.spec;
  RouteKernelArgs args;
  args.experts = s.experts;
  args.top_k = s.top_k;
  args.groups = s.groups;
  args.kept_groups = s.kept_groups;
  args.sigmoid = s.scoring == RoutingSpec::Scoring::kSigmoid;
  args.softmax_of_chosen = s.softmax_of_chosen;
  args.renormalise = s.renormalise;
  args.group_score_top2 = s.group_score == RoutingSpec::GroupScore::kSumOfTop2;
  args.renormalise_eps = s.renormalise_eps;
  args.scale = s.scale;
  args.masked_score = s.masked_score;
  args.choice_bias = s.choice_bias;
  for (int64_t t = begin; t < end; ++t) {
    a.kernels->route(args, a.logits.For<float>(context.thread) + t * a.logits_stride,
                     a.experts.For<int32_t>(context.thread) + t * s.top_k,
                     a.weights.For<float>(context.thread) + t * s.top_k,
                     reinterpret_cast<float*>(context.scratch));
  }
}

struct ExpertsArgs {
  Operand x, experts, weights, inner, y;
  const ExpertWeights* weights_of = nullptr;
  const KernelTable* kernels = nullptr;
  int64_t x_stride = 0;
  int64_t top_k = 0, hidden = 0, intermediate = 0;
  int64_t blocks = 0;  // row blocks of an expert's matrix
};

constexpr int64_t kRowBlock = 64;

// rows [begin, end) of one matrix times one vector; y [rows] indexed from the matrix's first row.
void MultiplyRows(const KernelTable& kernels, const MatrixRef& w, const float* x, float* y,
                  int64_t begin, int64_t end, float* scratch) {
  MatmulKernelArgs args;
  args.w = w.data;
  args.row_bytes = w.row_bytes;
  args.cols = w.cols;
  args.bias = w.bias;
  args.x = x;
  args.x_stride = w.cols;
  args.num_tokens = 1;
  args.y = y;
  args.y_stride = w.rows;
  kernels.matmul[static_cast<int>(w.dtype)](args, begin, end, scratch);
}

// Items: (token, choice, row block): inner[t, k, rows] = act(gate x) * up x.
void RunGateUp(const ExpertsArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  float* scratch = reinterpret_cast<float*>(context.scratch);
  for (int64_t item = begin; item < end; ++item) {
    const int64_t choice = item / a.blocks;  // t * top_k + k
    const int64_t from = item % a.blocks * kRowBlock;
    const int64_t to = from + kRowBlock < a.intermediate ? from + kRowBlock : a.intermediate;
    const int32_t e = a.experts.For<int32_t>(context.thread)[choice];
    const float* x = a.x.For<float>(context.thread) + choice / a.top_k * a.x_stride;
    float* inner = a.inner.For<float>(context.thread) + choice * a.intermediate;
    float up[kRowBlock];
    MultiplyRows(*a.kernels, a.weights_of->gate[static_cast<size_t>(e)], x, inner, from, to,
                 scratch);
    MultiplyRows(*a.kernels, a.weights_of->up[static_cast<size_t>(e)], x, up - from, from, to,
                 scratch);
    a.kernels->gated_activate(CodeOf(a.weights_of->activation), inner + from, up, inner + from,
                              to - from);
  }
}

// Items: (token, row block): y[t, rows] = sum over the choices, in their order.
void RunDown(const ExpertsArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  float* scratch = reinterpret_cast<float*>(context.scratch);
  for (int64_t item = begin; item < end; ++item) {
    const int64_t t = item / a.blocks;
    const int64_t from = item % a.blocks * kRowBlock;
    const int64_t to = from + kRowBlock < a.hidden ? from + kRowBlock : a.hidden;
    float* y = a.y.For<float>(context.thread) + t * a.hidden;
    for (int64_t i = from; i < to; ++i) y[i] = 0;
    for (int64_t k = 0; k < a.top_k; ++k) {
      const int64_t choice = t * a.top_k + k;
      const int32_t e = a.experts.For<int32_t>(context.thread)[choice];
      const float weight = a.weights.For<float>(context.thread)[choice];
      float part[kRowBlock];
      MultiplyRows(*a.kernels, a.weights_of->down[static_cast<size_t>(e)],
                   a.inner.For<float>(context.thread) + choice * a.intermediate, part - from, from,
                   to, scratch);
      for (int64_t i = from; i < to; ++i) y[i] += weight * part[i - from];
    }
  }
}

}  // namespace

Routing Route(Tape& tape, const RoutingSpec& spec, const Value& logits) {
  TN_CHECK(logits.dim(1) == spec.experts && spec.top_k >= 1 && spec.top_k <= spec.experts,
           "experts and top_k");
  TN_CHECK(spec.groups >= 1 && spec.experts % spec.groups == 0, "whole groups");
  const Routing routing{tape.NewValue(DType::kI32, {logits.dim(0), spec.top_k}),
                        tape.NewValue(DType::kF32, {logits.dim(0), spec.top_k})};
  RecordBuilder<RouteArgs> record(tape, "moe_route", "reference/moe_route");
  record.args().spec = &spec;
  record.args().kernels = &tape.kernels();
  record.args().logits_stride = logits.stride_bytes(0) / 4;
  record.Read(&RouteArgs::logits, logits)
      .Write(&RouteArgs::experts, routing.experts)
      .Write(&RouteArgs::weights, routing.weights);
  record.Commit<RunRoute>(
      {.items = logits.dim(0), .scratch_bytes = (2 * spec.experts + spec.groups) * 4});
  return routing;
}

Value ApplyExperts(Tape& tape, const ExpertWeights& experts, const Routing& routing,
                   const Value& x) {
  TN_CHECK(!experts.gate.empty() && experts.gate.size() == experts.up.size() &&
               experts.gate.size() == experts.down.size() && experts.gate[0].cols == x.dim(1),
           "three matrices per expert");
  ExpertsArgs common;
  common.weights_of = &experts;
  common.kernels = &tape.kernels();
  common.x_stride = x.stride_bytes(0) / 4;
  common.top_k = routing.experts.dim(1);
  common.hidden = x.dim(1);
  common.intermediate = experts.gate[0].rows;
  const int64_t scratch =
      RoundUp((common.hidden > common.intermediate ? common.hidden : common.intermediate) * 4,
              Buffer::kAlignment);
  const Value inner = tape.NewValue(DType::kF32, {x.dim(0) * common.top_k, common.intermediate});
  const Value y = tape.NewValue(DType::kF32, {x.dim(0), common.hidden});

  RecordBuilder<ExpertsArgs> gate_up(tape, "moe_gate_up", "reference/moe_gate_up");
  gate_up.args() = common;
  gate_up.args().blocks = (common.intermediate + kRowBlock - 1) / kRowBlock;
  gate_up.Read(&ExpertsArgs::x, x)
      .Read(&ExpertsArgs::experts, routing.experts)
      .Write(&ExpertsArgs::inner, inner);
  gate_up.Commit<RunGateUp>(
      {.items = x.dim(0) * common.top_k * gate_up.args().blocks, .scratch_bytes = scratch});

  RecordBuilder<ExpertsArgs> down(tape, "moe_down", "reference/moe_down");
  down.args() = common;
  down.args().blocks = (common.hidden + kRowBlock - 1) / kRowBlock;
  down.Read(&ExpertsArgs::inner, inner)
      .Read(&ExpertsArgs::experts, routing.experts)
      .Read(&ExpertsArgs::weights, routing.weights)
      .Write(&ExpertsArgs::y, y);
  down.Commit<RunDown>({.items = x.dim(0) * down.args().blocks, .scratch_bytes = scratch});
  return y;
}

}  // namespace tenon
