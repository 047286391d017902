// GGUF Q8_0: 32 signed bytes and one fp16 scale: w = d * q. Layout and decoding only, no STL;
// thread-safe. Source: ggml's block_q8_0; checked by goldens_quant/q8_0.
#pragma once

#include <cstdint>

#include "tenon/numeric/codecs.h"

namespace tenon {

struct BlockQ8_0 {
  static constexpr int32_t kElements = 32;
  uint16_t d;  // fp16
  int8_t qs[32];

  void Decode(float* out) const {  // out: [32]
    const float scale = F16ToFloat(d);
    for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(qs[i]);
  }
};
static_assert(sizeof(BlockQ8_0) == 34);

}  // namespace tenon
