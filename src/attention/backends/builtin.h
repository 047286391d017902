// The built-in backends' constructors; their rows are in builtin.cc. Private to the attention
// layer.
#pragma once

#include <memory>

#include "tenon/attention/backend.h"

namespace tenon::backends {

// A kernel of NATIVE that layers use when their row of the capability table says so.
inline constexpr const char* kBf16Prefill = "bf16_prefill";

std::shared_ptr<const AttentionBackend> MakeVanilla(const KernelTable& kernels);
std::shared_ptr<const AttentionBackend> MakeNative(const KernelTable& kernels);

struct FlashInferOptions {
  bool cascade = true;  // prefixes that sequences share are attended once
};
std::shared_ptr<const AttentionBackend> MakeFlashInfer(const KernelTable& kernels,
                                                       const FlashInferOptions& options = {});

}  // namespace tenon::backends
