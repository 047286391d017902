#include "tenon/tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "tenon/tokenizer/unicode.h"

namespace tenon {
namespace {

constexpr int kAlphabetEnd = 0x144;  // 256 + the 68 bytes that have no printable Latin-1 character

constexpr bool IsPrintable(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// character[b] = the code point that spells byte b.
constexpr std::array<uint16_t, 256> MakeCharacters() {
  std::array<uint16_t, 256> characters{};
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    characters[byte] = static_cast<uint16_t>(IsPrintable(byte) ? byte : next++);
  }
  return characters;
}
constexpr auto kCharacters = MakeCharacters();

// bytes[c] = the byte that code point c spells, or -1.
constexpr std::array<int16_t, kAlphabetEnd> MakeBytes() {
  std::array<int16_t, kAlphabetEnd> bytes{};
  for (auto& byte : bytes) byte = -1;
  for (int byte = 0; byte < 256; ++byte) bytes[kCharacters[byte]] = static_cast<int16_t>(byte);
  return bytes;
}
constexpr auto kBytes = MakeBytes();

}  // namespace

void AppendByteSpelling(std::string_view bytes, std::string* out) {
  const size_t old_size = out->size();
  out->resize(old_size + 2 * bytes.size());
  char* write = out->data() + old_size;
  for (const char c : bytes) {
    const uint16_t character = kCharacters[static_cast<unsigned char>(c)];
    if (character < 0x80) {
      *write++ = static_cast<char>(character);
    } else {
      *write++ = static_cast<char>(0xC0 | (character >> 6));
      *write++ = static_cast<char>(0x80 | (character & 0x3F));
    }
  }
  out->resize(static_cast<size_t>(write - out->data()));
}

bool AppendSpelledBytes(std::string_view spelling, std::string* out) {
  const size_t old_size = out->size();
  for (size_t i = 0; i < spelling.size(); i += static_cast<size_t>(Utf8Length(spelling[i]))) {
    const char32_t character = CharacterAt(spelling, i);
    if (character >= kAlphabetEnd || kBytes[character] < 0) {
      out->resize(old_size);
      return false;
    }
    out->push_back(static_cast<char>(kBytes[character]));
  }
  return true;
}

}  // namespace tenon
