// BpeModel: byte-pair encoding over characters as Hugging Face tokenizers' models/bpe does it,
// which also serves SentencePiece BPE (byte fallback, fused unknowns). A word of n characters costs
// O(n log n). Source of the algorithm: Sennrich et al. 2016; of the details: models/bpe/model.rs.
// Immutable, thread-safe.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tenon/base/status.h"
#include "tenon/tokenizer/merge_table.h"
#include "tenon/tokenizer/model.h"

namespace tenon {

struct BpeOptions {
  bool ignore_merges = false;  // a word that is a token is taken whole
  bool fuse_unknown = false;   // neighbouring unknown characters become one unknown token
  bool byte_fallback = false;  // an unknown character becomes its bytes "<0xNN>", if all exist
  std::optional<std::string> unknown_token;  // absent: unknown characters vanish
  std::string continuing_subword_prefix;
  std::string end_of_word_suffix;
};

// A merge rule as read; `merged` is looked up when the model is built.
struct MergePair {
  int32_t left = 0;
  int32_t right = 0;
};

class BpeModel final : public TokenModel {
 public:
  ~BpeModel() override;
  // Errors (kRefused): an unknown_token or the result of a merge that is not in the vocabulary.
  static Result<std::unique_ptr<const BpeModel>> Create(Vocabulary vocabulary,
                                                        std::span<const MergePair> merges,
                                                        BpeOptions options);

  void Tokenize(std::string_view text, std::span<const Range> words,
                std::vector<int32_t>* ids) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  struct Scratch;
  struct LazyCuts;
  BpeModel(Vocabulary vocabulary, MergeTable merges, BpeOptions options);
  // The words with those longer than `long_word_` cut where no token can reach across; empty when
  // there are none.
  std::vector<Range> CutLongWords(std::string_view text, std::span<const Range> words) const;
  void CutWord(std::string_view text, Range word, std::vector<Range>* pieces) const;
  void TokenizeWord(std::string_view word, Scratch* scratch, std::vector<int32_t>* ids) const;
  void SplitIntoSymbols(std::string_view word, std::vector<int32_t>* symbols) const;
  bool AppendBytes(std::string_view character, std::vector<int32_t>* symbols) const;
  int32_t FindCharacter(std::string_view word, size_t begin, size_t end) const;
  void MergeShort(std::vector<int32_t>* symbols, Scratch* scratch) const;
  void MergeLong(const std::vector<int32_t>& symbols, Scratch* scratch,
                 std::vector<int32_t>* ids) const;

  static constexpr int kDirectCharacters = 0x800;  // all that UTF-8 spells with one or two bytes

  Vocabulary vocabulary_;
  MergeTable merges_;
  BpeOptions options_;
  uint32_t long_word_;  // bytes; cutting costs a pass over the vocabulary, once
  std::unique_ptr<LazyCuts> cuts_;
  int32_t unknown_id_ = -1;
  std::array<int32_t, 256> byte_ids_{};  // "<0xNN>", -1 = not in the vocabulary
  std::vector<int32_t> character_ids_;   // [kDirectCharacters], -1 = none
};

}  // namespace tenon
