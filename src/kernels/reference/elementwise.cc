#include <cmath>

#include "tenon/kernels/reference/reference.h"

namespace tenon::reference {
namespace {

float Apply(Activation activation, float x) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kSilu:
      return x / (1.0f + std::exp(-x));
    case Activation::kGelu:
      return 0.5f * x * (1.0f + std::erf(x * 0.70710678118654752f));
    case Activation::kGeluTanh:
      return 0.5f * x * (1.0f + std::tanh(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    case Activation::kQuickGelu:
      return x / (1.0f + std::exp(-1.702f * x));
    case Activation::kRelu:
      return x < 0 ? 0.0f : x;  // NaN stays
    case Activation::kRelu2:
      return x < 0 ? 0.0f : x * x;
    case Activation::kSigmoid:
      return 1.0f / (1.0f + std::exp(-x));
    case Activation::kTanh:
      return std::tanh(x);
  }
  return x;
}

}  // namespace

void Activate(Activation activation, const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = Apply(activation, x[i]);
}

void GatedActivate(Activation activation, const float* gate, const float* up, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = Apply(activation, gate[i]) * up[i];
}

void ClampedSwigluUnit(const ClampedSwiglu& unit, const float* gate, const float* up, float* y,
                       int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = gate[i] > unit.limit ? unit.limit : gate[i];  // NaN stays
    const float low = up[i] < -unit.limit ? -unit.limit : up[i];
    const float u = low > unit.limit ? unit.limit : low;
    y[i] = (u + 1.0f) * (g / (1.0f + std::exp(-unit.alpha * g)));
  }
}

void Multiply(const float* a, const float* b, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] * b[i];
}

void Add(const float* x, const float* const* addends, int32_t count, float* y, int64_t n) {
  if (y != x) {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i];
  }
  for (int32_t k = 0; k < count; ++k) {
    const float* addend = addends[k];
    for (int64_t i = 0; i < n; ++i) y[i] += addend[i];
  }
}

void AddScaled(float factor, const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

void Scale(float factor, const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factor;
}

void SoftCap(float cap, const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = cap * std::tanh(x[i] / cap);
}

void Softmax(const float* x, float* y, int64_t n) {
  if (n == 0) return;
  float top = x[0];
  for (int64_t i = 1; i < n; ++i) top = x[i] > top ? x[i] : top;
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    y[i] = std::exp(x[i] - top);
    sum += static_cast<double>(y[i]);
  }
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(static_cast<double>(y[i]) / sum);
}

}  // namespace tenon::reference
