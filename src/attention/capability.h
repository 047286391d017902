// What kernels declare and what a layer requires: one table drives selection, refusals, the printed
// matrix and the coverage test. Deny by default: what a row does not declare is refused, also a
// feature invented later. Constant; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/attention/attention_spec.h"
#include "tenon/attention/backend.h"
#include "tenon/base/machine_profile.h"

namespace tenon {

enum class AttentionPhase { kPrefill, kDecode };
std::string_view NameOf(AttentionPhase phase);

enum class Feature : uint32_t {
  kWindow = 1u << 0,
  kChunk = 1u << 1,
  kSoftcap = 1u << 2,
  kSinks = 1u << 3,
  kAlibi = 1u << 4,
  kRelativeBias = 1u << 5,
  kMla = 1u << 6,
  kUnequalHeadDims = 1u << 7,
  kEncoder = 1u << 8,
  kCross = 1u << 9,
  kMixedKv = 1u << 10,
  kCustomMask = 1u << 11,
  kDeterministic = 1u << 12,
};
using FeatureSet = uint32_t;
constexpr FeatureSet operator|(Feature a, Feature b) {
  return static_cast<FeatureSet>(a) | static_cast<FeatureSet>(b);
}
constexpr FeatureSet operator|(FeatureSet a, Feature b) { return a | static_cast<FeatureSet>(b); }
constexpr bool Has(FeatureSet set, Feature f) { return (set & static_cast<FeatureSet>(f)) != 0; }

// How a feature shows in a spec; `example` makes a spec that asks for it (for the coverage test;
// its tables are null).
struct FeatureRow {
  Feature feature;
  std::string_view name;
  bool (*required)(const AttentionSpec&);
  std::string (*value)(const AttentionSpec&);
  AttentionSpec (*example)(AttentionSpec);
};
std::span<const FeatureRow> Features();
FeatureSet RequiredFeatures(const AttentionSpec& spec);
// Encoders have no decode phase.
bool NeedsPhase(const AttentionSpec& spec, AttentionPhase phase);

// The values of one attribute that a kernel supports: none unless it says so.
template <typename T>
struct ValueSet {
  std::array<T, 8> values{};
  size_t count = 0;
  bool any = false;  // the attribute does not matter to the kernel
  constexpr bool Accepts(T v) const {
    for (size_t i = 0; i < count; ++i) {
      if (values[i] == v) return true;
    }
    return any;
  }
};
template <typename T, typename... Rest>
constexpr ValueSet<T> Of(T first, Rest... rest) {
  return {{first, static_cast<T>(rest)...}, 1 + sizeof...(rest), false};
}
template <typename T>
constexpr ValueSet<T> Any() {
  return {{}, 0, true};
}

// One kernel: a conjunction. A backend accepts a layer when, for each phase it needs, one of its
// rows does. The names live as long as the table (a plugin's: as long as the plugin).
struct KernelRow {
  std::string_view backend;
  std::string_view kernel;
  AttentionPhase phase = AttentionPhase::kPrefill;
  Isa isa = Isa::kReference;  // and newer
  FeatureSet features = 0;
  // Of cached rows (KvDTypes), where rows of the layer's widths exist in them; no matter to
  // encoders, which cache nothing. With MLA: of latents.
  ValueSet<DType> kv_dtypes = {};
  ValueSet<DType> latent_dtypes = {};
  ValueSet<int32_t> page_tokens = {};
  ValueSet<KvLayout> layouts = {};  // without MLA, whose rows have one layout
  ValueSet<int64_t> head_dims = {};
  ValueSet<Compute> computes = {};
  int64_t most_heads_per_kv_head = 0;  // 0: any number
};

// Why a row does not serve a spec. `set_by` and `fix` are filled in by the selector.
struct Refusal {
  std::string who;        // "NATIVE/generic_prefill"
  std::string attribute;  // "chunk"
  std::string value;      // "8192"
  std::string supports;   // "none"
  std::string set_by = {};
  std::string fix = {};

  // "refused: <who>: <attribute> = <value>, supports <set>; set by <origin>; fix: <action>"
  std::string Text() const;
};
// Empty: the row serves the spec, which has no SpecProblem.
std::vector<Refusal> RefusalsOf(const KernelRow& row, const AttentionSpec& spec,
                                const MachineProfile& machine);

// Rows and the backends they belong to, both in `auto` order. Complete before anything is selected:
// choices keep addresses of rows.
struct BackendTable {
  struct Alias {
    std::string_view name;
    std::string_view backend;
  };
  std::vector<KernelRow> rows;
  std::vector<std::shared_ptr<const AttentionBackend>> backends;
  std::vector<Alias> aliases;

  // At the end, in place of a backend or alias of the same name. Was there one?
  bool Add(std::shared_ptr<const AttentionBackend> backend, std::span<const KernelRow> its_rows);
  // Any case, aliases too; null: unknown.
  const AttentionBackend* Find(std::string_view name) const;
};
// NATIVE, FLASHINFER and VANILLA with the given kernels.
BackendTable BuiltinBackends(const KernelTable& kernels);

// The table for people: one line per kernel, one column per attribute.
std::string CapabilityMatrix(const BackendTable& table);

}  // namespace tenon
