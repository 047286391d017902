// MergeTable: the merges of a BPE model, (left id, right id) -> rank and merged id, in one flat
// table. Immutable once built; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tenon {

struct Merge {
  int32_t left = 0;
  int32_t right = 0;
  int32_t merged = 0;
};

class MergeTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Found {
    uint32_t rank = kNone;  // kNone = these two do not merge
    int32_t merged = -1;
  };

  MergeTable() = default;
  // The rank is the index; of equal pairs the last one counts (as in HF's map).
  explicit MergeTable(std::span<const Merge> merges);

  Found Find(int32_t left, int32_t right) const {
    if (slots_.empty()) return {};
    for (size_t index = SlotOf(left, right); slots_[index].rank != kNone;) {
      const Slot& slot = slots_[index];
      if (slot.left == left && slot.right == right) return {slot.rank, slot.merged};
      if (++index == slots_.size()) index = 0;
    }
    return {};
  }

 private:
  struct Slot {
    int32_t left = -1;
    int32_t right = -1;
    int32_t merged = -1;
    uint32_t rank = kNone;  // kNone = free
  };
  size_t SlotOf(int32_t left, int32_t right) const {
    uint64_t hash = (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
    hash *= 0x9E3779B97F4A7C15;
    hash ^= hash >> 32;
    hash *= 0xD6E8FEB86659FD93;
    return static_cast<size_t>(((hash >> 32) * slots_.size()) >> 32);
  }

  std::vector<Slot> slots_;
};

}  // namespace tenon
