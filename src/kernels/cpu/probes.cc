// What a core can do at most: reading memory, multiplying registers. Yardsticks for bench, not used
// by models.
#include "tenon/kernels/cpu/cpu.h"
#include "tenon/kernels/cpu/simd.h"

namespace tenon::TN_ISA {
namespace {

float Read(const std::byte* data, int64_t bytes) {
  constexpr int kStreams = 8;
  I32 sums[kStreams] = {};
  int64_t i = 0;
  for (; i + kStreams * 64 <= bytes; i += kStreams * 64) {
    for (int s = 0; s < kStreams; ++s) sums[s] += LoadAs<I32>(data + i + s * 64);
  }
  for (int s = 1; s < kStreams; ++s) sums[0] += sums[s];
  return Sum(__builtin_convertvector(sums[0], F32));
}

#if defined(__AVX512BF16__)
constexpr double kPerStep = 12 * 64;  // 12 chains of 32 multiply-adds
float Multiply(int64_t steps) {
  __m512 sums[12] = {};
  const auto one = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3F803F80));
  for (int64_t i = 0; i < steps; ++i) {
    for (auto& sum : sums) {
      sum = _mm512_dpbf16_ps(sum, one, one);
      asm("" : "+v"(sum));  // or the compiler would add up before multiplying
    }
  }
  for (int s = 1; s < 12; ++s) sums[0] += sums[s];
  return _mm512_reduce_add_ps(sums[0]);
}
#else
constexpr double kPerStep = 10 * 2 * kLanes;
float Multiply(int64_t steps) {
  F32 sums[10] = {};
  F32 factor = All(1e-3f);
  for (int64_t i = 0; i < steps; ++i) {
    asm("" : "+m"(factor));
    for (F32& sum : sums) sum = Fma(factor, factor, sum);
  }
  for (int s = 1; s < 10; ++s) sums[0] += sums[s];
  return Sum(sums[0]);
}
#endif

}  // namespace

void AddProbes(ProbeKernels& probes) {
  probes.read = {Read, TN_KERNEL_NAME("read")};
  probes.multiply = {Multiply, TN_KERNEL_NAME("multiply")};
  probes.operations_per_step = kPerStep;
}

}  // namespace tenon::TN_ISA
