// Where the product of a block of packed tokens with a panel of 64 rows goes. For the sources of
// this folder only. Thread-safe.
#pragma once

#include "tenon/kernels/cpu/simd.h"

namespace tenon::TN_ISA {
namespace {

struct ProductOut {
  float* y = nullptr;  // [tokens, rows]
  int64_t stride = 0;
  int64_t tokens = 0;
  int64_t rows = 0;             // of the panel that exist
  const float* bias = nullptr;  // of the panel's first row, or null
  bool adds = false;            // to what is there, instead of the bias
};

}  // namespace
}  // namespace tenon::TN_ISA
