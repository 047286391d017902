#include <algorithm>

#include "tenon/attention/backends/builtin.h"
#include "tenon/attention/backends/paged_layer.h"
#include "tenon/tensor/buffer.h"

namespace tenon::backends {
namespace {

constexpr const char* kPrefillName = "NATIVE/generic_prefill";
constexpr const char* kDecodeName = "NATIVE/generic_decode";

// One sequence's keys are cut this often in decode, whatever the team's size, so that results do
// not depend on it.
constexpr int64_t kSplits = 8;

struct SplitArgs {
  Operand q, part, stats;
  LayerArgs layer;
  int64_t q_row = 0, q_head = 0;  // floats
};

// Items: (row, kv head, split). Split s attends its share of the visible keys.
void RunSplit(const SplitArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const AttentionSpec& spec = *a.layer.spec;
  const int64_t group = spec.heads / spec.kv_heads;
  AttendArgs args;
  SetSpec(spec, args);
  const float* sinks = args.sinks;
  args.group = group;
  args.k_width = spec.head_dim;
  args.v_width = spec.v_head_dim;
  args.q_head_stride = a.q_head;
  args.out_head_stride = kSplits * spec.v_head_dim;
  args.stats_head_stride = kSplits * 2;
  for (int64_t item = begin; item < end; ++item) {
    const int64_t split = item % kSplits;
    const int64_t t = item / kSplits / spec.kv_heads;
    args.kv_head = item / kSplits % spec.kv_heads;
    args.first_head = args.kv_head * group;
    const int32_t request = RequestOfRow(*a.layer.layout, t);
    const StepRequest& r = a.layer.layout->requests[static_cast<size_t>(request)];
    const bool cross = spec.kind == AttentionKind::kCross;
    SetPagedSource(a.layer, request, args);
    SetVisibleRange(spec, cross ? 0 : r.kv_len - 1, cross ? r.cross_len : r.kv_len, args);
    const int64_t visible = args.end - args.begin;
    const int64_t first = args.begin;
    args.begin = first + visible * split / kSplits;
    args.end = first + visible * (split + 1) / kSplits;
    args.sinks = split == 0 ? sinks : nullptr;  // a sink counts once
    const int64_t head = t * spec.heads + args.first_head;
    args.q = a.q.For<float>(context.thread) + t * a.q_row + args.first_head * a.q_head;
    args.out = a.part.For<float>(context.thread) + (head * kSplits + split) * spec.v_head_dim;
    args.stats = a.stats.For<float>(context.thread) + (head * kSplits + split) * 2;
    a.layer.kernels->attention.online(args, reinterpret_cast<float*>(context.scratch));
  }
}

struct JoinArgs {
  Operand part, stats, out;
  const KernelTable* kernels = nullptr;
  int64_t width = 0;
};

void RunJoin(const JoinArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const float* part = a.part.For<float>(context.thread) + i * kSplits * a.width;
    const float* stats = a.stats.For<float>(context.thread) + i * kSplits * 2;
    float* out = a.out.For<float>(context.thread) + i * a.width;
    float sum[2] = {stats[0], stats[1]};
    for (int64_t c = 0; c < a.width; ++c) out[c] = part[c];
    for (int64_t s = 1; s < kSplits; ++s) {
      a.kernels->attention.merge(out, sum, part + s * a.width, stats + s * 2, out, sum, a.width);
    }
  }
}

bool IsDecodeStep(const StepLayout& layout) {
  return std::all_of(layout.requests.begin(), layout.requests.end(),
                     [](const StepRequest& r) { return r.end - r.begin == 1; });
}

class NativeLayer final : public AttentionLayer {
 public:
  NativeLayer(const AttentionSpec& spec, const KernelTable& kernels)
      : spec_(spec), kernels_(kernels) {}

  Value Run(Tape& tape, const QkvView& qkv, const AttentionCall& call) const override {
    const LayerArgs layer{&spec_,     call.layout, static_cast<const PagesPlan*>(call.plan),
                          call.cache, &kernels_,   KvLayout::kHnd};
    if (!qkv.k.empty() && spec_.kind != AttentionKind::kEncoder)
      RecordAppend(tape, layer, qkv.k, qkv.v);
    if (qkv.q.empty()) return {};
    if (spec_.kind != AttentionKind::kEncoder && IsDecodeStep(*call.layout))
      return Decode(tape, layer, qkv.q);
    return RecordAttend(tape, layer, {kernels_.attention.online, kPrefillName}, qkv);
  }

 private:
  Value Decode(Tape& tape, const LayerArgs& layer, const Value& q) const {
    const int64_t heads = q.dim(0) * spec_.heads;
    const Value part = tape.NewValue(DType::kF32, {heads, kSplits, spec_.v_head_dim});
    const Value stats = tape.NewValue(DType::kF32, {heads, kSplits, 2});
    const Value out = tape.NewValue(DType::kF32, {q.dim(0), spec_.heads * spec_.v_head_dim});
    const int64_t scratch =
        4 * AttendScratchFloats(spec_.head_dim, spec_.v_head_dim, spec_.heads / spec_.kv_heads);
    RecordBuilder<SplitArgs> split(tape, "attention", kDecodeName);
    split.args().layer = layer;
    split.args().q_row = q.stride_bytes(0) / 4;
    split.args().q_head = q.stride_bytes(1) / 4;
    split.Read(&SplitArgs::q, q).Write(&SplitArgs::part, part).Write(&SplitArgs::stats, stats);
    split.ReadResource(layer.cache);
    split.Commit<RunSplit>({.items = q.dim(0) * spec_.kv_heads * kSplits,
                            .scratch_bytes = RoundUp(scratch, Buffer::kAlignment)});
    RecordBuilder<JoinArgs> join(tape, "attention_join", "reference/attention_join");
    join.args().kernels = &kernels_;
    join.args().width = spec_.v_head_dim;
    join.Read(&JoinArgs::part, part).Read(&JoinArgs::stats, stats).Write(&JoinArgs::out, out);
    join.Commit<RunJoin>({.items = heads, .grain = 4});
    return out;
  }

  const AttentionSpec spec_;
  const KernelTable& kernels_;
};

class NativeMla final : public MlaLayer {
 public:
  NativeMla(const AttentionSpec& spec, const KernelTable& kernels)
      : spec_(spec), kernels_(kernels) {}

  void Append(Tape& tape, const Value& latent, const AttentionCall& call) const override {
    RecordAppendLatent(tape, LayerOf(call), latent);
  }
  Value Gather(Tape& tape, int64_t chunk, int64_t chunk_rows,
               const AttentionCall& call) const override {
    return RecordGatherLatent(tape, LayerOf(call), chunk, chunk_rows);
  }
  Partial RunExpanded(Tape& tape, const Expanded& rows, const AttentionCall& call) const override {
    return RecordAttendExpanded(tape, LayerOf(call), {kernels_.attention.online, kPrefillName},
                                rows);
  }
  Value RunLatent(Tape& tape, const Value& q, const AttentionCall& call) const override {
    return RecordAttendLatent(tape, LayerOf(call), {kernels_.attention.online, kDecodeName}, q);
  }
  Partial Merge(Tape& tape, const Partial& a, const Partial& b) const override {
    return RecordMerge(tape, kernels_, a, b);
  }

 private:
  LayerArgs LayerOf(const AttentionCall& call) const {
    return {&spec_,     call.layout, static_cast<const PagesPlan*>(call.plan),
            call.cache, &kernels_,   KvLayout::kRow};
  }
  const AttentionSpec spec_;
  const KernelTable& kernels_;
};

// Paged, one pass over the keys with a running maximum; each key row is read once per group of
// query heads.
class Native final : public AttentionBackend {
 public:
  explicit Native(const KernelTable& kernels) : kernels_(kernels) {}
  std::string_view name() const override { return "NATIVE"; }
  KvLayout layout() const override { return KvLayout::kHnd; }
  std::unique_ptr<AttentionLayer> CreateLayer(const AttentionSpec& spec) const override {
    return std::make_unique<NativeLayer>(spec, kernels_);
  }
  std::unique_ptr<MlaLayer> CreateMlaLayer(const AttentionSpec& spec) const override {
    return std::make_unique<NativeMla>(spec, kernels_);
  }
  std::unique_ptr<StepPlan> CreatePlan(int group) const override {
    return std::make_unique<PagesPlan>(group);
  }
  void Prepare(const StepLayout& /*layout*/, StepPlan& /*plan*/) const override {}

 private:
  const KernelTable& kernels_;
};

}  // namespace

std::shared_ptr<const AttentionBackend> MakeNative(const KernelTable& kernels) {
  return std::make_shared<Native>(kernels);
}

}  // namespace tenon::backends
