#include "tenon/kernels/cpu/elementwise.h"

#include "tenon/kernels/cpu/cpu.h"
#include "tenon/kernels/reference/reference.h"

namespace tenon::TN_ISA {
namespace {

// Calls `use` with the activation as a function of sixteen lanes; false: it has no such form here
// and stays with the reference.
template <typename Use>
TN_INLINE bool WithLanes(Activation activation, Use use) {
  switch (activation) {
    case Activation::kSilu:
      use([](F32 x) { return Silu(x); });
      return true;
    case Activation::kGeluTanh:
      use([](F32 x) { return GeluTanh(x); });
      return true;
    case Activation::kQuickGelu:
      use([](F32 x) { return x / (1.0f + Exp(-1.702f * x)); });
      return true;
    case Activation::kSigmoid:
      use([](F32 x) { return Sigmoid(x); });
      return true;
    case Activation::kRelu:
      use([](F32 x) { return x < F32{} ? F32{} : x; });
      return true;
    default:
      return false;
  }
}

void Activate(Activation activation, const float* x, float* y, int64_t n) {
  if (!WithLanes(activation, [&](auto f) { Map(x, y, n, f); })) {
    reference::Activate(activation, x, y, n);
  }
}

void GatedActivate(Activation activation, const float* gate, const float* up, float* y, int64_t n) {
  const auto gated = [&](auto f) { Map2(gate, up, y, n, [f](F32 g, F32 u) { return f(g) * u; }); };
  if (!WithLanes(activation, gated)) reference::GatedActivate(activation, gate, up, y, n);
}

void ClampedSwigluUnit(const ClampedSwiglu& unit, const float* gate, const float* up, float* y,
                       int64_t n) {
  const F32 limit = All(unit.limit);
  const float alpha = unit.alpha;
  Map2(gate, up, y, n, [=](F32 g, F32 u) {
    g = g > limit ? limit : g;  // NaN stays
    u = u < -limit ? -limit : u;
    u = u > limit ? limit : u;
    return (u + 1.0f) * (g / (1.0f + Exp(-alpha * g)));
  });
}

void Multiply(const float* a, const float* b, float* y, int64_t n) {
  Map2(a, b, y, n, [](F32 u, F32 v) { return u * v; });
}

void Add(const float* x, const float* const* addends, int32_t count, float* y, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    F32 sum = Load(x + i);
    for (int32_t k = 0; k < count; ++k) sum += Load(addends[k] + i);
    Store(y + i, sum);
  }
  if (i == n) return;
  F32 sum = LoadFirst(x + i, n - i);
  for (int32_t k = 0; k < count; ++k) sum += LoadFirst(addends[k] + i, n - i);
  StoreFirst(y + i, sum, n - i);
}

void AddScaled(float factor, const float* x, float* y, int64_t n) {
  Map2(x, y, y, n, [factor](F32 v, F32 sum) { return Fma(v, All(factor), sum); });
}

void Scale(float factor, const float* x, float* y, int64_t n) {
  Map(x, y, n, [factor](F32 v) { return v * factor; });
}

void Softmax(const float* x, float* y, int64_t n) {
  if (n == 0) return;
  const float lowest = -__builtin_inff();
  F32 top = All(lowest);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) top = Max(Load(x + i), top);
  float highest = Highest(top);
  for (; i < n; ++i) highest = x[i] > highest ? x[i] : highest;
  Map(x, y, n, [highest](F32 v) { return Exp(v - highest); });
  F32 sum = {};
  for (i = 0; i + kLanes <= n; i += kLanes) sum += Load(y + i);
  if (i < n) sum += LoadFirst(y + i, n - i);
  const float total = Sum(sum);
  Map(y, y, n, [total](F32 v) { return v / total; });
}

}  // namespace

void AddElementwise(ElementwiseKernels& elementwise) {
  elementwise.activate = {Activate, TN_KERNEL_NAME("activate")};
  elementwise.gated_activate = {GatedActivate, TN_KERNEL_NAME("gated_activate")};
  elementwise.clamped_swiglu = {ClampedSwigluUnit, TN_KERNEL_NAME("clamped_swiglu")};
  elementwise.multiply = {Multiply, TN_KERNEL_NAME("multiply")};
  elementwise.add = {Add, TN_KERNEL_NAME("add")};
  elementwise.add_scaled = {AddScaled, TN_KERNEL_NAME("add_scaled")};
  elementwise.scale = {Scale, TN_KERNEL_NAME("scale")};
  elementwise.softmax = {Softmax, TN_KERNEL_NAME("softmax")};
}

}  // namespace tenon::TN_ISA
