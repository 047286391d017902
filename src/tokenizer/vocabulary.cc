#include "tenon/tokenizer/vocabulary.h"

#include <fmt/format.h>

#include <cstring>

#include "tenon/tokenizer/unicode.h"

namespace tenon {
namespace {

uint64_t Mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

template <typename Word>
uint64_t Load(const char* from) {
  Word value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// The last 0..8 bytes; overlapping loads of a fixed size are much cheaper than a copy of `size`.
uint64_t LoadTail(const char* from, size_t size) {
  if (size == 8) return Load<uint64_t>(from);
  if (size >= 4) return Load<uint32_t>(from) | (Load<uint32_t>(from + size - 4) << 32);
  if (size >= 2) return Load<uint16_t>(from) | (Load<uint16_t>(from + size - 2) << 16);
  return size == 0 ? 0 : Load<uint8_t>(from);
}

constexpr uint64_t kSeed = 0x9E3779B97F4A7C15;
constexpr uint64_t kFactor = 0xD6E8FEB86659FD93;

}  // namespace

// A multiply-and-fold hash of 8-byte words: most tokens are one word.
uint32_t HashBytes(std::string_view bytes) {
  uint64_t hash = kSeed ^ bytes.size();
  const char* from = bytes.data();
  size_t left = bytes.size();
  for (; left > 8; left -= 8, from += 8) hash = Mix(hash ^ Load<uint64_t>(from), kFactor);
  hash = Mix(hash ^ LoadTail(from, left), kFactor);
  return static_cast<uint32_t>(Mix(hash, kSeed) >> 32);
}

void Vocabulary::Reserve(size_t tokens, size_t bytes) {
  entries_.reserve(tokens);
  in_order_.reserve(tokens);
  arena_.reserve(bytes);
}

Status Vocabulary::Add(std::string_view spelling, int64_t id) {
  if (id < 0 || id > kMaxTokenId) {
    return Refused(fmt::format("token '{}' has id {}, allowed 0..{}", spelling, id, kMaxTokenId));
  }
  if (arena_.size() + spelling.size() >= kAbsent) {
    return Refused("the vocabulary's spellings exceed 4 GiB");
  }
  const auto index = static_cast<size_t>(id);
  if (index >= entries_.size()) entries_.resize(index + 1);
  Entry& entry = entries_[index];
  if (entry.offset != kAbsent) {
    return Refused(fmt::format("tokens '{}' and '{}' both have id {}",
                               SpellingOf(static_cast<int32_t>(id)), spelling, id));
  }
  entry = {static_cast<uint32_t>(arena_.size()), static_cast<uint32_t>(spelling.size())};
  arena_.append(spelling);
  in_order_.push_back(static_cast<int32_t>(id));
  return {};
}

Status Vocabulary::Seal() {
  // The arena as a whole is UTF-8 and no token starts inside a character <=> every token is UTF-8.
  bool valid = FindInvalidUtf8(arena_) == std::string_view::npos;
  for (const int32_t id : in_order_) {
    const std::string_view spelling = SpellingOf(id);
    valid = valid && (spelling.empty() || (static_cast<unsigned char>(spelling[0]) & 0xC0) != 0x80);
  }
  if (!valid) return Refused("the vocabulary holds a token that is not valid UTF-8");
  slots_.assign(in_order_.size() * 2 + 2, Slot());
  for (const int32_t id : in_order_) Insert(id);
  in_order_ = {};
  return {};
}

void Vocabulary::Insert(int32_t id) {
  const std::string_view spelling = SpellingOf(id);
  const uint32_t hash = HashBytes(spelling);
  size_t index = SlotOf(hash);
  while (slots_[index].id >= 0) {
    if (slots_[index].hash == hash && SpellingOf(slots_[index].id) == spelling) {
      slots_[index].id = id;
      return;
    }
    if (++index == slots_.size()) index = 0;
  }
  slots_[index] = {hash, id};
  ++size_;
}

std::optional<int32_t> Vocabulary::Find(std::string_view spelling, uint32_t hash) const {
  if (slots_.empty()) return std::nullopt;
  for (size_t index = SlotOf(hash); slots_[index].id >= 0;) {
    if (slots_[index].hash == hash) {
      const Entry& entry = entries_[static_cast<size_t>(slots_[index].id)];
      if (std::string_view(arena_.data() + entry.offset, entry.length) == spelling) {
        return slots_[index].id;
      }
    }
    if (++index == slots_.size()) index = 0;
  }
  return std::nullopt;
}

std::string_view Vocabulary::SpellingOf(int32_t id) const {
  if (!Contains(id)) return {};
  const Entry& entry = entries_[static_cast<size_t>(id)];
  return std::string_view(arena_).substr(entry.offset, entry.length);
}

}  // namespace tenon
