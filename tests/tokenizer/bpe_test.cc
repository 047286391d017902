// BPE against a merge loop that is as plain as the definition.
#include "tenon/tokenizer/bpe.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <random>

namespace tenon {
namespace {

constexpr std::string_view kAlphabet = "abcde";

struct RandomBpe {
  std::vector<std::string> tokens;
  std::vector<MergePair> merges;
  BpeOptions options;
};

RandomBpe MakeRandom(std::mt19937* random) {
  RandomBpe bpe;
  std::map<std::string, int32_t> ids;
  const auto add = [&](const std::string& token) {
    const auto [found, is_new] = ids.emplace(token, static_cast<int32_t>(bpe.tokens.size()));
    if (is_new) bpe.tokens.push_back(token);
    return found->second;
  };
  add("<unk>");
  for (const char letter : kAlphabet) add(std::string(1, letter));
  for (int i = 0; i < 40; ++i) {
    const auto draw = [&] {
      return static_cast<int32_t>(1 + (*random)() % (bpe.tokens.size() - 1));
    };
    const MergePair pair = {draw(), draw()};
    const std::string merged =
        bpe.tokens[static_cast<size_t>(pair.left)] + bpe.tokens[static_cast<size_t>(pair.right)];
    if (merged.size() > 12) continue;
    add(merged);
    bpe.merges.push_back(pair);
  }
  if ((*random)() % 2 == 0) bpe.options.unknown_token = "<unk>";
  bpe.options.fuse_unknown = (*random)() % 2 == 0;
  return bpe;
}

// The definition: merge the leftmost pair of the lowest rank until there is none.
std::vector<std::string> MergePlainly(const RandomBpe& bpe, const std::string& word) {
  std::vector<std::string> symbols;
  for (const char letter : word) {
    const bool is_known = kAlphabet.find(letter) != std::string_view::npos;
    if (!is_known && !bpe.options.unknown_token) continue;
    if (!is_known && bpe.options.fuse_unknown && !symbols.empty() && symbols.back() == "<unk>") {
      continue;
    }
    symbols.push_back(is_known ? std::string(1, letter) : "<unk>");
  }
  std::map<std::pair<std::string, std::string>, size_t> ranks;
  for (size_t rank = 0; rank < bpe.merges.size(); ++rank) {
    ranks[{bpe.tokens[static_cast<size_t>(bpe.merges[rank].left)],
           bpe.tokens[static_cast<size_t>(bpe.merges[rank].right)]}] = rank;
  }
  while (true) {
    size_t best = SIZE_MAX;
    size_t best_at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ranks.find({symbols[i], symbols[i + 1]});
      if (found == ranks.end() || found->second >= best) continue;
      best = found->second;
      best_at = i;
    }
    if (best == SIZE_MAX) return symbols;
    symbols[best_at] += symbols[best_at + 1];
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best_at) + 1);
  }
}

// Words around the limits at which the model takes another path (a heap, cutting long words) and
// lists of words that share a cache.
RC_GTEST_PROP(Bpe, EqualsTheDefinition, (uint32_t seed)) {
  std::mt19937 random(seed);
  const RandomBpe bpe = MakeRandom(&random);
  Vocabulary vocabulary;
  for (size_t id = 0; id < bpe.tokens.size(); ++id) {
    RC_ASSERT(vocabulary.Add(bpe.tokens[id], static_cast<int64_t>(id)).ok());
  }
  RC_ASSERT(vocabulary.Seal().ok());
  const auto model = BpeModel::Create(std::move(vocabulary), bpe.merges, bpe.options);
  RC_ASSERT(model.ok());

  const size_t sizes[] = {1, 2, 7, 31, 32, 33, 90, 1024, 1025, 1400};
  const uint32_t unknown_one_in = 5 + random() % 60;
  std::string text;
  std::vector<Range> words;
  std::vector<std::string> expected;
  for (size_t i = 0; i < 1 + random() % 50; ++i) {
    // Long words are rare: the definition is quadratic.
    const size_t size = sizes[random() % (i < 1 ? std::size(sizes) : 5)];
    std::string word;
    while (word.size() < size) {
      word += random() % unknown_one_in == 0 ? 'x' : kAlphabet[random() % kAlphabet.size()];
    }
    const auto begin = static_cast<uint32_t>(text.size());
    text += word;
    words.push_back({begin, static_cast<uint32_t>(text.size())});
    for (std::string& symbol : MergePlainly(bpe, word)) expected.push_back(std::move(symbol));
  }
  std::vector<int32_t> ids;
  (*model)->Tokenize(text, words, &ids);
  std::vector<std::string> tokens;
  for (const int32_t id : ids) tokens.push_back(bpe.tokens[static_cast<size_t>(id)]);
  RC_ASSERT(tokens == expected);
}

}  // namespace
}  // namespace tenon
