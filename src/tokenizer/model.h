// TokenModel: the part of a tokenizer that turns words (what the pre-tokenizer cut) into token ids:
// BPE today (bpe.h); Unigram and WordPiece are further implementations. Knows nothing of added
// tokens. Immutable, thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tenon/tokenizer/vocabulary.h"

namespace tenon {

// Bytes [begin, end) of a text. 32 bits: an input is at most kMaxInputBytes.
struct Range {
  uint32_t begin = 0;
  uint32_t end = 0;
  uint32_t size() const { return end - begin; }
  std::string_view Of(std::string_view text) const { return text.substr(begin, end - begin); }
  friend bool operator==(const Range&, const Range&) = default;
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of every word of `text`, in order. All words at once, so that a model can
  // remember the words of one text. `text` is valid UTF-8, words start and end between characters.
  virtual void Tokenize(std::string_view text, std::span<const Range> words,
                        std::vector<int32_t>* ids) const = 0;
  virtual const Vocabulary& vocabulary() const = 0;
};

}  // namespace tenon
