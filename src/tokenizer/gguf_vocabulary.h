// GgufVocabulary: the tokenizer metadata of a GGUF file, handed in raw by whoever parsed the file
// (this layer does not know GGUF). Views into the file; Tokenizer::FromGguf copies what it needs.
// Not a tokenizer itself. A value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

// tokenizer.ggml.token_type; the numbers of the file format.
enum class GgufTokenType : int32_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct GgufVocabulary {
  std::string model;  // tokenizer.ggml.model: "gpt2" is byte-level BPE
  std::string pre;    // tokenizer.ggml.pre; empty when the file has none
  std::vector<std::string_view> tokens;
  std::vector<int32_t> token_types;      // [tokens] or empty: all normal
  std::vector<std::string_view> merges;  // "left right"
  std::vector<float> scores;             // [tokens] or empty; unused by "gpt2"
  std::optional<int64_t> bos_id;
  std::optional<int64_t> eos_id;
  std::optional<int64_t> unk_id;
  std::optional<int64_t> pad_id;
  std::optional<bool> add_bos;  // absent: what the pre-tokenizer's models do
  std::optional<bool> add_eos;
};

}  // namespace tenon
