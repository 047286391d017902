#include <cmath>

#include "tenon/kernels/reference/reference.h"

namespace tenon::reference {
namespace {

void CopyRest(int64_t rotated, const float* x, float* y, int64_t width) {
  if (y == x) return;
  for (int64_t i = rotated; i < width; ++i) y[i] = x[i];
}

}  // namespace

void RopeAngles(int32_t position, const float* inv_freq, float factor, int64_t half,
                float* cos_sin) {
  for (int64_t i = 0; i < half; ++i) {
    const float angle = static_cast<float>(position) * inv_freq[i];
    cos_sin[i] = static_cast<float>(std::cos(static_cast<double>(angle))) * factor;
    cos_sin[half + i] = static_cast<float>(std::sin(static_cast<double>(angle))) * factor;
  }
}

void RotateHalf(const float* cos_sin, int64_t half, const float* x, float* y, int64_t width) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[i];
    const float b = x[half + i];
    y[i] = a * cos_sin[i] - b * cos_sin[half + i];
    y[half + i] = b * cos_sin[i] + a * cos_sin[half + i];
  }
  CopyRest(2 * half, x, y, width);
}

void RotateInterleaved(const float* cos_sin, int64_t half, const float* x, float* y,
                       int64_t width) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    y[2 * i] = a * cos_sin[i] - b * cos_sin[half + i];
    y[2 * i + 1] = b * cos_sin[i] + a * cos_sin[half + i];
  }
  CopyRest(2 * half, x, y, width);
}

}  // namespace tenon::reference
