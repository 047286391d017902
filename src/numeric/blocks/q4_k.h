// GGUF Q4_K: 256 values of 4 bits in 8 groups of 32, each with a 6-bit scale and a 6-bit minimum,
// and two fp16 factors: w = d * scale * q - dmin * minimum. 32 bytes hold two groups: low nibbles
// the first, high nibbles the second. Layout and decoding only, no STL; thread-safe. Source: ggml's
// block_q4_K; checked by goldens_quant/q4_k.
#pragma once

#include <cstdint>

#include "tenon/numeric/codecs.h"

namespace tenon {

struct BlockQ4K {
  static constexpr int32_t kElements = 256;
  uint16_t d;          // fp16
  uint16_t dmin;       // fp16
  uint8_t scales[12];  // 6-bit scales and minima, packed
  uint8_t qs[128];

  struct GroupScale {
    uint8_t scale;
    uint8_t minimum;
  };
  // Groups 0-3 have their numbers in the low 6 bits of bytes 0-3 and 4-7; groups 4-7 their low 4
  // bits in bytes 8-11 and their high 2 bits on top of bytes 0-3 and 4-7.
  GroupScale ScaleOf(int group) const {
    if (group < 4) {
      return {static_cast<uint8_t>(scales[group] & 63),
              static_cast<uint8_t>(scales[group + 4] & 63)};
    }
    return {static_cast<uint8_t>((scales[group + 4] & 15) | (scales[group - 4] >> 6 << 4)),
            static_cast<uint8_t>((scales[group + 4] >> 4) | (scales[group] >> 6 << 4))};
  }

  void Decode(float* out) const {  // out: [256]
    for (int group = 0; group < 8; ++group) {
      const GroupScale s = ScaleOf(group);
      const float scale = F16ToFloat(d) * static_cast<float>(s.scale);
      const float minimum = F16ToFloat(dmin) * static_cast<float>(s.minimum);
      const uint8_t* q = qs + group / 2 * 32;
      for (int i = 0; i < 32; ++i) {
        const int value = group % 2 == 0 ? q[i] & 15 : q[i] >> 4;
        out[32 * group + i] = scale * static_cast<float>(value) - minimum;
      }
    }
  }
};
static_assert(sizeof(BlockQ4K) == 144);

}  // namespace tenon
