#include <algorithm>

#include "tenon/attention/backends/builtin.h"
#include "tenon/attention/backends/flashinfer_attend.h"
#include "tenon/attention/backends/flashinfer_plan.h"
#include "tenon/kernels/table.h"
#include "tenon/tensor/buffer.h"

namespace tenon::backends {
namespace {

constexpr const char* kGenericName = "FLASHINFER/generic";
constexpr const char* kCompiledName = "FLASHINFER/compiled";

// A record's work is handed out in about this many units, whatever the step holds.
constexpr int64_t kUnits = 128;
constexpr int64_t kJoinShares = 64;
constexpr int64_t kDenseShares = 256;

const FlashInferPlan& PlanOf(const AttendRecord& a) {
  TN_CHECK(a.plan != nullptr, "cached rows are attended by a plan of their group");
  return static_cast<const FlashInferPlan&>(*a.plan);
}

// Plan shares that are one unit of work: equally heavy, as the shares are.
int64_t UnitsPerHead(const HeadGeometry& h) {
  return std::clamp<int64_t>(kUnits / h.kv_heads, 8, FlashInferPlan::kShares);
}

void RunItem(const AttendRecord& a, const RunContext& context, const Attender& attender,
             const FlashInferPlan::Item& item, int64_t kv_head) {
  const FlashInferPlan& plan = PlanOf(a);
  const HeadGeometry& h = a.layer.facts->heads();
  const auto runs = plan.runs(item);
  const Attender::Keys keys{plan.pages().PagesOf(item.request), item.key_begin, item.key_end,
                            plan.segments(), item.shared};
  if (item.slot < 0) return attender.ToOutput(runs[0], kv_head, keys);
  attender.ToSlots(
      runs, kv_head, keys,
      a.slots.For<float>(context.thread) + item.slot * h.heads * StateFloats(h.v_width));
}

// Items: (unit of the plan's shares, kv head).
void RunItems(const AttendRecord& a, const RunContext& context, int64_t begin, int64_t end) {
  const FlashInferPlan& plan = PlanOf(a);
  const HeadGeometry& h = a.layer.facts->heads();
  const Attender attender(a, context);
  if (begin == 0) ClearRows(a, context, CoveredRows(*a.layer.layout), a.num_tokens);
  for (int64_t unit = begin; unit < end; ++unit) {
    for (int64_t share = unit / h.kv_heads; share < FlashInferPlan::kShares;
         share += UnitsPerHead(h)) {
      for (const int32_t item : plan.share(share)) {
        RunItem(a, context, attender, plan.items()[static_cast<size_t>(item)], unit % h.kv_heads);
      }
    }
  }
}

// The states of one row and head in the order of their keys, to the result.
void JoinRow(const AttendRecord& a, const RunContext& context, const FlashInferPlan::Join& join,
             int64_t row, int64_t head) {
  const LayerFacts& facts = *a.layer.facts;
  const HeadGeometry& h = facts.heads();
  const float* sinks = facts.Rules().sinks;
  const int64_t width = StateFloats(h.v_width);
  auto* sum = reinterpret_cast<float*>(context.scratch);  // [width]
  ClearState(h.v_width, sum);
  for (const FlashInferPlan::Parts& parts : {join.shared, join.own}) {
    for (int64_t part = 0; part < parts.count; ++part) {
      const int64_t slot = parts.slot + part * parts.stride + row;
      MergeState(facts.kernels(),
                 a.slots.For<float>(context.thread) + (slot * h.heads + head) * width, h.v_width,
                 sum);
    }
  }
  facts.kernels().finish(
      sum, sinks == nullptr ? nullptr : sinks + head, h.v_width,
      a.out.For<float>(context.thread) + ((join.row + row) * h.heads + head) * h.v_width, nullptr);
}

// Items: shares of the tasks (join of the plan, head).
void RunJoins(const AttendRecord& a, const RunContext& context, int64_t begin, int64_t end) {
  const int64_t heads = a.layer.facts->heads().heads;
  const auto joins = PlanOf(a).joins();
  const auto tasks = static_cast<int64_t>(joins.size()) * heads;
  for (int64_t share = begin; share < end; ++share) {
    for (int64_t task = share; task < tasks; task += a.shares) {
      const FlashInferPlan::Join& join = joins[static_cast<size_t>(task / heads)];
      for (int64_t row = 0; row < join.rows; ++row) JoinRow(a, context, join, row, task % heads);
    }
  }
}

int64_t DenseKeysOf(const AttendRecord& a, const StepRequest& r) {
  return a.source == KeySource::kGathered ? a.chunk_rows : r.end - r.begin;
}

// Items: shares of the tasks (block of rows, kv head) of keys that are no pages, of which there is
// no plan. The last blocks see the most keys, so they come first.
void RunDense(const AttendRecord& a, const RunContext& context, int64_t begin, int64_t end) {
  const StepLayout& layout = *a.layer.layout;
  const HeadGeometry& h = a.layer.facts->heads();
  const int64_t block_rows = BlockRowsOf(h);
  const Attender attender(a, context);
  if (begin == 0) ClearRows(a, context, CoveredRows(layout), a.num_tokens);
  for (int64_t share = begin; share < end; ++share) {
    int64_t first = share;  // this share's first task of the request
    for (size_t i = layout.requests.size(); i-- > 0;) {
      const StepRequest& r = layout.requests[i];
      const int64_t keys = DenseKeysOf(a, r);
      const int64_t blocks = CeilDiv(r.end - r.begin, block_rows);
      for (; first < blocks * h.kv_heads; first += a.shares) {
        RowBlock block{static_cast<int32_t>(i),
                       r.begin + (blocks - 1 - first / h.kv_heads) * block_rows, 0};
        block.rows = std::min(block_rows, r.end - block.row);
        attender.ToOutput(block, first % h.kv_heads,
                          {.end = keys, .segments = Segments::Of(a.layer.facts->layout())});
      }
      first -= blocks * h.kv_heads;
    }
  }
}

MlaLayer::Partial RecordDense(Tape& tape, const AttendInput& input, const LayerArgs& layer,
                              const char* op, bool with_stats) {
  const HeadGeometry& h = layer.facts->heads();
  const MlaLayer::Partial target = NewPartial(tape, *layer.facts, input.q.dim(0), with_stats);
  RecordBuilder<AttendRecord> record(tape, op, kGenericName);
  FillAttend(tape, input, layer, record);
  const int64_t shares = std::clamp<int64_t>(input.q.dim(0) * h.kv_heads, 1, kDenseShares);
  record.args().shares = shares;
  record.Write(&AttendRecord::out, target.out);
  if (with_stats) record.Write(&AttendRecord::stats, target.stats);
  record.Commit<RunDense>({.items = shares, .scratch_bytes = AttendScratchBytes(h)});
  return target;
}

// Attends the cache, the plan's items and then its joins: [num_tokens, heads, v_width].
Value RecordPaged(Tape& tape, const Value& q, const LayerArgs& layer, const StepPlan* plan,
                  const char* op) {
  const HeadGeometry& h = layer.facts->heads();
  const Value out = NewPartial(tape, *layer.facts, q.dim(0), false).out;
  const Value slots = tape.NewValue(DType::kF32, {FlashInferPlan::SlotsFor(layer.facts->layout()),
                                                  h.heads, StateFloats(h.v_width)});
  const auto fill = [&](RecordBuilder<AttendRecord>& record, int64_t shares) {
    FillAttend(tape, {.q = q}, layer, record);
    record.args().plan = plan;
    record.args().shares = shares;
    record.Update(&AttendRecord::out, out).Update(&AttendRecord::slots, slots);
  };
  const int64_t units = UnitsPerHead(h) * h.kv_heads;
  const bool compiled = static_cast<const FlashInferFacts&>(*layer.facts).compiled() != nullptr;
  RecordBuilder<AttendRecord> items(tape, op, compiled ? kCompiledName : kGenericName);
  fill(items, units);
  items.Commit<RunItems>({.items = units, .scratch_bytes = AttendScratchBytes(h)});
  RecordBuilder<AttendRecord> joins(tape, op, "reference/attention_merge");
  fill(joins, kJoinShares);
  const int64_t state = StateFloats(h.v_width) * static_cast<int64_t>(sizeof(float));
  joins.Commit<RunJoins>(
      {.items = kJoinShares, .scratch_bytes = RoundUp(state, Buffer::kAlignment)});
  return out;
}

class FlashInferLayer final : public AttentionLayer {
 public:
  FlashInferLayer(const AttentionSpec& spec, const AttentionKernels& kernels,
                  const CompiledKernel* compiled)
      : facts_(spec, spec.kv_layout.value_or(KvLayout::kNhd), GeometryOf(spec), kernels, compiled) {
  }

  Value Run(Tape& tape, const QkvView& qkv, const AttentionCall& call) const override {
    const LayerArgs layer{&facts_, call.layout, call.cache};
    if (facts_.spec().kind == AttentionKind::kEncoder) {
      const QkvView rotated = Rotated(tape, qkv);
      const AttendInput input{
          .q = rotated.q, .k = rotated.k, .v = rotated.v, .source = KeySource::kOwnRows};
      return RecordDense(tape, input, layer, "attention", false).out.MergeLast();
    }
    if (!qkv.k.empty()) RecordAppend(tape, layer, qkv);
    if (qkv.q.empty()) return {};
    return RecordPaged(tape, qkv.q, layer, call.plan, "attention").MergeLast();
  }

 private:
  const FlashInferFacts facts_;
};

class FlashInferMla final : public PagedMla<FlashInferFacts> {
 public:
  FlashInferMla(const AttentionSpec& spec, const AttentionKernels& kernels)
      : PagedMla(spec, kernels, kNotCompiled) {}

  Partial RunExpanded(Tape& tape, const Expanded& rows, const AttentionCall& call) const override {
    return RecordDense(tape, ExpandedInput(rows), ExpandedArgs(call), "mla_expanded", true);
  }
  Value RunLatent(Tape& tape, const Value& q, const AttentionCall& call) const override {
    return RecordPaged(tape, q, LatentArgs(call), call.plan, "mla_latent");
  }

 private:
  static constexpr const CompiledKernel* kNotCompiled = nullptr;
};

// Page tables in compressed rows, a plan of balanced work per step, states merged by their
// log-sum-exp, prefixes of several sequences attended once.
class FlashInfer final : public AttentionBackend {
 public:
  FlashInfer(const KernelTable& kernels, const FlashInferOptions& options)
      : kernels_(kernels.attention),
        cascade_(options.cascade),
        variants_(std::make_unique<KernelVariants>(kernels.isa, options.jit, options.hooks)) {}
  std::string_view name() const override { return "FLASHINFER"; }
  KvLayout layout() const override { return KvLayout::kNhd; }
  std::unique_ptr<AttentionLayer> CreateLayer(const AttentionSpec& spec) const override {
    return std::make_unique<FlashInferLayer>(spec, kernels_, variants_->For(spec));
  }
  std::unique_ptr<MlaLayer> CreateMlaLayer(const AttentionSpec& spec) const override {
    variants_->For(spec);  // there is none, which may be an error
    return std::make_unique<FlashInferMla>(spec, kernels_);
  }
  std::unique_ptr<StepPlan> CreatePlan(int group, const CacheSpec& spec) const override {
    return std::make_unique<FlashInferPlan>(group, spec, cascade_);
  }
  void Prepare(const StepLayout& layout, StepPlan& plan) const override {
    static_cast<FlashInferPlan&>(plan).Prepare(layout);
  }
  Result<std::vector<std::string>> PlanKernels() const override { return variants_->Plan(); }
  Status LoadKernels() const override { return variants_->Load(); }

 private:
  const AttentionKernels& kernels_;
  const bool cascade_;
  const std::unique_ptr<KernelVariants> variants_;
};

}  // namespace

std::shared_ptr<const AttentionBackend> MakeFlashInfer(const KernelTable& kernels,
                                                       const FlashInferOptions& options) {
  return std::make_shared<FlashInfer>(kernels, options);
}

}  // namespace tenon::backends
