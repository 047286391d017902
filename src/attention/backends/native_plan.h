// NATIVE's plan of one cache group's step: how decode work is split over keys so that one long
// sequence keeps a whole team busy. Private to the backend. Prepare on one thread; constant while a
// tape runs.
#pragma once

#include <vector>

#include "tenon/attention/backend.h"

namespace tenon::backends {

// Keys are summed up segment by segment, each from scratch, and folded in order. Segments are the
// same for every row of every sequence, so that a row's sum depends neither on the team, nor on the
// other sequences, nor on the chunks of its prompt. They grow with the distance from the first key,
// so that any length has few: 2n of kFirst keys, then n of each further power of two.
struct Segments {
  static constexpr int64_t kFirst = 128;
  int64_t n = 16;
  // So that the parts of one row find slots up to a length of 1 M (rows with heads: 160 of 256) or
  // 128 k (latents: 64 of 64).
  static Segments Of(KvLayout layout) { return {layout == KvLayout::kRow ? 8 : 16}; }
  // The first key beyond the segment of `key`.
  int64_t EndAfter(int64_t key) const;
  // Segments that [begin, end) meets.
  int64_t CountIn(int64_t begin, int64_t end) const;
};

class NativePlan final : public StepPlan {
 public:
  // Query rows of one unit of work.
  static constexpr int64_t kBlockRows = 32;

  explicit NativePlan(const CacheSpec& spec) : spec_(spec) {}

  // Partial sums that a step may keep: rows of [heads, v_width + 2] floats.
  static int64_t SlotsFor(KvLayout layout) { return layout == KvLayout::kRow ? 64 : 256; }

  void Prepare(const StepLayout& layout);

  // Rows of a verify or decode request and the keys they attend in one piece of work.
  struct Piece {
    int32_t request = 0;
    int64_t row = 0;  // of the step
    int64_t rows = 0;
    int64_t key_begin = 0, key_end = 0;
    int64_t slot = -1;  // of the first row's partial sum; -1: all keys, straight to the output
  };
  std::span<const Piece> pieces() const { return pieces_; }
  // Partial sums of the same rows: part p of row i is in slot + p * rows + i.
  struct Join {
    int64_t row = 0;
    int64_t rows = 0;
    int64_t slot = 0;
    int64_t parts = 0;
  };
  std::span<const Join> joins() const { return joins_; }

 private:
  struct Block {
    Piece all;
    int64_t parts = 0;
  };
  void AddBlocks(const StepRequest& request, int32_t index);

  CacheSpec spec_;
  std::vector<Block> blocks_;
  std::vector<Piece> pieces_;
  std::vector<Join> joins_;
};

}  // namespace tenon::backends
