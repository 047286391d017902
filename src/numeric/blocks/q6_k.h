// GGUF Q6_K: 256 values of 6 bits in 16 groups with int8 scales and one fp16 scale: w = d * scale *
// (q - 32). Layout and decoding only, no STL; thread-safe. Source: ggml's block_q6_K; checked by
// goldens_quant/q6_k.
#pragma once

#include <cstdint>

#include "tenon/numeric/codecs.h"

namespace tenon {

struct BlockQ6K {
  static constexpr int32_t kElements = 256;
  uint8_t ql[128];    // low 4 bits
  uint8_t qh[64];     // high 2 bits
  int8_t scales[16];  // one per 16 values
  uint16_t d;         // fp16

  void Decode(float* out) const {  // out: [256]
    const float scale = F16ToFloat(d);
    for (int half = 0; half < 2; ++half) {
      const uint8_t* low = ql + 64 * half;
      const uint8_t* high = qh + 32 * half;
      const int8_t* group = scales + 8 * half;
      float* y = out + 128 * half;
      for (int i = 0; i < 32; ++i) {
        const int q[4] = {(low[i] & 0xF) | ((high[i] & 3) << 4),
                          (low[i + 32] & 0xF) | (((high[i] >> 2) & 3) << 4),
                          (low[i] >> 4) | (((high[i] >> 4) & 3) << 4),
                          (low[i + 32] >> 4) | (((high[i] >> 6) & 3) << 4)};
        for (int part = 0; part < 4; ++part) {
          y[32 * part + i] = scale * static_cast<float>(group[2 * part + i / 16]) *
                             static_cast<float>(q[part] - 32);
        }
      }
    }
  }
};
static_assert(sizeof(BlockQ6K) == 210);

}  // namespace tenon
