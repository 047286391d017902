#include "tenon/ops/moe.h"

#include <algorithm>

#include "tenon/kernels/table.h"
#include "tenon/ops/narrow_matmul.h"
#include "tenon/ops/rows.h"
#include "tenon/tensor/buffer.h"

namespace tenon {
namespace {

struct RouteArgs {
  Operand logits, experts, weights;
  const RoutingSpec* spec = nullptr;
  decltype(MoeKernels().route.run) route = nullptr;
  int64_t logits_stride = 0;  // floats
};

RouteKernelArgs KernelArgsOf(const RoutingSpec& s) {
  RouteKernelArgs args;
  args.experts = s.experts;
  args.top_k = s.top_k;
  args.groups = s.groups;
  args.kept_groups = s.kept_groups;
  args.sigmoid = s.scoring == RoutingSpec::Scoring::kSigmoid;
  args.score_chosen = s.score_chosen;
  args.renormalise = s.renormalise;
  args.group_score_top2 = s.group_score == RoutingSpec::GroupScore::kSumOfTop2;
  args.renormalise_eps = s.renormalise_eps;
  args.scale = s.scale;
  args.masked_score = s.masked_score;
  args.choice_bias = s.choice_bias;
  return args;
}

void RunRoute(const RouteArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const RouteKernelArgs args = KernelArgsOf(*a.spec);
  for (int64_t t = begin; t < end; ++t) {
    a.route(args, a.logits.For<float>(context.thread) + t * a.logits_stride,
            a.experts.For<int32_t>(context.thread) + t * args.top_k,
            a.weights.For<float>(context.thread) + t * args.top_k,
            reinterpret_cast<float*>(context.scratch));
  }
}

// Both records' items are blocks of output rows. A thread takes its block of each expert in turn,
// in ascending order, and applies it to the tokens that chose the expert, so that a weight is
// decoded once for several tokens and sums have one order whatever the team.
constexpr int64_t kRowBlock = 16;
constexpr int64_t kTokenBlock = 8;  // tokens gathered for one call of the kernel

struct ExpertsArgs {
  Operand x, experts, weights, inner, y;
  const ExpertWeights* all = nullptr;
  const KernelTable* kernels = nullptr;
  int64_t x_stride = 0;  // floats
  int64_t num_tokens = 0, top_k = 0, hidden = 0, intermediate = 0;
};

// A thread's scratch.
struct ExpertsScratch {
  float* decoded;   // MatmulScratchFloats of the wider matrix
  float* gathered;  // [kTokenBlock, the wider of hidden and intermediate]
  float* first;     // [kTokenBlock, kRowBlock]
  float* second;    // [kTokenBlock, kRowBlock]
};

int64_t WiderOf(const ExpertsArgs& a) { return std::max(a.hidden, a.intermediate); }

int64_t ScratchBytesOf(const ExpertsArgs& a) {
  const int64_t floats =
      MatmulScratchFloats(WiderOf(a)) + kTokenBlock * WiderOf(a) + 2 * kTokenBlock * kRowBlock;
  return RoundUp(4 * floats, Buffer::kAlignment);
}

ExpertsScratch ScratchOf(const ExpertsArgs& a, const RunContext& context) {
  float* decoded = reinterpret_cast<float*>(context.scratch);
  float* gathered = decoded + MatmulScratchFloats(WiderOf(a));
  float* first = gathered + kTokenBlock * WiderOf(a);
  return {decoded, gathered, first, first + kTokenBlock * kRowBlock};
}

// Up to kTokenBlock rows that go through one expert.
struct Batch {
  const float* rows = nullptr;  // [count, width]
  int64_t width = 0;
  int64_t count = 0;
};

// A block of a matrix's rows.
struct RowRange {
  int64_t from = 0;
  int64_t n = 0;
};
RowRange BlockOf(int64_t block, int64_t rows) {
  const int64_t from = block * kRowBlock;
  return {from, std::min(kRowBlock, rows - from)};
}

// Where a product goes, and what making it needs.
struct Product {
  float* y = nullptr;        // [count, n]
  float* decoded = nullptr;  // MatmulScratchFloats
};

// The block's rows of `w` times the batch.
void MultiplyRows(const KernelTable& kernels, const MatrixRef& w, const Batch& batch,
                  const RowRange& rows, const Product& product) {
  MatmulKernelArgs args;
  args.w = w.data + rows.from * w.row_bytes;
  args.row_bytes = w.row_bytes;
  args.cols = w.cols;
  args.bias = w.bias == nullptr ? nullptr : w.bias + rows.from;
  args.x = batch.rows;
  args.x_stride = batch.width;
  args.num_tokens = batch.count;
  args.y = product.y;
  args.y_stride = rows.n;
  args.scales = {w.scales, rows.from};
  Fp32KernelOf(kernels, w).run(args, 0, rows.n, product.decoded);
}

// What ForBatches reads and where it puts rows side by side.
struct BatchSource {
  const int32_t* experts = nullptr;  // [num_tokens, top_k]
  int64_t width = 0;                 // of a row that goes in
  float* gathered = nullptr;         // [kTokenBlock, width]
  const float* factors = nullptr;    // [num_tokens, top_k]: of the rows; null: none
};

// Calls body(expert, choices, batch) for the choices (t * top_k + k) of every expert, at most
// kTokenBlock at a time; row_of(choice) is the row that goes in, `width` floats.
template <typename RowOf, typename Body>
void ForBatches(const ExpertsArgs& a, const BatchSource& source, RowOf row_of, Body body) {
  const int64_t width = source.width;
  const int64_t choices_in_all = a.num_tokens * a.top_k;
  for (size_t e = 0; e < a.all->gate.size(); ++e) {
    int64_t choices[kTokenBlock];
    int64_t count = 0;
    const auto flush = [&] {
      if (count == 0) return;
      Batch batch{row_of(choices[0]), width, count};
      if (count > 1 || source.factors != nullptr) {
        for (int64_t i = 0; i < count; ++i) {
          float* const row = source.gathered + i * width;
          if (source.factors != nullptr) {
            a.kernels->elementwise.scale.run(source.factors[choices[i]], row_of(choices[i]), row,
                                             width);
          } else {
            std::memcpy(row, row_of(choices[i]), static_cast<size_t>(width) * sizeof(float));
          }
        }
        batch.rows = source.gathered;
      }
      body(e, choices, batch);
      count = 0;
    };
    for (int64_t choice = 0; choice < choices_in_all; ++choice) {
      if (source.experts[choice] != static_cast<int32_t>(e)) continue;
      choices[count++] = choice;
      if (count == kTokenBlock) flush();
    }
    flush();
  }
}

void Join(const ExpertsArgs& a, const float* gate, const float* up, float* y, int64_t n) {
  const ElementwiseKernels& kernels = a.kernels->elementwise;
  if (const auto* unit = std::get_if<ClampedSwiglu>(&a.all->activation)) {
    kernels.clamped_swiglu.run(*unit, gate, up, y, n);
  } else {
    kernels.gated_activate.run(std::get<Activation>(a.all->activation), gate, up, y, n);
  }
}

bool WeighsInput(const ExpertsArgs& a) { return a.all->weighs == ExpertWeights::Weighs::kInput; }

// inner[choice, block] = act(gate x) * up x.
void RunGateUp(const ExpertsArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const ExpertsScratch scratch = ScratchOf(a, context);
  const float* x = a.x.For<float>(context.thread);
  float* inner = a.inner.For<float>(context.thread);
  BatchSource source = {a.experts.For<int32_t>(context.thread), a.hidden, scratch.gathered};
  if (WeighsInput(a)) source.factors = a.weights.For<float>(context.thread);
  for (int64_t block = begin; block < end; ++block) {
    const RowRange rows = BlockOf(block, a.intermediate);
    ForBatches(
        a, source, [&](int64_t choice) { return x + choice / a.top_k * a.x_stride; },
        [&](size_t e, const int64_t* choices, const Batch& batch) {
          MultiplyRows(*a.kernels, a.all->gate[e], batch, rows, {scratch.first, scratch.decoded});
          MultiplyRows(*a.kernels, a.all->up[e], batch, rows, {scratch.second, scratch.decoded});
          for (int64_t i = 0; i < batch.count; ++i) {
            Join(a, scratch.first + i * rows.n, scratch.second + i * rows.n,
                 inner + choices[i] * a.intermediate + rows.from, rows.n);
          }
        });
  }
}

// y[t, block] = sum over the chosen experts.
void RunDown(const ExpertsArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const ExpertsScratch scratch = ScratchOf(a, context);
  const float* inner = a.inner.For<float>(context.thread);
  const float* weights = a.weights.For<float>(context.thread);
  float* y = a.y.For<float>(context.thread);
  for (int64_t block = begin; block < end; ++block) {
    const RowRange rows = BlockOf(block, a.hidden);
    for (int64_t t = 0; t < a.num_tokens; ++t) {
      std::memset(y + t * a.hidden + rows.from, 0, static_cast<size_t>(rows.n) * sizeof(float));
    }
    ForBatches(
        a, {a.experts.For<int32_t>(context.thread), a.intermediate, scratch.gathered},
        [&](int64_t choice) { return inner + choice * a.intermediate; },
        [&](size_t e, const int64_t* choices, const Batch& batch) {
          MultiplyRows(*a.kernels, a.all->down[e], batch, rows, {scratch.first, scratch.decoded});
          for (int64_t i = 0; i < batch.count; ++i) {
            a.kernels->elementwise.add_scaled.run(
                WeighsInput(a) ? 1.0f : weights[choices[i]], scratch.first + i * rows.n,
                y + choices[i] / a.top_k * a.hidden + rows.from, rows.n);
          }
        });
  }
}

void CheckMatrices(const Tape& tape, std::span<const MatrixRef> matrices, int64_t rows,
                   int64_t cols) {
  for (const MatrixRef& m : matrices) {
    TN_CHECK(m.rows == rows && m.cols == cols, "experts of one shape");
    TN_CHECK(m.form == HeldForm::kRows, "experts are read as rows");
    CheckScales(m);
    TN_CHECK(Fp32KernelOf(tape.kernels(), m).run != nullptr, "a kernel for the weight's dtype");
  }
}

}  // namespace

Routing Route(Tape& tape, const RoutingSpec& spec, const Value& logits) {
  TN_CHECK(IsMatrix(logits) && logits.dim(1) == spec.experts && spec.top_k >= 1 &&
               spec.top_k <= spec.experts,
           "experts and top_k");
  TN_CHECK(spec.groups >= 1 && spec.experts % spec.groups == 0 && spec.kept_groups >= 1 &&
               spec.kept_groups <= spec.groups,
           "whole groups, at least one kept");
  const Shape shape{logits.dim(0), spec.top_k};
  const auto [experts, everyone] = NewRowResult(tape, DType::kI32, shape);
  const Routing routing{experts, NewRowResult(tape, DType::kF32, shape).value};
  RecordBuilder<RouteArgs> record(tape, "moe_route", tape.kernels().moe.route.name);
  record.args().spec = &spec;
  record.args().route = tape.kernels().moe.route.run;
  record.args().logits_stride = FloatStride(logits, 0);
  record.Read(&RouteArgs::logits, logits)
      .Write(&RouteArgs::experts, routing.experts)
      .Write(&RouteArgs::weights, routing.weights);
  record.Commit<RunRoute>({.items = logits.dim(0),
                           .everyone = everyone,
                           .scratch_bytes = 4 * RouteScratchFloats(spec.experts, spec.groups)});
  return routing;
}

Value ApplyExperts(Tape& tape, const ExpertWeights& experts, const Routing& routing,
                   const Value& x) {
  TN_CHECK(IsMatrix(x) && !experts.gate.empty() && experts.gate.size() == experts.up.size() &&
               experts.gate.size() == experts.down.size(),
           "three matrices per expert");
  TN_CHECK(routing.experts.shape() == routing.weights.shape() &&
               routing.experts.dim(0) == x.dim(0) && routing.experts.dtype() == DType::kI32,
           "a routing of the same tokens");
  ExpertsArgs common;
  common.all = &experts;
  common.kernels = &tape.kernels();
  common.x_stride = FloatStride(x, 0);
  common.num_tokens = x.dim(0);
  common.top_k = routing.experts.dim(1);
  common.hidden = x.dim(1);
  common.intermediate = experts.gate[0].rows;
  CheckMatrices(tape, experts.gate, common.intermediate, common.hidden);
  CheckMatrices(tape, experts.up, common.intermediate, common.hidden);
  CheckMatrices(tape, experts.down, common.hidden, common.intermediate);
  const auto blocks_of = [&](int64_t rows) {
    return x.dim(0) == 0 ? 0 : (rows + kRowBlock - 1) / kRowBlock;
  };
  const Value inner = tape.NewValue(DType::kF32, {x.dim(0) * common.top_k, common.intermediate});
  const Value y = tape.NewValue(DType::kF32, {x.dim(0), common.hidden});

  RecordBuilder<ExpertsArgs> gate_up(tape, "moe_gate_up",
                                     Fp32KernelOf(tape.kernels(), experts.gate[0]).name);
  gate_up.args() = common;
  gate_up.Read(&ExpertsArgs::x, x)
      .Read(&ExpertsArgs::experts, routing.experts)
      .Read(&ExpertsArgs::weights, routing.weights)
      .Write(&ExpertsArgs::inner, inner);
  gate_up.Commit<RunGateUp>(
      {.items = blocks_of(common.intermediate), .scratch_bytes = ScratchBytesOf(common)});

  RecordBuilder<ExpertsArgs> down(tape, "moe_down",
                                  Fp32KernelOf(tape.kernels(), experts.down[0]).name);
  down.args() = common;
  down.Read(&ExpertsArgs::inner, inner)
      .Read(&ExpertsArgs::experts, routing.experts)
      .Read(&ExpertsArgs::weights, routing.weights)
      .Write(&ExpertsArgs::y, y);
  down.Commit<RunDown>(
      {.items = blocks_of(common.hidden), .scratch_bytes = ScratchBytesOf(common)});
  return y;
}

}  // namespace tenon
