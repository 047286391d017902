// What kernels declare and what a layer requires: one table drives selection, refusals, the printed
// matrix and the boundary tests. Deny by default: a feature that a row does not declare is refused,
// also one invented later. Constant; thread-safe.
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
};
using FeatureSet = uint32_t;
constexpr FeatureSet operator|(Feature a, Feature b) {
  return static_cast<FeatureSet>(a) | static_cast<FeatureSet>(b);
}
constexpr FeatureSet operator|(FeatureSet a, Feature b) { return a | static_cast<FeatureSet>(b); }
constexpr bool Has(FeatureSet set, Feature f) { return (set & static_cast<FeatureSet>(f)) != 0; }

// How a feature shows in a spec; `example` makes a spec that asks for it (for the coverage test).
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

// A small set of values; empty means any.
template <typename T>
struct AnyOf {
  std::array<T, 8> values{};
  size_t count = 0;
  constexpr bool Accepts(T v) const {
    for (size_t i = 0; i < count; ++i) {
      if (values[i] == v) return true;
    }
    return count == 0;
  }
};
template <typename T, typename... Rest>
constexpr AnyOf<T> Of(T first, Rest... rest) {
  return {{first, static_cast<T>(rest)...}, 1 + sizeof...(rest)};
}

// One kernel: a conjunction. A backend accepts a layer when, for each phase it needs, one of its
// rows does.
struct KernelRow {
  std::string_view backend;
  std::string_view kernel;
  AttentionPhase phase;
  Isa isa = Isa::kReference;
  FeatureSet features = 0;
  AnyOf<DType> kv_dtypes = {};
  AnyOf<int64_t> head_dims = {};
  AnyOf<int64_t> page_tokens = {};
};

struct Refusal {
  std::string who;        // "NATIVE/generic_prefill"
  std::string attribute;  // "chunk"
  std::string value;      // "8192"
  std::string supports;   // "none"
};
// Empty: the row serves the spec.
std::vector<Refusal> RefusalsOf(const KernelRow& row, const AttentionSpec& spec,
                                const MachineProfile& machine);

// Rows in `auto` order and the backends they belong to. Plugins append.
struct BackendTable {
  std::vector<KernelRow> rows;
  std::vector<std::shared_ptr<const AttentionBackend>> backends;

  const AttentionBackend* Find(std::string_view name) const;
};
// VANILLA and NATIVE with the given kernels.
BackendTable BuiltinBackends(const KernelTable& kernels);

}  // namespace tenon
