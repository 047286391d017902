#include "tenon/ops/probe.h"

#include <atomic>
#include <chrono>

#include "tenon/kernels/table.h"

namespace tenon {
namespace {

// Results go here, so that no compiler drops the work.
template <typename Work>
double SecondsOf(ThreadTeam& team, Work work) {
  std::atomic<float> sink{0};
  const auto begin = std::chrono::steady_clock::now();
  team.Run([&](int thread) { sink.store(work(thread), std::memory_order_relaxed); });
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

double SecondsToRead(const KernelTable& kernels, ThreadTeam& team, const std::byte* data,
                     int64_t bytes) {
  const int64_t part = bytes / team.threads();
  return SecondsOf(team,
                   [&](int thread) { return kernels.probes.read.run(data + thread * part, part); });
}

double OperationsPerSecond(const KernelTable& kernels, ThreadTeam& team) {
  constexpr int64_t kSteps = 300000;
  const double seconds = SecondsOf(team, [&](int) { return kernels.probes.multiply.run(kSteps); });
  return kernels.probes.operations_per_step * static_cast<double>(kSteps) * team.threads() /
         seconds;
}

}  // namespace tenon
