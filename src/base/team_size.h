// TeamSize: how many members of a team to use for the same work done again and again. All of them,
// unless a busy neighbour keeps one off its core: then those that remain are faster alone. Decides
// by measured durations only. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tenon {

class TeamSize {
 public:
  explicit TeamSize(int threads) : threads_(threads), size_(threads) {}

  // For the next run.
  int size() const { return size_; }
  // Of a run with size() members, in any unit of time: how long it took, how long members waited in
  // it for others that were late.
  void Report(uint64_t duration, uint64_t waited) {
    if (threads_ == 1) return;
    sum_ += duration;
    longest_ = std::max(longest_, duration);
    waits_ += waited > duration / 4 ? 1 : 0;
    if (++runs_ == kWindow) EndWindow();
  }

 private:
  static constexpr int kWindow = 8;       // runs that are judged together, without the longest
  static constexpr int kRetry = 8;        // windows until what was worse is tried again
  static constexpr int kLongRetry = 128;  // at most: it doubles each time
  static constexpr double kBetter = 0.95;

  void EndWindow() {
    const double duration = static_cast<double>(sum_ - longest_);
    const bool waited = 2 * waits_ >= kWindow;
    sum_ = longest_ = 0;
    runs_ = waits_ = 0;
    if (trying_) return EndTrial(duration);
    if (until_retry_ > 0) --until_retry_;
    if (until_retry_ > 0) return;
    if (size_ < threads_) {
      Try(size_ + 1, duration);
    } else if (waited) {
      Try(size_ - 1, duration);
    }
  }
  void Try(int size, double duration) {
    trying_ = true;
    before_ = size_;
    duration_before_ = duration;
    size_ = size;
  }
  void EndTrial(double duration) {
    trying_ = false;
    const bool better = duration < kBetter * duration_before_;
    retry_ = better ? kRetry : std::min(2 * retry_, kLongRetry);
    until_retry_ = retry_;
    if (!better) size_ = before_;
  }

  int threads_;
  int size_;
  int before_ = 0;
  double duration_before_ = 0;
  bool trying_ = false;
  int retry_ = kRetry;
  int until_retry_ = 0;
  uint64_t sum_ = 0;
  uint64_t longest_ = 0;
  int runs_ = 0;
  int waits_ = 0;
};

}  // namespace tenon
