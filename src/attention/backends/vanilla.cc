#include "tenon/attention/backends/builtin.h"
#include "tenon/attention/backends/paged_layer.h"

namespace tenon::backends {
namespace {

constexpr const char* kName = "VANILLA/loops";

class VanillaLayer final : public AttentionLayer {
 public:
  VanillaLayer(const AttentionSpec& spec, const KernelTable& kernels)
      : spec_(spec), kernels_(kernels) {}

  Value Run(Tape& tape, const QkvView& qkv, const AttentionCall& call) const override {
    const LayerArgs layer{&spec_,     call.layout, static_cast<const PagesPlan*>(call.plan),
                          call.cache, &kernels_,   KvLayout::kNhd};
    if (!qkv.k.empty() && spec_.kind != AttentionKind::kEncoder)
      RecordAppend(tape, layer, qkv.k, qkv.v);
    if (qkv.q.empty()) return {};
    return RecordAttend(tape, layer, {kernels_.attention.vanilla, kName}, qkv);
  }

 private:
  const AttentionSpec spec_;
  const KernelTable& kernels_;
};

class VanillaMla final : public MlaLayer {
 public:
  VanillaMla(const AttentionSpec& spec, const KernelTable& kernels)
      : spec_(spec), kernels_(kernels) {}

  void Append(Tape& tape, const Value& latent, const AttentionCall& call) const override {
    RecordAppendLatent(tape, LayerOf(call), latent);
  }
  Value Gather(Tape& tape, int64_t chunk, int64_t chunk_rows,
               const AttentionCall& call) const override {
    return RecordGatherLatent(tape, LayerOf(call), chunk, chunk_rows);
  }
  Partial RunExpanded(Tape& tape, const Expanded& rows, const AttentionCall& call) const override {
    return RecordAttendExpanded(tape, LayerOf(call), {kernels_.attention.vanilla, kName}, rows);
  }
  Value RunLatent(Tape& tape, const Value& q, const AttentionCall& call) const override {
    return RecordAttendLatent(tape, LayerOf(call), {kernels_.attention.vanilla, kName}, q);
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

// Plain loops in double over any spec: the oracle.
class Vanilla final : public AttentionBackend {
 public:
  explicit Vanilla(const KernelTable& kernels) : kernels_(kernels) {}
  std::string_view name() const override { return "VANILLA"; }
  KvLayout layout() const override { return KvLayout::kNhd; }
  std::unique_ptr<AttentionLayer> CreateLayer(const AttentionSpec& spec) const override {
    return std::make_unique<VanillaLayer>(spec, kernels_);
  }
  std::unique_ptr<MlaLayer> CreateMlaLayer(const AttentionSpec& spec) const override {
    return std::make_unique<VanillaMla>(spec, kernels_);
  }
  std::unique_ptr<StepPlan> CreatePlan(int group) const override {
    return std::make_unique<PagesPlan>(group);
  }
  void Prepare(const StepLayout& /*layout*/, StepPlan& /*plan*/) const override {}

 private:
  const KernelTable& kernels_;
};

}  // namespace

std::shared_ptr<const AttentionBackend> MakeVanilla(const KernelTable& kernels) {
  return std::make_shared<Vanilla>(kernels);
}

}  // namespace tenon::backends
