#include "tenon/kernels/cpu/cpu.h"
#include "tenon/kernels/cpu/simd.h"

namespace tenon::TN_ISA {
namespace {

void CopyRest(int64_t rotated, const float* x, float* y, int64_t width) {
  if (y == x) return;
  for (int64_t i = rotated; i < width; ++i) y[i] = x[i];
}

void RotateHalf(const float* cos_sin, int64_t half, const float* x, float* y, int64_t width) {
  int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const F32 a = Load(x + i);
    const F32 b = Load(x + half + i);
    const F32 c = Load(cos_sin + i);
    const F32 s = Load(cos_sin + half + i);
    Store(y + i, a * c - b * s);
    Store(y + half + i, b * c + a * s);
  }
  for (; i < half; ++i) {
    const float a = x[i];
    const float b = x[half + i];
    y[i] = a * cos_sin[i] - b * cos_sin[half + i];
    y[half + i] = b * cos_sin[i] + a * cos_sin[half + i];
  }
  CopyRest(2 * half, x, y, width);
}

}  // namespace

void AddRope(RopeKernels& rope) { rope.rotate_half = {RotateHalf, TN_KERNEL_NAME("rope_half")}; }

}  // namespace tenon::TN_ISA
