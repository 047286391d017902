// The product of a block of packed tokens with a panel of 64 rows: how the panel lies, where the
// sums go. For the sources of this folder only. Thread-safe.
#pragma once

#include "tenon/kernels/cpu/simd.h"

namespace tenon::TN_ISA {
namespace {

// Where a panel keeps pair p of columns of rows 16 v ...: at p * pair + v * vector floats.
struct PanelLayout {
  int64_t pair = kPanelRows;
  int64_t vector = kLanes;
  int64_t vectors = kPanelRows / kLanes;
};

// Packed tokens and the panel that they are multiplied with.
struct ProductTerm {
  const std::byte* block = nullptr;
  const std::byte* panel = nullptr;
};

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
