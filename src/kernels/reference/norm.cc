#include <cmath>

#include "tenon/kernels/reference/reference.h"

namespace tenon::reference {
namespace {

// Weight, offset and bias of element i.
float Affine(const NormKernelArgs& a, float normed, int64_t i) {
  const float scaled = a.weight == nullptr ? normed : normed * (a.weight[i] + a.weight_offset);
  return a.bias == nullptr ? scaled : scaled + a.bias[i];
}

}  // namespace

void RmsNorm(const NormKernelArgs& a, const float* x, float* y) {
  double sum = 0;
  for (int64_t i = 0; i < a.width; ++i) {
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  const double mean = sum / static_cast<double>(a.width);
  const float scale = static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(a.eps)));
  for (int64_t i = 0; i < a.width; ++i) y[i] = Affine(a, x[i] * scale, i);
}

void LayerNorm(const NormKernelArgs& a, const float* x, float* y) {
  double sum = 0;
  for (int64_t i = 0; i < a.width; ++i) sum += static_cast<double>(x[i]);
  const double mean = sum / static_cast<double>(a.width);
  double squares = 0;
  for (int64_t i = 0; i < a.width; ++i) {
    const double centred = static_cast<double>(x[i]) - mean;
    squares += centred * centred;
  }
  const double variance = squares / static_cast<double>(a.width);
  const double scale = 1.0 / std::sqrt(variance + static_cast<double>(a.eps));
  for (int64_t i = 0; i < a.width; ++i) {
    y[i] = Affine(a, static_cast<float>((static_cast<double>(x[i]) - mean) * scale), i);
  }
}

void GatedRmsNorm(const NormKernelArgs& a, int64_t group, const float* x, const float* gate,
                  float* y) {
  GatedActivate(Activation::kSilu, gate, x, y, a.width);
  NormKernelArgs part = a;
  part.width = group;
  for (int64_t begin = 0; begin < a.width; begin += group) {
    if (a.weight != nullptr) part.weight = a.weight + begin;
    if (a.bias != nullptr) part.bias = a.bias + begin;
    RmsNorm(part, y + begin, y + begin);
  }
}

}  // namespace tenon::reference
