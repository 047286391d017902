#include <cmath>

#include "tenon/kernels/reference/reference.h"

namespace tenon::reference {
namespace {

// Beyond 20 it equals its argument in fp32.
float Softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

// y = scale * x / sqrt(|x|^2 + eps)
void NormaliseLength(const float* x, float eps, float scale, float* y, int64_t n) {
  double sum = static_cast<double>(eps);
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const float factor = static_cast<float>(static_cast<double>(scale) / std::sqrt(sum));
  for (int64_t i = 0; i < n; ++i) y[i] = factor * x[i];
}

}  // namespace

void CausalConv(const ConvKernelArgs& a, int64_t begin, int64_t end) {
  const int64_t past = a.width - 1;
  if (a.fresh) {
    for (int64_t k = 0; k < past; ++k) {
      for (int64_t c = begin; c < end; ++c) a.state[k * a.channels + c] = 0;
    }
  }
  // Row j of the sequence, counted from x: what lies before x comes from the state.
  const auto row = [&](int64_t j) {
    return j >= 0 ? a.x + j * a.x_stride : a.state + (past + j) * a.channels;
  };
  for (int64_t t = 0; t < a.rows; ++t) {
    for (int64_t c = begin; c < end; ++c) {
      double sum = a.bias == nullptr ? 0.0 : static_cast<double>(a.bias[c]);
      for (int64_t k = 0; k < a.width; ++k) {
        sum += static_cast<double>(a.weight[c * a.width + k]) *
               static_cast<double>(row(t - past + k)[c]);
      }
      a.y[t * a.y_stride + c] = static_cast<float>(sum);
    }
  }
  // Oldest first: row k comes from row k + rows of the same array or from x, so nothing is
  // overwritten before it is read.
  for (int64_t k = 0; k < past; ++k) {
    const float* source = row(a.rows - past + k);
    for (int64_t c = begin; c < end; ++c) a.state[k * a.channels + c] = source[c];
  }
}

void SelectiveScan(const ScanKernelArgs& a) {
  if (a.fresh) {
    for (int64_t i = 0; i < a.head_dim * a.state_size; ++i) a.state[i] = 0;
  }
  for (int64_t t = 0; t < a.rows; ++t) {
    float dt = Softplus(a.dt[t * a.dt_stride] + a.dt_bias);
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

void GatedDelta(const DeltaKernelArgs& a, float* scratch) {
  float* q = scratch;                 // [key_dim]
  float* k = q + a.key_dim;           // [key_dim]
  float* correction = k + a.key_dim;  // [value_dim]
  if (a.fresh) {
    for (int64_t i = 0; i < a.key_dim * a.value_dim; ++i) a.state[i] = 0;
  }
  for (int64_t t = 0; t < a.rows; ++t) {
    NormaliseLength(a.q + t * a.q_stride, a.eps, a.query_scale, q, a.key_dim);
    NormaliseLength(a.k + t * a.k_stride, a.eps, 1.0f, k, a.key_dim);
    const float keep = std::exp(a.decay * Softplus(a.dt[t * a.dt_stride] + a.dt_bias));
    const float beta = 1.0f / (1.0f + std::exp(-a.b[t * a.b_stride]));
    const float* v = a.v + t * a.v_stride;
    float* y = a.y + t * a.y_stride;
    // What the decayed state has stored under k, then how much of v is missing there.
    for (int64_t j = 0; j < a.value_dim; ++j) correction[j] = 0;
    for (int64_t i = 0; i < a.key_dim; ++i) {
      float* state = a.state + i * a.value_dim;
      for (int64_t j = 0; j < a.value_dim; ++j) {
        state[j] *= keep;
        correction[j] += k[i] * state[j];
      }
    }
    for (int64_t j = 0; j < a.value_dim; ++j) {
      correction[j] = beta * (v[j] - correction[j]);
      y[j] = 0;
    }
    for (int64_t i = 0; i < a.key_dim; ++i) {
      float* state = a.state + i * a.value_dim;
      for (int64_t j = 0; j < a.value_dim; ++j) {
        state[j] += k[i] * correction[j];
        y[j] += q[i] * state[j];
      }
    }
  }
}

}  // namespace tenon::reference
