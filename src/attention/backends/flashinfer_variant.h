// Variants of FLASHINFER's kernel that are generated for one geometry and compiled on demand: what
// distinguishes them, their source, and the C interface of the compiled function. Compiling and
// loading is flashinfer_compiler.h's. Private to the backend. Values; thread-compatible.
#pragma once

#include <cstdint>
#include <string>

#include "tenon/attention/attention_spec.h"
#include "tenon/attention/backends/builtin.h"

namespace tenon::backends {

// The interface, once as declarations and once as text that goes into each source. Strides of q and
// state in floats, of k and v in bytes; k and v point at the kv head's part of page 0; all else as
// in AttendArgs and AttendState.
#define TN_VARIANT_INTERFACE                                         \
  struct TnVariantArgs {                                             \
    const int* pages;                                                \
    long long page_bytes;                                            \
    const char *k, *v;                                               \
    long long k_slot, v_slot;                                        \
    const float* q;                                                  \
    long long q_row, q_head;                                         \
    float* state;                                                    \
    long long state_row, state_head;                                 \
    long long rows, group, first_head, position, key_begin, key_end; \
    float scale, softcap;                                            \
    long long causal, window;                                        \
    const float* alibi;                                              \
    const unsigned char* mask;                                       \
    long long mask_row, mask_columns;                                \
  };

TN_VARIANT_INTERFACE
using TnVariantFunction = void(const TnVariantArgs* args, float* scratch);
inline constexpr const char* kVariantFunction = "tn_attend";
inline constexpr const char* kVariantAbi = "tenon-variant-1";

struct KernelVariant {
  DType kv_dtype = DType::kF32;  // f32 or bf16
  int64_t k_width = 0;
  int64_t v_width = 0;
  int32_t page_tokens = 16;
  bool window = false;
  bool softcap = false;
  bool alibi = false;
  bool custom_mask = false;
  VariantHooks hooks = {};

  // "bf16_128x128_page16_window_softcap", with "_hooks" where there are some.
  std::string Name() const;
  // Self-contained C++ with kVariantFunction as its only symbol, and nothing of ours or the
  // standard library's.
  std::string Source() const;
};

// Why the layer's kernel cannot be generated; empty when it can.
std::string WhyNoVariant(const AttentionSpec& spec);
// Of a layer for which there is one.
KernelVariant VariantOf(const AttentionSpec& spec, const VariantHooks& hooks);

}  // namespace tenon::backends
