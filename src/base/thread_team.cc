#include "tenon/base/thread_team.h"

#include <chrono>

#include "tenon/base/check.h"

namespace tenon {
namespace {

// About 20 us on machines of 2 to 4 GHz: longer than a wait for members that run, short enough to
// leave a shared machine to others.
constexpr uint64_t kSpinTicks = 60000;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Spins until done() or for about kSpinTicks. Returns done().
template <typename Done>
bool Spin(Done done) {
  const uint64_t begin = Ticks();
  while (!done()) {
    if (Ticks() - begin > kSpinTicks) return done();
    Pause();
  }
  return true;
}

}  // namespace

uint64_t Ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();  // no system call whatever the clock source is
#else
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

ThreadTeam::ThreadTeam(int threads)
    : threads_(threads), active_(threads), round_(static_cast<uint64_t>(threads)) {
  TN_CHECK(threads >= 1 && static_cast<uint64_t>(threads) <= kActiveMask, "a team's size");
  for (int t = 1; t < threads; ++t) members_.emplace_back([this, t] { Loop(t); });
}

ThreadTeam::~ThreadTeam() {
  {
    const std::lock_guard lock(mutex_);
    stopping_.store(true);
    round_.fetch_add(kActiveMask + 1);
  }
  wake_.notify_all();
  for (std::thread& member : members_) member.join();
}

template <typename Done>
void ThreadTeam::WaitFor(Done done) {
  if (Spin(done)) return;
  const uint64_t begin = Ticks();
  while (!done()) std::this_thread::yield();
  waited_.fetch_add(kSpinTicks + Ticks() - begin, std::memory_order_relaxed);
}

void ThreadTeam::Run(int active, Work work, void* context) {
  TN_CHECK(active >= 1 && active <= threads_, "members of the team");
  const bool grows = active > active_;
  active_ = active;
  if (active == 1) {
    work(context, 0);
    return;
  }
  work_ = work;
  context_ = context;
  running_.store(active - 1);
  const uint64_t count = (round_.load(std::memory_order_relaxed) & ~kActiveMask) + kActiveMask + 1;
  // Sequentially consistent: a member either sees it or is counted as sleeping.
  round_.store(count | static_cast<uint64_t>(active));
  if (grows || sleeping_.load() > 0) {
    { const std::lock_guard lock(mutex_); }
    wake_.notify_all();
  }
  work(context, 0);
  WaitFor([&] { return running_.load(std::memory_order_acquire) == 0; });
}

void ThreadTeam::Loop(int thread) {
  auto seen = static_cast<uint64_t>(threads_);  // not what is there now: a run may have begun
  const auto is_new = [&] { return round_.load(std::memory_order_acquire) != seen; };
  for (;;) {
    const bool counts = thread < ActiveOf(seen);
    if (!counts || !Spin(is_new)) {
      std::unique_lock lock(mutex_);
      if (counts) sleeping_.fetch_add(1);
      wake_.wait(lock, [&] { return round_.load() != seen; });
      if (counts) sleeping_.fetch_sub(1);
    }
    seen = round_.load();
    if (stopping_.load()) return;
    if (thread >= ActiveOf(seen)) continue;
    work_(context_, thread);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

void ThreadTeam::Meet() {
  if (active_ == 1) return;
  const uint32_t meeting = meeting_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == active_) {
    arrived_.store(0, std::memory_order_relaxed);
    meeting_.store(meeting + 1, std::memory_order_release);
    return;
  }
  WaitFor([&] { return meeting_.load(std::memory_order_acquire) != meeting; });
}

}  // namespace tenon
