// Sums of integers across the lanes of four vectors at once. Private to the folder; empty where the
// compiler is not told of AVX-512. Thread-safe.
#pragma once

#include "tenon/kernels/cpu/simd.h"

#if defined(__AVX512F__)

namespace tenon::avx512_bf16_vnni {
namespace {

// Element r of each 128-bit lane: the sum of that lane of v[r].
TN_INLINE __m512i QuadSums(const __m512i* v) {
  const auto pair = [](__m512i a, __m512i b) {
    const __m512 x = _mm512_castsi512_ps(a);
    const __m512 y = _mm512_castsi512_ps(b);
    return _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(x, y, 0x88)),
                            _mm512_castps_si512(_mm512_shuffle_ps(x, y, 0xDD)));
  };
  return pair(pair(v[0], v[1]), pair(v[2], v[3]));
}

}  // namespace
}  // namespace tenon::avx512_bf16_vnni

#endif
