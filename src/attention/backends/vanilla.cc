#include "tenon/attention/backends/builtin.h"
#include "tenon/attention/backends/paged_layer.h"
#include "tenon/kernels/table.h"
#include "tenon/tensor/buffer.h"

namespace tenon::backends {
namespace {

constexpr const char* kName = "VANILLA/loops";

// Items: (row, kv head).
void RunVanilla(const AttendRecord& a, const RunContext& context, int64_t begin, int64_t end) {
  const LayerFacts& facts = *a.layer.facts;
  const int64_t kv_heads = facts.heads().kv_heads;
  ScoreRules rules = facts.Rules();
  if (a.source == KeySource::kGathered) rules.sinks = nullptr;  // counted with the own rows
  for (int64_t item = begin; item < end; ++item) {
    const int64_t row = item / kv_heads;
    const int32_t request = RequestOfRow(*a.layer.layout, row);
    if (request < 0) {
      ClearRows(a, context, row, row + 1);
      item = (row + 1) * kv_heads - 1;
      continue;
    }
    const AttendArgs args = ArgsOf(a, context, rules, {request, row, 1}, item % kv_heads);
    facts.kernels().vanilla(args, OutOf(a, context, args, row),
                            reinterpret_cast<float*>(context.scratch));
  }
}

MlaLayer::Partial RecordVanilla(Tape& tape, const LayerArgs& layer, const AttendInput& input,
                                const char* op, bool with_stats) {
  const HeadGeometry& h = layer.facts->heads();
  const MlaLayer::Partial partial = NewPartial(tape, *layer.facts, input.q.dim(0), with_stats);
  RecordBuilder<AttendRecord> record(tape, op, kName);
  FillAttend(tape, input, layer, record);
  record.Write(&AttendRecord::out, partial.out);
  if (with_stats) record.Write(&AttendRecord::stats, partial.stats);
  const int64_t scratch =
      VanillaScratchFloats(h.k_width, h.v_width) * static_cast<int64_t>(sizeof(float));
  record.Commit<RunVanilla>({.items = input.q.dim(0) * h.kv_heads,
                             .grain = h.kv_heads,
                             .scratch_bytes = RoundUp(scratch, Buffer::kAlignment)});
  return partial;
}

class VanillaLayer final : public AttentionLayer {
 public:
  VanillaLayer(const AttentionSpec& spec, const AttentionKernels& kernels)
      : facts_(spec, spec.kv_layout.value_or(KvLayout::kNhd), GeometryOf(spec), kernels) {}

  Value Run(Tape& tape, const QkvView& given, const AttentionCall& call) const override {
    const QkvView qkv = Rotated(tape, given);
    const LayerArgs layer{&facts_, call.layout, call.cache};
    const bool encoder = facts_.spec().kind == AttentionKind::kEncoder;
    if (!qkv.k.empty() && !encoder) RecordAppend(tape, layer, qkv);
    if (qkv.q.empty()) return {};
    AttendInput input{.q = qkv.q, .k = qkv.k, .v = qkv.v, .k2 = {}};
    input.source = encoder ? KeySource::kOwnRows : KeySource::kPaged;
    return RecordVanilla(tape, layer, input, "attention", false).out.MergeLast();
  }

 private:
  const LayerFacts facts_;
};

class VanillaMla final : public PagedMla<LayerFacts> {
 public:
  using PagedMla::PagedMla;

  Partial RunExpanded(Tape& tape, const Expanded& rows, const AttentionCall& call) const override {
    return RecordVanilla(tape, ExpandedArgs(call), ExpandedInput(rows), "mla_expanded", true);
  }
  Value RunLatent(Tape& tape, const Value& q, const AttentionCall& call) const override {
    const AttendInput input{.q = q};
    return RecordVanilla(tape, LatentArgs(call), input, "mla_latent", false).out;
  }
};

class VanillaPlan final : public StepPlan {};

// Plain loops in double over any spec: the oracle. Reads the layout's own page tables, so that
// there is nothing to prepare.
class Vanilla final : public AttentionBackend {
 public:
  explicit Vanilla(const AttentionKernels& kernels) : kernels_(kernels) {}
  std::string_view name() const override { return "VANILLA"; }
  KvLayout layout() const override { return KvLayout::kNhd; }
  std::unique_ptr<AttentionLayer> CreateLayer(const AttentionSpec& spec) const override {
    return std::make_unique<VanillaLayer>(spec, kernels_);
  }
  std::unique_ptr<MlaLayer> CreateMlaLayer(const AttentionSpec& spec) const override {
    return std::make_unique<VanillaMla>(spec, kernels_);
  }
  std::unique_ptr<StepPlan> CreatePlan(int /*group*/, const CacheSpec& /*spec*/) const override {
    return std::make_unique<VanillaPlan>();
  }
  void Prepare(const StepLayout& /*layout*/, StepPlan& /*plan*/) const override {}

 private:
  const AttentionKernels& kernels_;
};

}  // namespace

std::shared_ptr<const AttentionBackend> MakeVanilla(const KernelTable& kernels) {
  return std::make_shared<Vanilla>(kernels.attention);
}

}  // namespace tenon::backends
