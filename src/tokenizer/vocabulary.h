// Vocabulary: the model's tokens, id <-> spelling, in one arena and one flat table so that 200,000
// tokens load in milliseconds. Holds no scores and no added tokens (added_tokens.h). Filled once
// (Add..., then Seal), then immutable and thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/base/status.h"

namespace tenon {

// Ids index dense tables, so a hostile id must not be able to ask for gigabytes.
inline constexpr int64_t kMaxTokenId = (int64_t{1} << 24) - 1;

uint32_t HashBytes(std::string_view bytes);

class Vocabulary {
 public:
  void Reserve(size_t tokens, size_t bytes);
  // Errors: id outside [0, kMaxTokenId], an id that already has a spelling.
  Status Add(std::string_view spelling, int64_t id);
  // Builds the table. Errors: spellings that are not UTF-8. A spelling that two ids share is found
  // as the one that was added last, as a JSON object's key would be.
  Status Seal();

  std::optional<int32_t> Find(std::string_view spelling) const {
    return Find(spelling, HashBytes(spelling));
  }
  // For many look-ups in a row: hash and Prefetch them all, then Find them all.
  std::optional<int32_t> Find(std::string_view spelling, uint32_t hash) const;
  void Prefetch(uint32_t hash) const { __builtin_prefetch(slots_.data() + SlotOf(hash)); }
  bool Contains(int32_t id) const {
    return id >= 0 && id < id_limit() && entries_[static_cast<size_t>(id)].offset != kAbsent;
  }
  // Empty when no token has this id.
  std::string_view SpellingOf(int32_t id) const;
  // How many tokens there are; the ids may have holes.
  int32_t size() const { return size_; }
  // One past the largest id.
  int32_t id_limit() const { return static_cast<int32_t>(entries_.size()); }

 private:
  static constexpr uint32_t kAbsent = UINT32_MAX;
  struct Entry {
    uint32_t offset = kAbsent;  // into arena_
    uint32_t length = 0;
  };
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;  // -1 = free
  };
  size_t SlotOf(uint32_t hash) const {
    return static_cast<size_t>((uint64_t{hash} * slots_.size()) >> 32);
  }
  void Insert(int32_t id);

  std::string arena_;
  std::vector<Entry> entries_;     // [id_limit]
  std::vector<int32_t> in_order_;  // ids as added; until Seal
  std::vector<Slot> slots_;
  int32_t size_ = 0;
};

}  // namespace tenon
