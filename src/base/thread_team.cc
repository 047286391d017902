#include "tenon/base/thread_team.h"

#include "tenon/base/check.h"

namespace tenon {
namespace {

// Spins this often before yielding or sleeping: about 20-50 us, longer than the gap between two
// steps' runs, short enough to leave a shared machine to others.
constexpr int kSpins = 4000;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadTeam::ThreadTeam(int threads) : threads_(threads) {
  TN_CHECK(threads >= 1, "a team has at least one thread");
  for (int t = 1; t < threads; ++t) members_.emplace_back([this, t] { Loop(t); });
}

ThreadTeam::~ThreadTeam() {
  {
    const std::lock_guard lock(mutex_);
    stopping_.store(true);
    round_.fetch_add(1);
  }
  wake_.notify_all();
  for (std::thread& member : members_) member.join();
}

void ThreadTeam::Run(Work work, void* context) {
  if (threads_ == 1) {
    work(context, 0);
    return;
  }
  work_ = work;
  context_ = context;
  running_.store(threads_ - 1);
  round_.fetch_add(
      1);  // sequentially consistent: a member either sees it or is counted as sleeping
  if (sleeping_.load() > 0) {
    { const std::lock_guard lock(mutex_); }
    wake_.notify_all();
  }
  work(context, 0);
  for (int spins = 0; running_.load(std::memory_order_acquire) > 0; ++spins) {
    if (spins < kSpins) {
      Pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadTeam::Loop(int thread) {
  uint32_t seen = 0;
  for (;;) {
    for (int spins = 0; round_.load(std::memory_order_acquire) == seen && spins < kSpins; ++spins) {
      Pause();
    }
    if (round_.load() == seen) {
      std::unique_lock lock(mutex_);
      sleeping_.fetch_add(1);
      wake_.wait(lock, [&] { return round_.load() != seen; });
      sleeping_.fetch_sub(1);
    }
    seen = round_.load();
    if (stopping_.load()) return;
    work_(context_, thread);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

void ThreadTeam::Meet() {
  if (threads_ == 1) return;
  const uint32_t meeting = meeting_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    meeting_.store(meeting + 1, std::memory_order_release);
    return;
  }
  for (int spins = 0; meeting_.load(std::memory_order_acquire) == meeting; ++spins) {
    if (spins < kSpins) {
      Pause();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace tenon
