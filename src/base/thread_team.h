// ThreadTeam: a fixed set of threads that run one function together (the calling thread is member
// 0), all of them or the first few. They spin briefly between runs, then sleep; waiting inside a
// run is spinning, then yielding. Not a task queue. One caller at a time; Meet() only inside Run.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace tenon {

// A clock without system calls; its unit is some fraction of a nanosecond or so.
uint64_t Ticks();

class ThreadTeam {
 public:
  // threads >= 1; starts threads - 1 of them.
  explicit ThreadTeam(int threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int threads() const { return threads_; }

  // Runs work(context, thread) on members [0, active) and returns when all are done; the others
  // sleep. Allocates nothing.
  using Work = void (*)(void* context, int thread);
  void Run(int active, Work work, void* context);
  template <typename Function>
  void Run(int active, Function&& function) {
    Run(
        active,
        [](void* context, int thread) {
          (*static_cast<std::remove_reference_t<Function>*>(context))(thread);
        },
        &function);
  }
  template <typename Function>
  void Run(Function&& function) {
    Run(threads_, std::forward<Function>(function));
  }

  // Every active member waits here until all have arrived; what each wrote before is then visible
  // to all.
  void Meet();

  // Ticks that members have waited for others in meetings and at the ends of runs, where that took
  // longer than they spin.
  uint64_t waited() const { return waited_.load(std::memory_order_relaxed); }

 private:
  void Loop(int thread);
  template <typename Done>
  void WaitFor(Done done);
  // Of a round: how many members take part.
  static constexpr uint64_t kActiveMask = 0xFFFF;
  static int ActiveOf(uint64_t round) { return static_cast<int>(round & kActiveMask); }

  const int threads_;
  int active_;  // in this run
  Work work_ = nullptr;
  void* context_ = nullptr;
  std::atomic<uint64_t> round_;       // a new value starts a run: a count, then ActiveOf
  std::atomic<int> running_{0};       // members still inside the run, the caller not counted
  std::atomic<int> arrived_{0};       // at the current Meet
  std::atomic<uint32_t> meeting_{0};  // number of completed meetings
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;  // only for sleeping
  std::condition_variable wake_;
  std::atomic<int> sleeping_{0};  // of the members that the last round had
  std::atomic<uint64_t> waited_{0};
  std::vector<std::thread> members_;
};

}  // namespace tenon
