// Matmuls with narrow activations: packs an input once per form and records the products that read
// it. Private to ops/matmul.cc. Family code's thread only.
#pragma once

#include <optional>
#include <span>

#include "tenon/ops/matmul.h"

namespace tenon {

enum class ActivationForm : uint8_t;  // kernels/matmul_kernels.h

class NarrowMatmul {
 public:
  // x [num_tokens, cols] fp32.
  NarrowMatmul(Tape& tape, const Value& x) : tape_(tape), x_(x) {}

  // Records y = x times the segments (of one dtype, form and compute). False: they are to be
  // computed in fp32, or the table has no narrow kernel for them.
  bool Record(std::span<const MatrixRef> segments, const Value& y);

 private:
  Value Packed(ActivationForm form);
  Value Blocks();

  Tape& tape_;
  Value x_;
  std::optional<Value> packed_[4];  // by ActivationForm
  std::optional<Value> blocks_;
};

}  // namespace tenon
