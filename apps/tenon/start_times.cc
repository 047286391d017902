#include "start_times.h"

#include <fmt/format.h>

#include "tenon/base/text.h"

namespace tenon::cli {

std::string StartTimes::Text() const {
  double sum = 0;
  std::vector<std::string> texts;
  for (const auto& [part, seconds] : parts_) {
    sum += seconds;
    texts.push_back(fmt::format("{} {:.0f} ms", part, 1e3 * seconds));
  }
  return fmt::format("{:.3f} s: {}", sum, Join(texts, ", "));
}

}  // namespace tenon::cli
