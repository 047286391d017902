// SafeCuts: where a long word may be cut before BPE without changing its tokens. Two neighbouring
// characters can only end up in one token when some token of the vocabulary holds them side by
// side. Models that do not pre-tokenise (SentencePiece) hand whole documents to BPE as one word;
// cut so, they become words that are short and repeat. Immutable, thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "tenon/tokenizer/vocabulary.h"

namespace tenon {

class SafeCuts {
 public:
  // One pass over the vocabulary.
  explicit SafeCuts(const Vocabulary& vocabulary);

  // Whether a token holds `left` directly before `right`.
  bool AreTogether(char32_t left, char32_t right) const {
    const uint64_t pair = PairOf(left, right);
    for (size_t index = SlotOf(pair); slots_[index] != kFree;) {
      if (slots_[index] == pair) return true;
      if (++index == slots_.size()) index = 0;
    }
    return false;
  }

 private:
  static constexpr uint64_t kFree = UINT64_MAX;
  static uint64_t PairOf(char32_t left, char32_t right) {
    return (uint64_t{left} << 32) | uint64_t{right};
  }
  size_t SlotOf(uint64_t pair) const {
    const uint64_t hash = (pair ^ (pair >> 29)) * 0x9E3779B97F4A7C15;
    return static_cast<size_t>(((hash >> 32) * slots_.size()) >> 32);
  }
  void Insert(uint64_t pair);
  void Grow();

  std::vector<uint64_t> slots_;
  size_t count_ = 0;
};

}  // namespace tenon
