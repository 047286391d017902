#include "tenon/attention/backends/builtin.h"

#include "tenon/attention/capability.h"
#include "tenon/kernels/attention_kernels.h"

namespace tenon {
namespace {

constexpr FeatureSet kUsual = Feature::kWindow | Feature::kChunk | Feature::kSoftcap |
                              Feature::kSinks | Feature::kAlibi | Feature::kRelativeBias |
                              Feature::kMla | Feature::kUnequalHeadDims | Feature::kEncoder |
                              Feature::kCross | Feature::kMixedKv | Feature::kDeterministic;
constexpr ValueSet<DType> kAllKv =
    Of(DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3, DType::kI8, DType::kF4E2M1);
// A latent is key and value of all heads at once: four bits are too few for it.
constexpr ValueSet<DType> kLatents =
    Of(DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3, DType::kI8);

constexpr KernelRow Generic(std::string_view backend, std::string_view kernel, AttentionPhase phase,
                            ValueSet<KvLayout> layouts) {
  return {.backend = backend,
          .kernel = kernel,
          .phase = phase,
          .isa = Isa::kReference,
          .features = kUsual,
          .kv_dtypes = kAllKv,
          .latent_dtypes = kLatents,
          .page_tokens = Any<int32_t>(),
          .layouts = layouts,
          .head_dims = Any<int64_t>(),
          .computes = Any<Compute>()};
}

// Products of bf16 where they are allowed; not for MLA, whose expanded keys have two parts.
constexpr KernelRow Bf16Prefill() {
  KernelRow row = Generic("NATIVE", backends::kBf16Prefill, AttentionPhase::kPrefill,
                          Of(KvLayout::kHnd, KvLayout::kNhd));
  row.isa = Isa::kAvx512Bf16Vnni;
  // Decode rounds less, so a row's bits would depend on the phase that it comes in.
  row.features &= ~(Feature::kMla | Feature::kDeterministic);
  row.latent_dtypes = {};
  row.computes = Of(Compute::kBf16);
  row.most_heads_per_kv_head = kAttendBlockQueries;
  return row;
}

// Plain loops for any spec. The oracle holds all layers alike, so that what it is compared with
// differs in one thing.
constexpr KernelRow VanillaRow(AttentionPhase phase) {
  KernelRow row = Generic("VANILLA", "loops", phase, Of(KvLayout::kNhd));
  row.features &= ~static_cast<FeatureSet>(Feature::kMixedKv);
  row.features = row.features | Feature::kCustomMask;
  return row;
}

// Everything but chunks. Shared prefixes are attended for several sequences at once, and a prompt's
// chunk decides how its keys are split: bits depend on the batch.
constexpr KernelRow FlashInferRow(AttentionPhase phase) {
  KernelRow row = Generic("FLASHINFER", "generic", phase, Of(KvLayout::kNhd, KvLayout::kHnd));
  row.features &= ~(Feature::kChunk | Feature::kDeterministic);
  row.features = row.features | Feature::kCustomMask;
  return row;
}

constexpr ValueSet<KvLayout> kByStrides = Of(KvLayout::kHnd, KvLayout::kNhd);

// In `auto` order.
constexpr KernelRow kRows[] = {
    Bf16Prefill(),
    Generic("NATIVE", "generic_prefill", AttentionPhase::kPrefill, kByStrides),
    Generic("NATIVE", "generic_decode", AttentionPhase::kDecode, kByStrides),
    FlashInferRow(AttentionPhase::kPrefill),
    FlashInferRow(AttentionPhase::kDecode),
    VanillaRow(AttentionPhase::kPrefill),
    VanillaRow(AttentionPhase::kDecode),
};

}  // namespace

BackendTable BuiltinBackends(const KernelTable& kernels) {
  BackendTable table;
  table.rows.assign(std::begin(kRows), std::end(kRows));
  table.backends = {backends::MakeNative(kernels), backends::MakeFlashInfer(kernels),
                    backends::MakeVanilla(kernels)};
  table.aliases = {{"TRTLLM", "NATIVE"}};  // TensorRT-LLM's name for its own paged backend
  return table;
}

}  // namespace tenon
