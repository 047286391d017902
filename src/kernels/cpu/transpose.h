// A 16 x 16 transpose of fp32 lanes. For the sources of this folder only. Thread-safe.
#pragma once

#include "tenon/kernels/cpu/simd.h"

namespace tenon::TN_ISA {
namespace {

// rows[i][j] -> rows[j][i]. Pairs, then quads, then halves of the four 128-bit parts.
TN_INLINE void Transpose(F32* rows) {
  F32 t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = __builtin_shufflevector(rows[i], rows[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25,
                                   12, 28, 13, 29);
    t[i + 1] = __builtin_shufflevector(rows[i], rows[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11,
                                       27, 14, 30, 15, 31);
  }
  for (int i = 0; i < 16; i += 4) {
    for (int k = 0; k < 2; ++k) {
      rows[i + 2 * k] = __builtin_shufflevector(t[i + k], t[i + k + 2], 0, 1, 16, 17, 4, 5, 20, 21,
                                                8, 9, 24, 25, 12, 13, 28, 29);
      rows[i + 2 * k + 1] = __builtin_shufflevector(t[i + k], t[i + k + 2], 2, 3, 18, 19, 6, 7, 22,
                                                    23, 10, 11, 26, 27, 14, 15, 30, 31);
    }
  }
  for (int i = 0; i < 16; i += 8) {
    for (int k = 0; k < 4; ++k) {
      t[i + k] = __builtin_shufflevector(rows[i + k], rows[i + k + 4], 0, 1, 2, 3, 8, 9, 10, 11, 16,
                                         17, 18, 19, 24, 25, 26, 27);
      t[i + k + 4] = __builtin_shufflevector(rows[i + k], rows[i + k + 4], 4, 5, 6, 7, 12, 13, 14,
                                             15, 20, 21, 22, 23, 28, 29, 30, 31);
    }
  }
  // t[k] now holds columns k and k + 8 of rows 0 to 7 in parts 0, 2 and 1, 3; t[k + 8] of rows 8 to
  // 15.
  for (int k = 0; k < 8; ++k) {
    rows[k] = __builtin_shufflevector(t[k], t[k + 8], 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24,
                                      25, 26, 27);
    rows[k + 8] = __builtin_shufflevector(t[k], t[k + 8], 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22,
                                          23, 28, 29, 30, 31);
  }
}

}  // namespace
}  // namespace tenon::TN_ISA
