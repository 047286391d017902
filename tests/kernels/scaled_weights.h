// Random weights stored as codes with a grid of scales beside them, and the numbers that they are.
// Deterministic for a seed. For the tests of kernels and ops; not for goldens.
#pragma once

#include <limits>
#include <vector>

#include "kernels/random_data.h"
#include "tenon/numeric/scale_grid.h"

namespace tenon::test {

constexpr DType kCodeDTypes[] = {DType::kF8E4M3, DType::kI8};

// Rows and columns of a scale; 0: all of them.
struct GridShape {
  int64_t rows = 0;
  int64_t cols = 0;
};
constexpr GridShape kPerTensor = {0, 0};
constexpr GridShape kPerChannel = {1, 0};
constexpr GridShape kBlocks = {128, 128};

inline float CodeToFloat(DType dtype, std::byte code) {
  return dtype == DType::kI8 ? static_cast<float>(static_cast<int8_t>(code))
                             : F8E4M3ToFloat(static_cast<uint8_t>(code));
}

struct ScaledWeights {
  Weights codes;              // not decoded
  std::vector<float> scales;  // [blocks of rows, stride]; the gap is NaN
  ScaleGrid grid;

  float ScaleOf(int64_t r, int64_t c) const {
    return grid.data[r / grid.rows * grid.stride + c / grid.cols];
  }
  float CodeOf(int64_t r, int64_t c) const {
    return CodeToFloat(codes.dtype, codes.data()[r * codes.row_bytes + c]);
  }
  double At(int64_t r, int64_t c) const { return D(CodeOf(r, c)) * D(ScaleOf(r, c)); }
};

// Rows are misaligned and apart. All codes but NaN.
inline ScaledWeights RandomScaled(DType dtype, int64_t rows, int64_t cols, const GridShape& shape,
                                  uint32_t seed) {
  std::mt19937 random(seed);
  constexpr size_t kShift = 1;
  ScaledWeights w;
  w.codes = {dtype, rows, cols, cols + 3, kShift, {}, {}};
  w.codes.bytes.resize(kShift + At(rows * w.codes.row_bytes) + 1);
  for (std::byte& code : w.codes.bytes) {
    do {
      code = static_cast<std::byte>(random() & 0xFF);
    } while (dtype == DType::kF8E4M3 && (code | std::byte{0x80}) == std::byte{0xFF});
  }
  w.grid.rows = shape.rows > 0 ? shape.rows : std::max<int64_t>(1, rows);
  w.grid.cols = shape.cols > 0 ? shape.cols : std::max<int64_t>(1, cols);
  w.grid.stride = (cols + w.grid.cols - 1) / w.grid.cols + 1;
  const int64_t blocks = (rows + w.grid.rows - 1) / w.grid.rows;
  w.scales = Floats(blocks * w.grid.stride, seed + 1, dtype == DType::kI8 ? 0.01f : 0.005f);
  for (int64_t b = 1; b <= blocks; ++b) {
    w.scales[At(b * w.grid.stride - 1)] = std::numeric_limits<float>::quiet_NaN();
  }
  w.grid.data = w.scales.data();
  return w;
}

}  // namespace tenon::test
