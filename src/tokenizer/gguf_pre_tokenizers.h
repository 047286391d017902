// The pre-tokenizers that GGUF files name in tokenizer.ggml.pre: one table from name to regexes and
// habits. A name is all that the file says; what it means is llama.cpp's convention. Constant data.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/tokenizer/pre_tokenizer.h"

namespace tenon {

struct GgufPreTokenizer {
  std::string_view name;
  // Applied one after the other, each isolates its matches in the pieces of the one before.
  std::array<std::string_view, 4> regexes;  // the unused ones are empty
  bool ignore_merges = false;               // a word that is a token is taken whole
  bool add_bos = false;                     // unless the file says otherwise
};

// Errors (kRefused): an unknown name, with near names and all known ones.
Result<const GgufPreTokenizer*> FindGgufPreTokenizer(std::string_view name);
// The stages of a row, with the byte-level spelling at the end.
Result<std::unique_ptr<const PreTokenizer>> MakeGgufPreTokenizer(const GgufPreTokenizer& row);
// In table order, for documentation and tests.
std::vector<std::string_view> GgufPreTokenizerNames();

}  // namespace tenon
