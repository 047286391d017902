#include "tenon/attention/backends/builtin.h"

#include "tenon/attention/capability.h"

namespace tenon {
namespace {

constexpr FeatureSet kEverything = Feature::kWindow | Feature::kChunk | Feature::kSoftcap |
                                   Feature::kSinks | Feature::kAlibi | Feature::kRelativeBias |
                                   Feature::kMla | Feature::kUnequalHeadDims | Feature::kEncoder |
                                   Feature::kCross;
constexpr AnyOf<DType> kPlainKv = Of(DType::kF32, DType::kBF16);

// In `auto` order.
constexpr KernelRow kRows[] = {
    {"NATIVE", "generic_prefill", AttentionPhase::kPrefill, Isa::kReference, kEverything, kPlainKv},
    {"NATIVE", "generic_decode", AttentionPhase::kDecode, Isa::kReference, kEverything, kPlainKv},
    {"VANILLA", "loops", AttentionPhase::kPrefill, Isa::kReference, kEverything, kPlainKv},
    {"VANILLA", "loops", AttentionPhase::kDecode, Isa::kReference, kEverything, kPlainKv},
};

}  // namespace

BackendTable BuiltinBackends(const KernelTable& kernels) {
  BackendTable table;
  table.rows.assign(std::begin(kRows), std::end(kRows));
  table.backends = {backends::MakeNative(kernels), backends::MakeVanilla(kernels)};
  return table;
}

}  // namespace tenon
