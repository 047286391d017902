// StringArena: copies of many short texts at addresses that stay, a few allocations in all. Not for
// texts that are freed one by one. Move-only; not thread-safe while growing.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

namespace tenon {

class StringArena {
 public:
  std::string_view Add(std::string_view text) {
    if (text.size() > free_) {
      const size_t size = std::max(text.size(), kChunk);
      chunks_.push_back(std::make_unique<char[]>(size));
      next_ = chunks_.back().get();
      free_ = size;
    }
    if (!text.empty()) std::memcpy(next_, text.data(), text.size());
    const std::string_view copy(next_, text.size());
    next_ += text.size();
    free_ -= text.size();
    return copy;
  }

 private:
  static constexpr size_t kChunk = 1 << 16;
  std::vector<std::unique_ptr<char[]>> chunks_;
  char* next_ = nullptr;
  size_t free_ = 0;
};

}  // namespace tenon
