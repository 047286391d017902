// Tokenizer: text <-> token ids, as the Hugging Face tokenizers library does it for tokenizer.json
// and llama.cpp for a GGUF's vocabulary. Not chat templates (chat_template.h). A Tokenizer is
// immutable and thread-safe; a StreamDecoder belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/base/status.h"

namespace tenon {

struct GgufVocabulary;
struct TokenizerParts;
class DecodeChain;

struct EncodeOptions {
  bool add_special_tokens = true;  // the file's begin and end tokens around the text
  bool parse_special = true;       // special tokens spelled in the text become that token
  bool with_pieces = false;        // fill Encoding::pieces
};

struct Encoding {
  std::vector<int32_t> ids;
  // [ids] the tokens as the vocabulary spells them ("\u0120world"); an added token as it stood in
  // the text, with the white space that it swallowed. Empty unless asked for.
  std::vector<std::string> pieces;
};

struct DecodeOptions {
  bool skip_special = true;  // leave special tokens out of the text
};

// What the container says about single tokens; which of them end an answer is for the caller to
// decide together with generation_config.json.
struct SpecialTokenIds {
  std::optional<int32_t> bos;
  std::optional<int32_t> eos;
  std::optional<int32_t> unk;
  std::optional<int32_t> pad;
};

class Tokenizer {
 public:
  // The text of a tokenizer.json. Errors (kRefused) name the component or place and what is
  // supported.
  static Result<std::shared_ptr<const Tokenizer>> FromJson(std::string_view json);
  static Result<std::shared_ptr<const Tokenizer>> FromFile(const std::string& path);
  // A Hugging Face directory: tokenizer.json, and from tokenizer_config.json, when it is there, the
  // names of the bos, eos, unk and pad tokens.
  static Result<std::shared_ptr<const Tokenizer>> FromDirectory(const std::string& directory);
  static Result<std::shared_ptr<const Tokenizer>> FromGguf(const GgufVocabulary& vocabulary);

  explicit Tokenizer(TokenizerParts parts);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Errors (kUsage): text that is not UTF-8 or longer than 1 GiB, a regex that gives up on it.
  Result<Encoding> Encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Errors (kUsage): an id outside [0, vocab_size). Ids without a token are left out; bytes that
  // are not UTF-8 become U+FFFD.
  Result<std::string> Decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;
  Result<std::string> Decode(std::span<const int64_t> ids, const DecodeOptions& options = {}) const;

  // One past the largest id (a model may have more rows than this, for padding).
  int32_t vocab_size() const;
  std::optional<int32_t> TokenId(std::string_view token) const;
  // The spelling; empty when no token has this id.
  std::string_view TokenText(int64_t id) const;
  bool IsSpecial(int64_t id) const;
  const SpecialTokenIds& special() const;
  // What encoding puts before and after a text; a chat template that prints its own begin token is
  // encoded without.
  std::span<const int32_t> tokens_before() const;
  std::span<const int32_t> tokens_after() const;
  // What in the file was ignored or read otherwise than written, for the ledger.
  const std::vector<std::string>& notes() const;

 private:
  friend class StreamDecoder;
  // The token to decode, or nothing when it is to be skipped.
  Result<std::optional<std::string_view>> SpellingToDecode(int64_t id,
                                                           const DecodeOptions& options) const;
  template <typename Id>
  Result<std::string> DecodeIds(std::span<const Id> ids, const DecodeOptions& options) const;
  Status EncodeText(std::string_view text, bool starts_input, const EncodeOptions& options,
                    Encoding* encoding) const;
  Status EncodePlain(std::string_view text, bool starts_input, const EncodeOptions& options,
                     Encoding* encoding) const;

  std::unique_ptr<const TokenizerParts> parts_;
};

// Decodes ids as they are generated. What Push returns, joined, and Finish's rest are the text that
// Decode gives; a character goes out with its last byte. (Byte-fallback vocabularies: an invalid
// byte cannot take back the characters already shown of its run.)
class StreamDecoder {
 public:
  explicit StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer,
                         const DecodeOptions& options = {});
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  // The text that this id finishes; often empty. Errors (kUsage): an id outside [0, vocab_size).
  Result<std::string> Push(int64_t id);
  // The rest: an unfinished character becomes U+FFFD. Nothing may be pushed afterwards.
  std::string Finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  DecodeOptions options_;
  std::unique_ptr<std::string> out_;  // its address outlives moves
  std::unique_ptr<DecodeChain> chain_;
};

}  // namespace tenon
