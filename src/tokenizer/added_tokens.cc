#include "tenon/tokenizer/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tenon/tokenizer/unicode.h"

namespace tenon {
namespace {

bool TouchesWord(std::string_view text, size_t begin, size_t end) {
  const bool left = begin > 0 && IsWord(CharacterAt(text, PreviousCharacter(text, begin)));
  return left || (end < text.size() && IsWord(CharacterAt(text, end)));
}

// Tokens that the file names twice are one; the later flags count, special stays special.
std::vector<AddedToken> WithoutRepeats(std::vector<AddedToken> tokens) {
  std::vector<AddedToken> unique;
  std::vector<size_t> order(tokens.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return tokens[a].content < tokens[b].content; });
  std::vector<bool> dropped(tokens.size(), false);
  for (size_t i = 0; i < order.size(); ++i) {
    AddedToken& token = tokens[order[i]];
    if (token.content.empty()) dropped[order[i]] = true;
    if (i + 1 < order.size() && tokens[order[i + 1]].content == token.content) {
      tokens[order[i + 1]].special = tokens[order[i + 1]].special || token.special;
      dropped[order[i]] = true;
    }
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!dropped[i]) unique.push_back(std::move(tokens[i]));
  }
  return unique;
}

}  // namespace

void AddedTokens::Matcher::Add(std::string_view pattern, int32_t token) {
  if (pattern.empty()) return;
  uint32_t node = root_[static_cast<unsigned char>(pattern[0])];
  if (node == 0) {
    node = static_cast<uint32_t>(nodes_.size());
    nodes_.push_back({0, 0, -1, pattern[0]});
    root_[static_cast<unsigned char>(pattern[0])] = node;
  }
  for (const char byte : pattern.substr(1)) {
    uint32_t child = nodes_[node].child;
    while (child != 0 && nodes_[child].byte != byte) child = nodes_[child].sibling;
    if (child == 0) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({0, nodes_[node].child, -1, byte});
      nodes_[node].child = child;
    }
    node = child;
  }
  // Of two tokens that normalise to one pattern the first counts.
  if (nodes_[node].token < 0) nodes_[node].token = token;
}

int32_t AddedTokens::Matcher::Longest(std::string_view text, size_t from, size_t* length) const {
  int32_t found = -1;
  uint32_t node = root_[static_cast<unsigned char>(text[from])];
  for (size_t at = from + 1; node != 0; ++at) {
    if (nodes_[node].token >= 0) {
      found = nodes_[node].token;
      *length = at - from;
    }
    if (at == text.size()) break;
    node = nodes_[node].child;
    while (node != 0 && nodes_[node].byte != text[at]) node = nodes_[node].sibling;
  }
  return found;
}

Result<AddedTokens> AddedTokens::Create(std::vector<AddedToken> tokens,
                                        const Vocabulary& vocabulary, const Normalizer* normalizer,
                                        std::vector<std::string>* notes) {
  AddedTokens added;
  added.tokens_ = WithoutRepeats(std::move(tokens));
  TN_RETURN_IF_ERROR(added.AssignIds(vocabulary, notes));
  // Special tokens first: of two equal patterns the first one counts.
  std::vector<size_t> order(added.tokens_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_partition(order.begin(), order.end(),
                        [&](size_t i) { return added.tokens_[i].special; });
  for (const size_t i : order) {
    const AddedToken& token = added.tokens_[i];
    std::string pattern = token.content;
    if (token.normalized && normalizer != nullptr) TN_RETURN_IF_ERROR(normalizer->Apply(&pattern));
    added.matchers_[token.normalized ? 1 : 0].Add(pattern, static_cast<int32_t>(i));
  }
  return added;
}

Status AddedTokens::AssignIds(const Vocabulary& vocabulary, std::vector<std::string>* notes) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    AddedToken& token = tokens_[i];
    const int64_t id_in_file = token.id;
    if (const auto known = vocabulary.Find(token.content)) {
      token.id = *known;
    } else {
      token.id = std::max<int64_t>(vocabulary.size(), id_limit_);
      // Where the vocabulary's ids have holes, that number is taken and the file's own is meant.
      if (vocabulary.Contains(static_cast<int32_t>(token.id))) token.id = id_in_file;
      if (token.id < 0 || token.id > kMaxTokenId ||
          vocabulary.Contains(static_cast<int32_t>(token.id))) {
        return Refused(fmt::format("added token '{}' has id {}, which is not free in 0..{}",
                                   token.content, token.id, kMaxTokenId));
      }
    }
    if (id_in_file != token.id) {
      notes->push_back(fmt::format(
          "added token '{}': the file says id {}, it has id {} (Hugging Face numbers it so)",
          token.content, id_in_file, token.id));
    }
    id_limit_ = std::max(id_limit_, static_cast<int32_t>(token.id) + 1);
    TN_RETURN_IF_ERROR(by_content_.Add(token.content, static_cast<int64_t>(i)));
  }
  TN_RETURN_IF_ERROR(by_content_.Seal(), "added_tokens");
  by_id_.resize(tokens_.size());
  std::iota(by_id_.begin(), by_id_.end(), 0);
  std::sort(by_id_.begin(), by_id_.end(), [&](int32_t a, int32_t b) {
    return tokens_[static_cast<size_t>(a)].id < tokens_[static_cast<size_t>(b)].id;
  });
  return {};
}

void AddedTokens::Cut(std::string_view text, bool normalized, bool parse_special,
                      std::vector<AddedMatch>* matches) const {
  const Matcher& matcher = matchers_[normalized ? 1 : 0];
  const auto range = [](size_t begin, size_t end) {
    return Range{static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
  };
  size_t covered = 0;
  size_t at = matcher.empty() ? text.size() : 0;
  while (at < text.size()) {
    size_t length = 1;
    int32_t found = -1;
    if (matcher.MayStartWith(text[at])) found = matcher.Longest(text, at, &length);
    size_t begin = at;
    at += found >= 0 ? length : 1;
    if (found < 0) continue;
    const AddedToken& token = tokens_[static_cast<size_t>(found)];
    size_t end = at;
    if (token.special && !parse_special) continue;
    if (token.single_word && TouchesWord(text, begin, end)) continue;
    while (token.lstrip && begin > covered) {
      const size_t previous = PreviousCharacter(text, begin);
      if (!IsWhiteSpace(CharacterAt(text, previous))) break;
      begin = previous;
    }
    while (token.rstrip && end < text.size() && IsWhiteSpace(CharacterAt(text, end))) {
      end += static_cast<size_t>(Utf8Length(text[end]));
    }
    if (covered < begin) matches->push_back({range(covered, begin), nullptr});
    matches->push_back({range(begin, end), &token});
    covered = end;
  }
  if (covered < text.size()) matches->push_back({range(covered, text.size()), nullptr});
}

const AddedToken* AddedTokens::FindById(int32_t id) const {
  const auto found =
      std::lower_bound(by_id_.begin(), by_id_.end(), id, [&](int32_t index, int32_t wanted) {
        return tokens_[static_cast<size_t>(index)].id < wanted;
      });
  if (found == by_id_.end() || tokens_[static_cast<size_t>(*found)].id != id) return nullptr;
  return &tokens_[static_cast<size_t>(*found)];
}

const AddedToken* AddedTokens::FindByContent(std::string_view content) const {
  const auto index = by_content_.Find(content);
  return index ? &tokens_[static_cast<size_t>(*index)] : nullptr;
}

}  // namespace tenon
