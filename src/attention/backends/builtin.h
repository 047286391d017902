// The built-in backends' constructors; their rows are in builtin.cc. Private to the attention
// layer.
#pragma once

#include <memory>
#include <string>

#include "tenon/attention/backend.h"

namespace tenon::backends {

// A kernel of NATIVE that layers use when their row of the capability table says so.
inline constexpr const char* kBf16Prefill = "bf16_prefill";

std::shared_ptr<const AttentionBackend> MakeVanilla(const KernelTable& kernels);
std::shared_ptr<const AttentionBackend> MakeNative(const KernelTable& kernels);

// Expressions in C++ that a compiled variant calculates in place of its own; empty: as it is. In
// sight: `query` and `key` (positions), `head`.
struct VariantHooks {
  std::string query = {};   // of `x`, element `dim` of a query
  std::string key = {};     // of `x`, element `dim` of a key; `head` is the group's first
  std::string logits = {};  // of `score`, after scale, softcap and alibi
  std::string mask = {};    // is the key seen, beside everything else?
  bool empty() const { return query.empty() && key.empty() && logits.empty() && mask.empty(); }
};

struct FlashInferOptions {
  bool cascade = true;  // prefixes that sequences share are attended once
  AttentionJit jit = AttentionJit::kOff;
  VariantHooks hooks = {};  // of all layers; then a layer without a variant is an error
};
std::shared_ptr<const AttentionBackend> MakeFlashInfer(const KernelTable& kernels,
                                                       const FlashInferOptions& options = {});

}  // namespace tenon::backends
