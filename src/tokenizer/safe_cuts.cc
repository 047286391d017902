#include "tenon/tokenizer/safe_cuts.h"

#include <utility>

#include "tenon/tokenizer/unicode.h"

namespace tenon {

SafeCuts::SafeCuts(const Vocabulary& vocabulary) : slots_(1024, kFree) {
  for (int32_t id = 0; id < vocabulary.id_limit(); ++id) {
    const std::string_view token = vocabulary.SpellingOf(id);
    if (token.empty()) continue;
    char32_t left = CharacterAt(token, 0);
    for (auto at = static_cast<size_t>(Utf8Length(token[0])); at < token.size();
         at += static_cast<size_t>(Utf8Length(token[at]))) {
      const char32_t right = CharacterAt(token, at);
      Insert(PairOf(left, right));
      left = right;
    }
  }
}

void SafeCuts::Insert(uint64_t pair) {
  size_t index = SlotOf(pair);
  while (slots_[index] != kFree) {
    if (slots_[index] == pair) return;
    if (++index == slots_.size()) index = 0;
  }
  slots_[index] = pair;
  if (++count_ * 2 > slots_.size()) Grow();
}

void SafeCuts::Grow() {
  const std::vector<uint64_t> old =
      std::exchange(slots_, std::vector<uint64_t>(slots_.size() * 2, kFree));
  for (const uint64_t pair : old) {
    if (pair == kFree) continue;
    size_t index = SlotOf(pair);
    while (slots_[index] != kFree) {
      if (++index == slots_.size()) index = 0;
    }
    slots_[index] = pair;
  }
}

}  // namespace tenon
