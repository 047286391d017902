#include "tenon/kernels/reference/reference.h"

namespace tenon::reference {
namespace {

float Read(const std::byte* data, int64_t bytes) {
  uint32_t sum = 0;
  for (int64_t i = 0; i < bytes; ++i) sum += static_cast<uint32_t>(data[i]);
  return static_cast<float>(sum);
}

float Multiply(int64_t steps) {
  constexpr int kChains = 16;
  float sums[kChains] = {};
  for (int64_t i = 0; i < steps; ++i) {
    for (float& sum : sums) sum = sum * 0.5f + 1.0f;
  }
  for (int s = 1; s < kChains; ++s) sums[0] += sums[s];
  return sums[0];
}

}  // namespace

void AddProbes(ProbeKernels& probes) {
  probes.read = {Read, "reference/read"};
  probes.multiply = {Multiply, "reference/multiply"};
  probes.operations_per_step = 2.0 * 16;
}

}  // namespace tenon::reference
