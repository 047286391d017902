// GGUF Q4_0: 32 values, one fp16 scale: w = d * (q - 8). Low nibbles hold values 0-15, high nibbles
// 16-31. Layout and decoding only, no STL; thread-safe. Source: ggml's block_q4_0; checked by
// goldens_quant/q4_0.
#pragma once

#include <cstdint>

#include "tenon/numeric/codecs.h"

namespace tenon {

struct BlockQ4_0 {
  static constexpr int32_t kElements = 32;
  uint16_t d;  // fp16
  uint8_t qs[16];

  void Decode(float* out) const {  // out: [32]
    const float scale = F16ToFloat(d);
    for (int i = 0; i < 16; ++i) {
      out[i] = scale * static_cast<float>((qs[i] & 0xF) - 8);
      out[i + 16] = scale * static_cast<float>((qs[i] >> 4) - 8);
    }
  }
};
static_assert(sizeof(BlockQ4_0) == 18);

}  // namespace tenon
