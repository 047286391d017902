#include "tenon/kernels/cpu/cpu.h"
#include "tenon/kernels/cpu/elementwise.h"

namespace tenon::TN_ISA {
namespace {

// The sum of f over x's lanes, sixteen partial sums.
template <typename F>
TN_INLINE float SumOf(const float* x, int64_t n, F f) {
  F32 sum = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) sum = f(Load(x + i), sum);
  float total = Sum(sum);
  // Lanes beyond the end would count in f.
  for (; i < n; ++i) total += f(F32{x[i]}, F32{})[0];
  return total;
}

// (x - mean) * scale, then weight, offset and bias.
TN_INLINE void Affine(const NormKernelArgs& a, float mean, float scale, const float* x, float* y) {
  const auto normed = [&](F32 v, F32 weight, F32 bias) {
    return Fma((v - mean) * scale, weight + a.weight_offset, bias);
  };
  const F32 one = All(1.0f - a.weight_offset);
  int64_t i = 0;
  for (; i + kLanes <= a.width; i += kLanes) {
    const F32 weight = a.weight == nullptr ? one : Load(a.weight + i);
    const F32 bias = a.bias == nullptr ? F32{} : Load(a.bias + i);
    Store(y + i, normed(Load(x + i), weight, bias));
  }
  if (i == a.width) return;
  const int64_t rest = a.width - i;
  const F32 weight = a.weight == nullptr ? one : LoadFirst(a.weight + i, rest);
  const F32 bias = a.bias == nullptr ? F32{} : LoadFirst(a.bias + i, rest);
  StoreFirst(y + i, normed(LoadFirst(x + i, rest), weight, bias), rest);
}

void RmsNorm(const NormKernelArgs& a, const float* x, float* y) {
  const float sum = SumOf(x, a.width, [](F32 v, F32 s) { return Fma(v, v, s); });
  const float scale = 1.0f / __builtin_sqrtf(sum / static_cast<float>(a.width) + a.eps);
  Affine(a, 0.0f, scale, x, y);
}

void LayerNorm(const NormKernelArgs& a, const float* x, float* y) {
  const auto width = static_cast<float>(a.width);
  const float mean = SumOf(x, a.width, [](F32 v, F32 s) { return v + s; }) / width;
  const float squares =
      SumOf(x, a.width, [mean](F32 v, F32 s) { return Fma(v - mean, v - mean, s); });
  Affine(a, mean, 1.0f / __builtin_sqrtf(squares / width + a.eps), x, y);
}

void GatedRmsNorm(const NormKernelArgs& a, int64_t group, const float* x, const float* gate,
                  float* y) {
  GatedSilu(gate, x, y, a.width);
  NormKernelArgs part = a;
  part.width = group;
  for (int64_t begin = 0; begin < a.width; begin += group) {
    if (a.weight != nullptr) part.weight = a.weight + begin;
    if (a.bias != nullptr) part.bias = a.bias + begin;
    RmsNorm(part, y + begin, y + begin);
  }
}

}  // namespace

void AddNorms(NormKernels& norm) {
  norm.rms = {RmsNorm, TN_KERNEL_NAME("rms_norm")};
  norm.layer = {LayerNorm, TN_KERNEL_NAME("layer_norm")};
  norm.gated_rms = {GatedRmsNorm, TN_KERNEL_NAME("gated_rms_norm")};
}

}  // namespace tenon::TN_ISA
