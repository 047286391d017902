// How long the parts of a start took, from the moment the prompt is known to the first token; the
// system's loading of the program comes before. Not thread-safe.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace tenon::cli {

class StartTimes {
 public:
  // The time since the last part, or since this object was made, was spent on `part`.
  void Add(std::string part) {
    const Clock::time_point now = Clock::now();
    parts_.emplace_back(std::move(part), Seconds(now - last_));
    last_ = now;
  }
  void Add(std::string part, double seconds) { parts_.emplace_back(std::move(part), seconds); }
  // "0.118 s: plan 9 ms, weights 55 ms".
  std::string Text() const;

 private:
  using Clock = std::chrono::steady_clock;
  static double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

  Clock::time_point last_ = Clock::now();
  std::vector<std::pair<std::string, double>> parts_;
};

}  // namespace tenon::cli
