#include "tenon/attention/capability.h"

#include <fmt/format.h>

#include "tenon/base/text.h"

namespace tenon {
namespace {

using Spec = AttentionSpec;
constexpr const float* kExamplePointer = nullptr;  // its address says "present"

constexpr FeatureRow kFeatures[] = {
    {Feature::kWindow, "window", [](const Spec& s) { return s.window.has_value(); },
     [](const Spec& s) { return std::to_string(*s.window); },
     [](Spec s) { return s.window = 5, s; }},
    {Feature::kChunk, "chunk", [](const Spec& s) { return s.chunk.has_value(); },
     [](const Spec& s) { return std::to_string(*s.chunk); }, [](Spec s) { return s.chunk = 8, s; }},
    {Feature::kSoftcap, "softcap", [](const Spec& s) { return s.softcap > 0; },
     [](const Spec& s) { return fmt::format("{}", s.softcap); },
     [](Spec s) { return s.softcap = 5, s; }},
    {Feature::kSinks, "sinks", [](const Spec& s) { return s.sinks != nullptr; },
     [](const Spec&) { return std::string("yes"); },
     [](Spec s) { return s.sinks = &kExamplePointer, s; }},
    {Feature::kAlibi, "alibi", [](const Spec& s) { return s.alibi_slopes != nullptr; },
     [](const Spec&) { return std::string("yes"); },
     [](Spec s) { return s.alibi_slopes = &kExamplePointer, s; }},
    {Feature::kRelativeBias, "relative_bias",
     [](const Spec& s) { return s.relative_bias.has_value(); },
     [](const Spec& s) { return fmt::format("{} buckets", s.relative_bias->buckets); },
     [](Spec s) {
       return s.relative_bias = RelativeBias{&kExamplePointer, 8, 16, false}, s;
     }},
    {Feature::kMla, "mla", [](const Spec& s) { return s.mla.has_value(); },
     [](const Spec& s) {
       return fmt::format("{}+{}", s.mla->kv_lora_rank, s.mla->qk_rope_head_dim);
     },
     [](Spec s) {
       return s.mla = MlaGeometry{0, 20, 16, 8, 12}, s;
     }},
    {Feature::kUnequalHeadDims, "v_head_dim",
     [](const Spec& s) { return !s.mla && s.v_head_dim != s.head_dim; },
     [](const Spec& s) { return fmt::format("{} (head_dim {})", s.v_head_dim, s.head_dim); },
     [](Spec s) { return s.v_head_dim = s.head_dim / 2, s; }},
    {Feature::kEncoder, "kind", [](const Spec& s) { return s.kind == AttentionKind::kEncoder; },
     [](const Spec&) { return std::string("encoder"); },
     [](Spec s) { return s.kind = AttentionKind::kEncoder, s; }},
    {Feature::kCross, "kind", [](const Spec& s) { return s.kind == AttentionKind::kCross; },
     [](const Spec&) { return std::string("cross"); },
     [](Spec s) { return s.kind = AttentionKind::kCross, s; }},
};

template <typename T, typename Name>
std::string ListOf(const AnyOf<T>& set, Name name) {
  if (set.count == 0) return "any";
  std::vector<std::string> names;
  for (size_t i = 0; i < set.count; ++i) names.push_back(name(set.values[i]));
  return "{" + Join(names, ", ") + "}";
}

}  // namespace

std::string_view NameOf(AttentionPhase phase) {
  return phase == AttentionPhase::kPrefill ? "prefill" : "decode";
}

std::string_view NameOf(AttentionKind kind) {
  switch (kind) {
    case AttentionKind::kDecoder:
      return "decoder";
    case AttentionKind::kEncoder:
      return "encoder";
    case AttentionKind::kCross:
      return "cross";
  }
  return "unknown";
}

std::span<const FeatureRow> Features() { return kFeatures; }

FeatureSet RequiredFeatures(const AttentionSpec& spec) {
  FeatureSet set = 0;
  for (const FeatureRow& row : kFeatures) {
    if (row.required(spec)) set = set | row.feature;
  }
  return set;
}

bool NeedsPhase(const AttentionSpec& spec, AttentionPhase phase) {
  return phase == AttentionPhase::kPrefill || spec.kind != AttentionKind::kEncoder;
}

std::vector<Refusal> RefusalsOf(const KernelRow& row, const AttentionSpec& spec,
                                const MachineProfile& machine) {
  std::vector<Refusal> refusals;
  const auto refuse = [&](std::string_view attribute, std::string value, std::string supports) {
    refusals.push_back({fmt::format("{}/{}", row.backend, row.kernel), std::string(attribute),
                        std::move(value), std::move(supports)});
  };
  const auto number = [](int64_t v) { return std::to_string(v); };
  const auto dtype_name = [](DType t) { return std::string(NameOf(t)); };
  if (machine.isa < row.isa) {
    refuse("isa", std::string(NameOf(machine.isa)), std::string(NameOf(row.isa)) + " or newer");
  }
  // An encoder caches nothing, so the cache's properties do not matter to it.
  if (spec.kind != AttentionKind::kEncoder) {
    if (!row.kv_dtypes.Accepts(spec.kv_dtype)) {
      refuse("kv_dtype", dtype_name(spec.kv_dtype), ListOf(row.kv_dtypes, dtype_name));
    }
    if (!row.page_tokens.Accepts(spec.page_tokens)) {
      refuse("page_tokens", number(spec.page_tokens), ListOf(row.page_tokens, number));
    }
  }
  if (!row.head_dims.Accepts(spec.head_dim))
    refuse("head_dim", number(spec.head_dim), ListOf(row.head_dims, number));
  const FeatureSet missing = RequiredFeatures(spec) & ~row.features;
  for (const FeatureRow& f : kFeatures) {
    if (Has(missing, f.feature)) refuse(f.name, f.value(spec), "none");
  }
  return refusals;
}

const AttentionBackend* BackendTable::Find(std::string_view name) const {
  for (const auto& backend : backends) {
    if (EqualsIgnoreCase(backend->name(), name)) return backend.get();
  }
  return nullptr;
}

}  // namespace tenon
