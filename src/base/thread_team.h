// ThreadTeam: a fixed set of threads that run one function together (the calling thread is member
// 0). They spin briefly between runs, then sleep. Not a task queue. One caller at a time; Meet()
// only inside Run.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace tenon {

class ThreadTeam {
 public:
  // threads >= 1; starts threads - 1 of them.
  explicit ThreadTeam(int threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int threads() const { return threads_; }

  // Runs work(context, thread) on every member and returns when all are done. Allocates nothing.
  using Work = void (*)(void* context, int thread);
  void Run(Work work, void* context);
  template <typename Function>
  void Run(Function&& function) {
    Run([](void* context,
           int thread) { (*static_cast<std::remove_reference_t<Function>*>(context))(thread); },
        &function);
  }

  // Every member waits here until all have arrived; what each wrote before is then visible to all.
  void Meet();

 private:
  void Loop(int thread);

  const int threads_;
  Work work_ = nullptr;
  void* context_ = nullptr;
  std::atomic<uint32_t> round_{0};    // a new value starts a run
  std::atomic<int> running_{0};       // members still inside the run, the caller not counted
  std::atomic<int> arrived_{0};       // at the current Meet
  std::atomic<uint32_t> meeting_{0};  // number of completed meetings
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;  // only for sleeping
  std::condition_variable wake_;
  std::atomic<int> sleeping_{0};
  std::vector<std::thread> members_;
};

}  // namespace tenon
