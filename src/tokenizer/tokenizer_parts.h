// TokenizerParts: what a Tokenizer is made of, whichever container it was read from, and the
// readers that make it. Internal to this layer. Immutable once read; thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tenon/tokenizer/added_tokens.h"
#include "tenon/tokenizer/decoder.h"
#include "tenon/tokenizer/model.h"
#include "tenon/tokenizer/normalizer.h"
#include "tenon/tokenizer/post_processor.h"
#include "tenon/tokenizer/pre_tokenizer.h"
#include "tenon/tokenizer/tokenizer.h"

namespace tenon {

struct TokenizerParts {
  std::unique_ptr<const Normalizer> normalizer;       // null: text stays as it is
  std::unique_ptr<const PreTokenizer> pre_tokenizer;  // null: one word
  std::unique_ptr<const TokenModel> model;            // never null
  AddedTokens added;
  PostProcessor post;
  std::vector<std::unique_ptr<const Decoder>> decoders;
  SpecialTokenIds special;
  std::vector<std::string> notes;
};

// `json` is a whole tokenizer.json of which `readable` >= json.size() bytes may be read (simdjson
// reads past the end; a copy is made where there is too little room).
Result<TokenizerParts> ReadTokenizerJson(std::string_view json, size_t readable);
Result<TokenizerParts> ReadGgufVocabulary(const GgufVocabulary& vocabulary);

}  // namespace tenon
