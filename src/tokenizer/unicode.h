// Unicode facts that tokenisation needs: UTF-8 in and out, character classes as the Hugging Face
// tokenizers library sees them, normal forms. Not a general Unicode library and not for regexes
// (regex.h). Pure functions, thread-safe; Utf8Stream is a value for one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tenon {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// Bytes of the UTF-8 sequence that starts with `lead`, in valid text.
inline int Utf8Length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
// The character that starts at text[position]; the text is valid UTF-8.
char32_t CharacterAt(std::string_view text, size_t position);
// The start of the character that ends before text[position]; the text is valid UTF-8.
size_t PreviousCharacter(std::string_view text, size_t position);
void AppendUtf8(char32_t character, std::string* out);
// The offset of the first byte that is not well-formed UTF-8; npos when all of it is.
size_t FindInvalidUtf8(std::string_view text);

// Rust's char::is_whitespace = the Unicode property White_Space.
bool IsWhiteSpace(char32_t character);
bool IsNumeric(char32_t character);      // Nd, Nl, No: Rust's char::is_numeric
bool IsPunctuation(char32_t character);  // P*, or an ASCII symbol: what HF's pre-tokenizers cut at
bool IsMark(char32_t character);         // M*
bool IsWord(char32_t character);         // \w: Alphabetic, M*, Nd, Pc, joiners
void AppendLowerCase(char32_t character, std::string* out);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
// `text` is valid UTF-8.
std::string Normalize(std::string_view text, NormalForm form);

// Bytes in pieces -> UTF-8 text. Each maximal ill-formed part becomes one U+FFFD (as Rust's
// from_utf8_lossy and Python's "replace" do); an unfinished sequence is held back.
class Utf8Stream {
 public:
  void Push(std::string_view bytes, std::string* out);
  // What is still held back can no longer become a character.
  void Finish(std::string* out);

 private:
  std::string pending_;  // at most 3 bytes: the start of a sequence
};

}  // namespace tenon
