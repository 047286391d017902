// PieceList, a text and the pieces it is cut into, and the five ways in which Hugging Face
// tokenizers treat what a pattern matches when they cut (SplitDelimiterBehavior in
// tokenizer/normalizer.rs). No patterns here. Values; thread-compatible.
#pragma once

#include <string>
#include <vector>

#include "tenon/tokenizer/model.h"

namespace tenon {

// The text between two added tokens on its way through the pre-tokenizers.
struct PieceList {
  std::string text;
  std::vector<Range> pieces;  // in order, none empty
  bool starts_input = true;   // the text stands at the start of what the caller gave
};

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// A part of a piece; the parts of a piece cover it.
struct Part {
  Range range;
  bool is_match = false;
};

// Turns the matches of a pattern, in order, into parts that cover a piece.
class PartList {
 public:
  void Start(Range piece) {
    parts_.clear();
    piece_ = piece;
    covered_ = piece.begin;
  }
  void AddMatch(Range match) {  // offsets of the whole text
    if (covered_ < match.begin) parts_.push_back({{covered_, match.begin}, false});
    parts_.push_back({match, true});
    covered_ = match.end;
  }
  // The parts with `invert` applied.
  const std::vector<Part>& Finish(bool invert) {
    if (covered_ < piece_.end) parts_.push_back({{covered_, piece_.end}, false});
    if (invert) {
      for (Part& part : parts_) part.is_match = !part.is_match;
    }
    return parts_;
  }

 private:
  Range piece_;
  uint32_t covered_ = 0;
  std::vector<Part> parts_;
};

// Appends the non-empty pieces that `behavior` makes of the parts of one piece.
void AppendPieces(const std::vector<Part>& parts, SplitBehavior behavior,
                  std::vector<Range>* pieces);

}  // namespace tenon
