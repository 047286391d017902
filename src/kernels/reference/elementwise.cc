#include <cmath>

#include "tenon/kernels/reference/reference.h"

namespace tenon::reference {
namespace {

float Apply(ActivationCode code, float x) {
  switch (code) {
    case ActivationCode::kNone:
      return x;
    case ActivationCode::kSilu:
      return x / (1.0f + std::exp(-x));
    case ActivationCode::kGelu:
      return 0.5f * x * (1.0f + std::erf(x * 0.70710678118654752f));
    case ActivationCode::kGeluTanh:
      return 0.5f * x * (1.0f + std::tanh(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    case ActivationCode::kQuickGelu:
      return x / (1.0f + std::exp(-1.702f * x));
    case ActivationCode::kRelu:
      return x > 0 ? x : 0.0f;
    case ActivationCode::kRelu2:
      return x > 0 ? x * x : 0.0f;
    case ActivationCode::kSigmoid:
      return 1.0f / (1.0f + std::exp(-x));
    case ActivationCode::kTanh:
      return std::tanh(x);
  }
  return x;
}

// Weight, offset and bias of element i.
float Affine(const NormKernelArgs& a, float normed, int64_t i) {
  const float scaled = a.weight == nullptr ? normed : normed * (a.weight[i] + a.weight_offset);
  return a.bias == nullptr ? scaled : scaled + a.bias[i];
}

}  // namespace

void RmsNorm(const NormKernelArgs& a, const float* x, float* y) {
  double sum = 0;
  for (int64_t i = 0; i < a.width; ++i)
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
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

void Activate(ActivationCode code, const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = Apply(code, x[i]);
}

void GatedActivate(ActivationCode code, const float* gate, const float* up, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = Apply(code, gate[i]) * up[i];
}

void RopeAngles(int32_t position, const float* inv_freq, float factor, int64_t half,
                float* cos_sin) {
  for (int64_t i = 0; i < half; ++i) {
    // The product is rounded to fp32 first, as Hugging Face computes it.
    const double angle = static_cast<double>(static_cast<float>(position) * inv_freq[i]);
    cos_sin[i] = static_cast<float>(std::cos(angle)) * factor;
    cos_sin[half + i] = static_cast<float>(std::sin(angle)) * factor;
  }
}

void RopeHalf(float* x, const float* cos_sin, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[i];
    const float b = x[half + i];
    x[i] = a * cos_sin[i] - b * cos_sin[half + i];
    x[half + i] = b * cos_sin[i] + a * cos_sin[half + i];
  }
}

void RopeInterleaved(float* x, const float* cos_sin, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    x[2 * i] = a * cos_sin[i] - b * cos_sin[half + i];
    x[2 * i + 1] = b * cos_sin[i] + a * cos_sin[half + i];
  }
}

void SelectiveScan(const ScanKernelArgs& a, int64_t rows) {
  for (int64_t t = 0; t < rows; ++t) {
    const float raw = a.dt[t * a.dt_stride] + a.dt_bias;
    // softplus; beyond 20 it equals its argument in fp32.
    float dt = raw > 20.0f ? raw : std::log1p(std::exp(raw));
    dt = dt < a.dt_min ? a.dt_min : (dt > a.dt_max ? a.dt_max : dt);
    const float keep = std::exp(a.decay * dt);
    const float* x = a.x + t * a.x_stride;
    const float* b = a.b + t * a.b_stride;
    const float* c = a.c + t * a.c_stride;
    for (int64_t i = 0; i < a.head_dim; ++i) {
      float* state = a.state + i * a.state_size;
      const float input = dt * x[i];
      double y = 0;
      for (int64_t s = 0; s < a.state_size; ++s) {
        state[s] = keep * state[s] + input * b[s];
        y += static_cast<double>(state[s]) * static_cast<double>(c[s]);
      }
      a.y[t * a.y_stride + i] = static_cast<float>(y) + a.d * x[i];
    }
  }
}

}  // namespace tenon::reference
