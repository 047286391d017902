// Loops over n numbers, sixteen at a time, the rest masked. For the sources of this folder only.
// Thread-safe.
#pragma once

#include "tenon/kernels/cpu/simd.h"

namespace tenon::TN_ISA {
namespace {

// y[i] = f(x[i]); in place allowed.
template <typename F>
TN_INLINE void Map(const float* x, float* y, int64_t n, F f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(y + i, f(Load(x + i)));
  if (i < n) StoreFirst(y + i, f(LoadFirst(x + i, n - i)), n - i);
}
template <typename F>
TN_INLINE void Map2(const float* a, const float* b, float* y, int64_t n, F f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(y + i, f(Load(a + i), Load(b + i)));
  if (i < n) StoreFirst(y + i, f(LoadFirst(a + i, n - i), LoadFirst(b + i, n - i)), n - i);
}

TN_INLINE F32 Sigmoid(F32 x) { return 1.0f / (1.0f + Exp(-x)); }
TN_INLINE F32 Silu(F32 x) { return x / (1.0f + Exp(-x)); }
// 1 - 2 / (e^2x + 1): absolute error of about one ulp of 1, which is what a GELU needs.
TN_INLINE F32 Tanh(F32 x) { return 1.0f - 2.0f / (Exp(x + x) + 1.0f); }
TN_INLINE F32 GeluTanh(F32 x) {
  return 0.5f * x * (1.0f + Tanh(0.79788456080286536f * Fma(0.044715f * x * x, x, x)));
}

TN_INLINE void GatedSilu(const float* gate, const float* up, float* y, int64_t n) {
  Map2(gate, up, y, n, [](F32 g, F32 u) { return Silu(g) * u; });
}

}  // namespace
}  // namespace tenon::TN_ISA
