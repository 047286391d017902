#include "tenon/attention/capability.h"

#include <fmt/format.h>

#include <algorithm>

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
    {Feature::kSoftcap, "softcap", [](const Spec& s) { return s.softcap != 0; },
     [](const Spec& s) { return fmt::format("{}", s.softcap); },
     [](Spec s) { return s.softcap = 1, s; }},
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
    {Feature::kEncoder, "encoder", [](const Spec& s) { return s.kind == AttentionKind::kEncoder; },
     [](const Spec&) { return std::string("yes"); },
     [](Spec s) { return s.kind = AttentionKind::kEncoder, s; }},
    {Feature::kCross, "cross", [](const Spec& s) { return s.kind == AttentionKind::kCross; },
     [](const Spec&) { return std::string("yes"); },
     [](Spec s) { return s.kind = AttentionKind::kCross, s; }},
    {Feature::kMixedKv, "mixed_kv", [](const Spec& s) { return s.other_kv_dtype.has_value(); },
     [](const Spec& s) {
       return fmt::format("{}, {} in other layers", KvNameOf(s.kv_dtype),
                          KvNameOf(*s.other_kv_dtype));
     },
     [](Spec s) { return s.other_kv_dtype = DType::kI8, s; }},
    {Feature::kDeterministic, "deterministic", [](const Spec& s) { return s.deterministic; },
     [](const Spec&) { return std::string("yes"); },
     [](Spec s) { return s.deterministic = true, s; }},
    {Feature::kCustomMask, "custom_mask", [](const Spec& s) { return s.custom_mask; },
     [](const Spec&) { return std::string("yes"); },
     [](Spec s) { return s.custom_mask = true, s; }},
};

std::string TextOf(int64_t number) { return std::to_string(number); }
std::string TextOf(DType dtype) { return std::string(KvNameOf(dtype)); }
std::string TextOf(KvLayout layout) { return std::string(NameOf(layout)); }
std::string TextOf(Compute compute) { return std::string(NameOf(compute)); }

template <typename T>
std::string ListOf(const ValueSet<T>& set) {
  if (set.any) return "any";
  if (set.count == 0) return "none";
  std::vector<std::string> names;
  for (size_t i = 0; i < set.count; ++i) names.push_back(TextOf(set.values[i]));
  return "{" + Join(names, ", ") + "}";
}

template <typename T>
void CheckValue(std::string_view attribute, const ValueSet<T>& set, T value,
                std::vector<Refusal>& refusals) {
  if (set.Accepts(value)) return;
  refusals.push_back({.who = {},
                      .attribute = std::string(attribute),
                      .value = TextOf(value),
                      .supports = ListOf(set)});
}

// The dtypes of the set in which the layer's rows exist: codes that share a scale are whole groups.
void CheckKvDType(const KernelRow& row, const Spec& spec, std::vector<Refusal>& refusals) {
  if (spec.mla && !Has(row.features, Feature::kMla)) return;  // refused as a whole
  const ValueSet<DType>& declared = spec.mla ? row.latent_dtypes : row.kv_dtypes;
  KvGeometry rows = spec.Cached(KvLayout::kNhd);
  if (rows.Exists()) return CheckValue("kv_dtype", declared, spec.kv_dtype, refusals);
  ValueSet<DType> existing;
  for (size_t i = 0; i < declared.count; ++i) {
    rows.dtype = declared.values[i];
    if (rows.Exists()) existing.values[existing.count++] = declared.values[i];
  }
  refusals.push_back(
      {.who = {},
       .attribute = "kv_dtype",
       .value = spec.mla ? fmt::format("{} (rows of {})", TextOf(spec.kv_dtype), spec.CachedWidth())
                         : fmt::format("{} (head_dim {}, v_head_dim {})", TextOf(spec.kv_dtype),
                                       spec.head_dim, spec.v_head_dim),
       .supports = ListOf(existing)});
}

std::string GroupsOf(const KernelRow& row) {
  return row.most_heads_per_kv_head == 0 ? "any" : fmt::format("1..{}", row.most_heads_per_kv_head);
}

std::string FeatureList(FeatureSet set) {
  std::vector<std::string> names;
  for (const FeatureRow& f : kFeatures) {
    if (Has(set, f.feature)) names.emplace_back(f.name);
  }
  return names.empty() ? "none" : Join(names, ",");
}

}  // namespace

std::string_view NameOf(AttentionPhase phase) {
  return phase == AttentionPhase::kPrefill ? "prefill" : "decode";
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

std::string Refusal::Text() const {
  return fmt::format("refused: {}: {} = {}, supports {}; set by {}; fix: {}", who, attribute, value,
                     supports, set_by, fix);
}

std::vector<Refusal> RefusalsOf(const KernelRow& row, const AttentionSpec& spec,
                                const MachineProfile& machine) {
  std::vector<Refusal> refusals;
  if (machine.isa < row.isa) {
    refusals.push_back({.who = {},
                        .attribute = "isa",
                        .value = std::string(NameOf(machine.isa)),
                        .supports = std::string(NameOf(row.isa)) + " and newer"});
  }
  if (spec.kind != AttentionKind::kEncoder) {
    CheckKvDType(row, spec, refusals);
    CheckValue("page_tokens", row.page_tokens, spec.page_tokens, refusals);
    if (spec.kv_layout && !spec.mla)
      CheckValue("kv_layout", row.layouts, *spec.kv_layout, refusals);
  }
  CheckValue("head_dim", row.head_dims, spec.head_dim, refusals);
  CheckValue("compute", row.computes, spec.compute, refusals);
  const int64_t group = spec.heads / spec.kv_heads;
  if (row.most_heads_per_kv_head > 0 && group > row.most_heads_per_kv_head) {
    refusals.push_back({.who = {},
                        .attribute = "heads per kv_head",
                        .value = TextOf(group),
                        .supports = GroupsOf(row)});
  }
  const FeatureSet missing = RequiredFeatures(spec) & ~row.features;
  for (const FeatureRow& f : kFeatures) {
    if (!Has(missing, f.feature)) continue;
    refusals.push_back(
        {.who = {}, .attribute = std::string(f.name), .value = f.value(spec), .supports = "none"});
  }
  for (Refusal& refusal : refusals) refusal.who = fmt::format("{}/{}", row.backend, row.kernel);
  return refusals;
}

bool BackendTable::Add(std::shared_ptr<const AttentionBackend> backend,
                       std::span<const KernelRow> its_rows) {
  const std::string_view name = backend->name();
  std::erase_if(rows, [&](const KernelRow& row) { return EqualsIgnoreCase(row.backend, name); });
  const size_t displaced =
      std::erase_if(backends, [&](const auto& b) { return EqualsIgnoreCase(b->name(), name); }) +
      std::erase_if(aliases,
                    [&](const Alias& alias) { return EqualsIgnoreCase(alias.name, name); });
  rows.insert(rows.end(), its_rows.begin(), its_rows.end());
  backends.push_back(std::move(backend));
  return displaced > 0;
}

const AttentionBackend* BackendTable::Find(std::string_view name) const {
  for (const Alias& alias : aliases) {
    if (EqualsIgnoreCase(alias.name, name)) name = alias.backend;
  }
  for (const auto& backend : backends) {
    if (EqualsIgnoreCase(backend->name(), name)) return backend.get();
  }
  return nullptr;
}

std::string CapabilityMatrix(const BackendTable& table) {
  std::vector<std::array<std::string, 12>> lines = {
      {"backend", "kernel", "phase", "isa", "kv_dtype", "latent dtype", "page_tokens", "kv_layout",
       "head_dim", "compute", "heads per kv_head", "features"}};
  for (const KernelRow& row : table.rows) {
    lines.push_back({std::string(row.backend), std::string(row.kernel),
                     std::string(NameOf(row.phase)), std::string(NameOf(row.isa)),
                     ListOf(row.kv_dtypes), ListOf(row.latent_dtypes), ListOf(row.page_tokens),
                     ListOf(row.layouts), ListOf(row.head_dims), ListOf(row.computes),
                     GroupsOf(row), FeatureList(row.features)});
  }
  std::array<size_t, 12> widths{};
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : lines) {
    for (size_t i = 0; i + 1 < line.size(); ++i)
      text += fmt::format("{:<{}}  ", line[i], widths[i]);
    text += line.back() + "\n";
  }
  return text;
}

}  // namespace tenon
