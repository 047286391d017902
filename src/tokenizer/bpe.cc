#include "tenon/tokenizer/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <mutex>

#include "tenon/tokenizer/safe_cuts.h"
#include "tenon/tokenizer/unicode.h"

namespace tenon {
namespace {

constexpr size_t kShortWord = 32;       // symbols; up to here a scan beats a heap
constexpr size_t kCacheFromWords = 32;  // below this a cache costs more than it saves
constexpr size_t kMaxCacheSlots = 1 << 14;
constexpr uint32_t kMinLongWord = 1024;  // bytes

Result<std::vector<Merge>> ResolveMerges(const Vocabulary& vocabulary,
                                         std::span<const MergePair> pairs, size_t prefix_size) {
  std::vector<Merge> merges;
  merges.reserve(pairs.size());
  std::string spelling;
  int32_t last = -1;
  for (const MergePair& pair : pairs) {
    const std::string_view left = vocabulary.SpellingOf(pair.left);
    std::string_view right = vocabulary.SpellingOf(pair.right);
    right.remove_prefix(std::min(right.size(), prefix_size));
    // Trainers number tokens in the order of the merges, and converters list all merges that give a
    // token together: the next id or the last one is usually the answer.
    const auto is_merged = [&](int32_t id) {
      const std::string_view guess = vocabulary.SpellingOf(id);
      return !guess.empty() && guess.size() == left.size() + right.size() &&
             guess.starts_with(left) && guess.ends_with(right);
    };
    if (is_merged(last + 1)) ++last;
    if (is_merged(last)) {
      merges.push_back({pair.left, pair.right, last});
      continue;
    }
    spelling = left;
    spelling += right;
    const auto found = vocabulary.Find(spelling);
    if (!found) {
      return Refused(
          fmt::format("merge {} ('{}' + '{}') gives '{}', which is not in the vocabulary",
                      merges.size(), left, right, spelling));
    }
    last = *found;
    merges.push_back({pair.left, pair.right, last});
  }
  return merges;
}

// Remembers, for the words of one text, where in the output their ids are. Direct-mapped.
class WordCache {
 public:
  explicit WordCache(size_t words) {
    if (words >= kCacheFromWords) slots_.resize(std::bit_ceil(std::min(words, kMaxCacheSlots)));
  }
  bool enabled() const { return !slots_.empty(); }

  struct Slot {
    uint32_t hash = 0;
    Range word;
    uint32_t first_id = 0;  // index into the output
    uint32_t num_ids = 0;
  };
  Slot& SlotOf(uint32_t hash) { return slots_[hash & (slots_.size() - 1)]; }

 private:
  std::vector<Slot> slots_;
};

}  // namespace

// Buffers that one Tokenize call reuses from word to word.
struct BpeModel::Scratch {
  struct Candidate {
    uint64_t order;  // rank, then position: the smallest is merged first
    int32_t left;
    int32_t right;
    int32_t merged;
    bool operator<(const Candidate& other) const { return order > other.order; }
  };
  struct Symbol {
    int32_t id;
    int32_t previous;
    int32_t next;
  };

  std::vector<int32_t> symbols;
  std::vector<MergeTable::Found> pairs;  // [symbols - 1]
  std::vector<Candidate> heap;
  std::vector<Symbol> list;
};

struct BpeModel::LazyCuts {
  std::once_flag once;
  std::optional<SafeCuts> cuts;
};

Result<std::unique_ptr<const BpeModel>> BpeModel::Create(Vocabulary vocabulary,
                                                         std::span<const MergePair> merges,
                                                         BpeOptions options) {
  if (options.unknown_token && !vocabulary.Find(*options.unknown_token)) {
    return Refused(fmt::format("unk_token = '{}' is not in the vocabulary ({} tokens)",
                               *options.unknown_token, vocabulary.size()));
  }
  TN_ASSIGN_OR_RETURN(const std::vector<Merge> resolved,
                      ResolveMerges(vocabulary, merges, options.continuing_subword_prefix.size()));
  return std::unique_ptr<const BpeModel>(
      new BpeModel(std::move(vocabulary), MergeTable(resolved), std::move(options)));
}

BpeModel::BpeModel(Vocabulary vocabulary, MergeTable merges, BpeOptions options)
    : vocabulary_(std::move(vocabulary)),
      merges_(std::move(merges)),
      options_(std::move(options)),
      long_word_(std::max<uint32_t>(kMinLongWord, static_cast<uint32_t>(vocabulary_.size()) / 4)),
      cuts_(std::make_unique<LazyCuts>()),
      character_ids_(kDirectCharacters, -1) {
  if (options_.unknown_token) unknown_id_ = vocabulary_.Find(*options_.unknown_token).value();
  for (int byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = vocabulary_.Find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
  std::string spelling;
  for (int character = 0; character < kDirectCharacters; ++character) {
    spelling.clear();
    AppendUtf8(static_cast<char32_t>(character), &spelling);
    character_ids_[character] = vocabulary_.Find(spelling).value_or(-1);
  }
}

BpeModel::~BpeModel() = default;

std::vector<Range> BpeModel::CutLongWords(std::string_view text,
                                          std::span<const Range> words) const {
  // A part of a word may be a token that the whole word would not have been merged to, and affixes
  // depend on the place in the word.
  if (options_.ignore_merges || !options_.continuing_subword_prefix.empty() ||
      !options_.end_of_word_suffix.empty()) {
    return {};
  }
  const auto is_long = [&](Range word) { return word.size() > long_word_; };
  if (std::none_of(words.begin(), words.end(), is_long)) return {};
  std::call_once(cuts_->once, [this] { cuts_->cuts.emplace(vocabulary_); });
  std::vector<Range> pieces;
  for (const Range word : words) {
    if (is_long(word)) {
      CutWord(text, word, &pieces);
    } else {
      pieces.push_back(word);
    }
  }
  return pieces;
}

void BpeModel::CutWord(std::string_view text, Range word, std::vector<Range>* pieces) const {
  const auto is_known = [&](size_t at, char32_t character) {
    if (character < kDirectCharacters) return character_ids_[character] >= 0;
    return vocabulary_.Find(text.substr(at, static_cast<size_t>(Utf8Length(text[at])))).has_value();
  };
  uint32_t begin = word.begin;
  uint32_t previous = word.begin;
  char32_t left = CharacterAt(text, previous);
  for (uint32_t at = previous + static_cast<uint32_t>(Utf8Length(text[previous])); at < word.end;
       at += static_cast<uint32_t>(Utf8Length(text[at]))) {
    const char32_t right = CharacterAt(text, at);
    // Next to an unknown character the symbols are not these characters.
    if (!cuts_->cuts->AreTogether(left, right) && is_known(previous, left) && is_known(at, right)) {
      pieces->push_back({begin, at});
      begin = at;
    }
    previous = at;
    left = right;
  }
  pieces->push_back({begin, word.end});
}

void BpeModel::Tokenize(std::string_view text, std::span<const Range> words,
                        std::vector<int32_t>* ids) const {
  const std::vector<Range> cut = CutLongWords(text, words);
  if (!cut.empty()) words = cut;
  Scratch scratch;
  WordCache cache(words.size());
  for (const Range& range : words) {
    const std::string_view word = range.Of(text);
    if (!cache.enabled()) {
      TokenizeWord(word, &scratch, ids);
      continue;
    }
    const uint32_t hash = HashBytes(word);
    WordCache::Slot& slot = cache.SlotOf(hash);
    const size_t first = ids->size();
    if (slot.hash == hash && slot.word.Of(text) == word) {
      ids->resize(first + slot.num_ids);
      std::copy_n(ids->begin() + slot.first_id, slot.num_ids, ids->begin() + first);
      continue;
    }
    TokenizeWord(word, &scratch, ids);
    slot = {hash, range, static_cast<uint32_t>(first), static_cast<uint32_t>(ids->size() - first)};
  }
}

void BpeModel::TokenizeWord(std::string_view word, Scratch* scratch,
                            std::vector<int32_t>* ids) const {
  if (word.empty()) return;
  if (options_.ignore_merges) {
    if (const auto whole = vocabulary_.Find(word)) {
      ids->push_back(*whole);
      return;
    }
  }
  SplitIntoSymbols(word, &scratch->symbols);
  if (scratch->symbols.size() > kShortWord) {
    MergeLong(scratch->symbols, scratch, ids);
    return;
  }
  MergeShort(&scratch->symbols, scratch);
  ids->insert(ids->end(), scratch->symbols.begin(), scratch->symbols.end());
}

// The id of one character with the affixes that its place in the word asks for, or -1.
int32_t BpeModel::FindCharacter(std::string_view word, size_t begin, size_t end) const {
  const std::string_view character = word.substr(begin, end - begin);
  const bool has_prefix = begin > 0 && !options_.continuing_subword_prefix.empty();
  const bool has_suffix = end == word.size() && !options_.end_of_word_suffix.empty();
  if (has_prefix || has_suffix) {
    std::string spelling = has_prefix ? options_.continuing_subword_prefix : std::string();
    spelling += character;
    if (has_suffix) spelling += options_.end_of_word_suffix;
    return vocabulary_.Find(spelling).value_or(-1);
  }
  if (character.size() <= 2) return character_ids_[CharacterAt(character, 0)];
  return vocabulary_.Find(character).value_or(-1);
}

bool BpeModel::AppendBytes(std::string_view character, std::vector<int32_t>* symbols) const {
  const size_t old_size = symbols->size();
  for (const char byte : character) {
    const int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
    if (id < 0) {
      symbols->resize(old_size);
      return false;
    }
    symbols->push_back(id);
  }
  return true;
}

void BpeModel::SplitIntoSymbols(std::string_view word, std::vector<int32_t>* symbols) const {
  symbols->clear();
  // An unknown run waits for the next known character, even past byte tokens: HF's order.
  bool unknown_waits = false;
  for (size_t begin = 0, end = 0; begin < word.size(); begin = end) {
    end = begin + static_cast<size_t>(Utf8Length(word[begin]));
    const int32_t id = FindCharacter(word, begin, end);
    if (id >= 0) {
      if (unknown_waits) symbols->push_back(unknown_id_);
      unknown_waits = false;
      symbols->push_back(id);
      continue;
    }
    if (options_.byte_fallback && AppendBytes(word.substr(begin, end - begin), symbols)) continue;
    if (unknown_id_ < 0) continue;
    if (unknown_waits && !options_.fuse_unknown) symbols->push_back(unknown_id_);
    unknown_waits = true;
  }
  if (unknown_waits) symbols->push_back(unknown_id_);
}

void BpeModel::MergeShort(std::vector<int32_t>* symbols, Scratch* scratch) const {
  auto& pairs = scratch->pairs;
  pairs.clear();
  for (size_t i = 0; i + 1 < symbols->size(); ++i) {
    pairs.push_back(merges_.Find((*symbols)[i], (*symbols)[i + 1]));
  }
  while (!pairs.empty()) {
    size_t best = 0;
    for (size_t i = 1; i < pairs.size(); ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == MergeTable::kNone) return;
    (*symbols)[best] = pairs[best].merged;
    symbols->erase(symbols->begin() + static_cast<ptrdiff_t>(best) + 1);
    pairs.erase(pairs.begin() + static_cast<ptrdiff_t>(best));
    if (best > 0) pairs[best - 1] = merges_.Find((*symbols)[best - 1], (*symbols)[best]);
    if (best < pairs.size()) pairs[best] = merges_.Find((*symbols)[best], (*symbols)[best + 1]);
  }
}

void BpeModel::MergeLong(const std::vector<int32_t>& symbols, Scratch* scratch,
                         std::vector<int32_t>* ids) const {
  auto& list = scratch->list;
  auto& heap = scratch->heap;
  list.clear();
  heap.clear();
  const auto count = static_cast<int32_t>(symbols.size());
  const auto candidate = [&](int32_t at) -> std::optional<Scratch::Candidate> {
    const int32_t next = list[at].next;
    if (next < 0) return std::nullopt;
    const auto found = merges_.Find(list[at].id, list[next].id);
    if (found.rank == MergeTable::kNone) return std::nullopt;
    const uint64_t order = (uint64_t{found.rank} << 32) | static_cast<uint32_t>(at);
    return Scratch::Candidate{order, list[at].id, list[next].id, found.merged};
  };
  const auto push = [&](int32_t at) {
    if (const auto next = candidate(at)) {
      heap.push_back(*next);
      std::push_heap(heap.begin(), heap.end());
    }
  };
  for (int32_t i = 0; i < count; ++i) {
    list.push_back({symbols[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  }
  for (int32_t i = 0; i + 1 < count; ++i) {
    if (const auto next = candidate(i)) heap.push_back(*next);
  }
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Scratch::Candidate top = heap.back();
    heap.pop_back();
    const auto at = static_cast<int32_t>(top.order & UINT32_MAX);
    const int32_t next = list[at].next;
    // A symbol that was merged away has id -1, one that grew has another id.
    if (list[at].id != top.left || next < 0 || list[next].id != top.right) continue;
    list[at].id = top.merged;
    list[at].next = list[next].next;
    list[next].id = -1;
    if (list[at].next >= 0) list[list[at].next].previous = at;
    if (list[at].previous >= 0) push(list[at].previous);
    push(at);
  }
  for (int32_t i = 0; i >= 0; i = list[i].next) ids->push_back(list[i].id);
}

}  // namespace tenon
