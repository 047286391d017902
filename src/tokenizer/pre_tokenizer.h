// PreTokenizer: cuts normalised text into the words that the model may not merge across, and may
// respell them (byte-level alphabet, metaspace). Made from tokenizer.json's "pre_tokenizer" or from
// a GGUF's pre-tokenizer name. Immutable, thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "tenon/tokenizer/component_json.h"
#include "tenon/tokenizer/text_split.h"

namespace tenon {

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Errors: a regex that gives up on this text.
  virtual Status Apply(PieceList* list) const = 0;
};

// Null for JSON null (the whole text is one word). Errors (kRefused) name the component.
Result<std::unique_ptr<const PreTokenizer>> MakePreTokenizer(const ComponentJson& json);

// The same parts for callers without JSON.
std::unique_ptr<const PreTokenizer> MakeSequence(
    std::vector<std::unique_ptr<const PreTokenizer>> stages);
std::unique_ptr<const PreTokenizer> MakeSplit(Pattern pattern, SplitBehavior behavior, bool invert);
// Spells bytes in the byte-level alphabet; cuts nothing.
std::unique_ptr<const PreTokenizer> MakeByteSpelling();

// GPT-2's regex, which ByteLevel runs unless use_regex is false.
inline constexpr const char* kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace tenon
