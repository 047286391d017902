// NATIVE's plan of one cache group's step: how decode work is split over keys so that one long
// sequence keeps a whole team busy. Sizes follow from each sequence's own length, so that results
// depend neither on the team nor on the other sequences. Private to the backend. Prepare on one
// thread; constant while a tape runs.
#pragma once

#include <vector>

#include "tenon/attention/backend.h"

namespace tenon::backends {

// Keys are summed up segment by segment, each from scratch, and folded in order; segment i of a
// sequence is its keys [i * size, (i + 1) * size). A power of two that cuts `keys` into at most
// kMaxSegments.
int64_t SegmentSize(int64_t keys, int64_t max_segments);
inline constexpr int64_t kMaxSegments = 64;
inline constexpr int64_t kMinSegment = 128;

class NativePlan final : public StepPlan {
 public:
  // Query rows of one unit of work.
  static constexpr int64_t kBlockRows = 32;

  explicit NativePlan(const CacheSpec& spec) : spec_(spec) {}

  // Partial sums that a step may keep: rows of [heads, v_width + 2] floats.
  static int64_t SlotsFor(KvLayout layout) { return layout == KvLayout::kRow ? 64 : 256; }
  // Segment size for rows that see `keys` keys, `rows` of them in one block.
  static int64_t SegmentFor(int64_t keys, int64_t rows, std::optional<int64_t> window,
                            KvLayout layout);

  void Prepare(const StepLayout& layout);

  // Rows of a verify or decode request and the keys they attend in one piece of work.
  struct Piece {
    int32_t request = 0;
    int64_t row = 0;  // of the step
    int64_t rows = 0;
    int64_t key_begin = 0, key_end = 0;
    int64_t segment = 0;
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
