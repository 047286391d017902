#include "tenon/attention/backends/native_plan.h"

#include <algorithm>

#include "tenon/tensor/buffer.h"

namespace tenon::backends {

int64_t Segments::EndAfter(int64_t key) const {
  int64_t size = kFirst;
  while (key >= 2 * n * size) size *= 2;
  return (key / size + 1) * size;
}

int64_t Segments::CountIn(int64_t begin, int64_t end) const {
  int64_t count = 0;
  for (; begin < end; begin = EndAfter(begin)) ++count;
  return count;
}

void NativePlan::AddBlocks(const StepRequest& request, int32_t index) {
  const bool cross = spec_.kind == CacheKind::kCross;
  const int64_t keys = cross ? request.cross_len : request.kv_len;
  const Segments segments = Segments::Of(spec_.layout);
  for (int64_t row = request.begin; row < request.end; row += kBlockRows) {
    Block block;
    block.all = {.request = index, .row = row};
    block.all.rows = std::min<int64_t>(request.end - row, kBlockRows);
    block.all.key_end = cross ? keys : keys - (request.end - row) + block.all.rows;
    if (!cross) block.all.key_begin = spec_.FirstSeen(block.all.key_end - block.all.rows);
    block.parts = segments.CountIn(block.all.key_begin, block.all.key_end);
    blocks_.push_back(block);
  }
}

void NativePlan::Prepare(const StepLayout& layout) {
  blocks_.clear();
  pieces_.clear();
  joins_.clear();
  if (spec_.kind != CacheKind::kPagedRows && spec_.kind != CacheKind::kCross) return;
  for (size_t i = 0; i < layout.requests.size(); ++i) {
    if (layout.requests[i].phase != RequestPhase::kPrefill)
      AddBlocks(layout.requests[i], static_cast<int32_t>(i));
  }
  // The longest are split first, while slots last: what stays whole is short, and it goes first in
  // the list so that it is not the end that all wait for.
  std::sort(blocks_.begin(), blocks_.end(), [](const Block& a, const Block& b) {
    return a.parts != b.parts ? a.parts > b.parts : a.all.row < b.all.row;
  });
  int64_t slots = SlotsFor(spec_.layout);
  for (Block& block : blocks_) {
    const int64_t wanted = block.parts * block.all.rows;
    if (block.parts > 1 && wanted <= slots) {
      block.all.slot = SlotsFor(spec_.layout) - slots;
      slots -= wanted;
    } else {
      pieces_.push_back(block.all);
    }
  }
  for (const Block& block : blocks_) {
    if (block.all.slot < 0) continue;
    Piece piece = block.all;
    for (int64_t begin = block.all.key_begin; begin < block.all.key_end; begin = piece.key_end) {
      piece.key_begin = begin;
      piece.key_end = std::min(Segments::Of(spec_.layout).EndAfter(begin), block.all.key_end);
      pieces_.push_back(piece);
      piece.slot += piece.rows;
    }
    joins_.push_back({block.all.row, block.all.rows, block.all.slot, block.parts});
  }
}

}  // namespace tenon::backends
