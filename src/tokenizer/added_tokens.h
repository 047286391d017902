// AddedTokens: the tokens that are found in a text before the model sees it: special tokens and
// those added after training. Holds their flags and two matchers (raw and normalised text). Hugging
// Face: tokenizer/added_vocabulary.rs. Immutable once created; thread-safe.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/base/status.h"
#include "tenon/tokenizer/model.h"
#include "tenon/tokenizer/normalizer.h"

namespace tenon {

struct AddedToken {
  std::string content;
  int64_t id = -1;           // as the file says
  bool special = false;      // skipped by Decode on request; plain text when not parsed
  bool normalized = true;    // matched in normalised text
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // swallows white space to its left
  bool rstrip = false;       // and to its right
};

// A stretch of text: one added token, or what lies between two.
struct AddedMatch {
  Range range;
  const AddedToken* token = nullptr;  // null: ordinary text
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // In file order. A token of the vocabulary has its id there, whatever the file says; another one
  // gets the next free id, as Hugging Face does it; `notes` then gets a line. Errors: an id that
  // the vocabulary uses for another token, a normaliser that fails.
  static Result<AddedTokens> Create(std::vector<AddedToken> tokens, const Vocabulary& vocabulary,
                                    const Normalizer* normalizer, std::vector<std::string>* notes);

  // Cuts `text` at the tokens with this `normalized`; the matches cover it (one that swallows white
  // space may overlap the next). Special tokens are found only when `parse_special`.
  void Cut(std::string_view text, bool normalized, bool parse_special,
           std::vector<AddedMatch>* matches) const;

  const AddedToken* FindById(int32_t id) const;
  const AddedToken* FindByContent(std::string_view content) const;
  bool empty() const { return tokens_.empty(); }
  // One past the largest id; 0 when there are no tokens.
  int32_t id_limit() const { return id_limit_; }

 private:
  // Longest match from a start; children of a node are a linked list, the root has a table.
  class Matcher {
   public:
    void Add(std::string_view pattern, int32_t token);
    // The longest pattern that starts at text[from]; its token, or -1.
    int32_t Longest(std::string_view text, size_t from, size_t* length) const;
    bool MayStartWith(char byte) const { return root_[static_cast<unsigned char>(byte)] != 0; }
    bool empty() const { return nodes_.size() == 1; }

   private:
    struct Node {
      uint32_t child = 0;  // 0 = none: node 0 is nobody's child
      uint32_t sibling = 0;
      int32_t token = -1;
      char byte = 0;
    };
    std::vector<Node> nodes_ = std::vector<Node>(1);
    std::array<uint32_t, 256> root_{};
  };

  Status AssignIds(const Vocabulary& vocabulary, std::vector<std::string>* notes);

  std::vector<AddedToken> tokens_;   // in file order, no content twice
  std::vector<int32_t> by_id_;       // indices into tokens_, ascending ids
  Vocabulary by_content_;            // content -> index into tokens_
  std::array<Matcher, 2> matchers_;  // [normalized]
  int32_t id_limit_ = 0;
};

}  // namespace tenon
