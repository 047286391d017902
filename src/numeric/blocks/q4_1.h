// GGUF Q4_1: 32 values, fp16 scale and minimum: w = d * q + m with a real-valued m (m / d is no
// integer zero point). Nibbles as in Q4_0. Layout and decoding only, no STL; thread-safe. Source:
// ggml's block_q4_1.
#pragma once

#include <cstdint>

#include "tenon/numeric/codecs.h"

namespace tenon {

struct BlockQ4_1 {
  static constexpr int32_t kElements = 32;
  uint16_t d;  // fp16
  uint16_t m;  // fp16
  uint8_t qs[16];

  void Decode(float* out) const {  // out: [32]
    const float scale = F16ToFloat(d);
    const float minimum = F16ToFloat(m);
    for (int i = 0; i < 16; ++i) {
      out[i] = scale * static_cast<float>(qs[i] & 0xF) + minimum;
      out[i + 16] = scale * static_cast<float>(qs[i] >> 4) + minimum;
    }
  }
};
static_assert(sizeof(BlockQ4_1) == 20);

}  // namespace tenon
