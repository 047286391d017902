// ScaleGrid: the scales of a weight that is stored as codes (fp8, int8) with one fp32 number for a
// rectangle of them. Not block formats, which hold their scales inside the row (blocks/). A value;
// thread-compatible.
#pragma once

#include <cstdint>

namespace tenon {

// weight[r, c] = code[r, c] * data[r / rows * stride + c / cols].
// Per tensor: rows and cols of the whole matrix; per channel: 1 and all cols; DeepSeek's blocks:
// 128 and 128, the last ones partial.
struct ScaleGrid {
  const float* data = nullptr;  // [ceil(matrix rows / rows), stride]; null on meta
  int64_t rows = 0;             // 0: the weight has no scales
  int64_t cols = 0;
  int64_t stride = 0;  // floats from one row of scales to the next

  bool present() const { return rows > 0; }
};

}  // namespace tenon
