// The byte-level alphabet of GPT-2: every byte is spelled as one printable character (space is
// U+0120), so that a vocabulary of strings can hold any bytes. Hugging Face: bytes_char() in
// pre_tokenizers/byte_level.rs. Pure functions, thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace tenon {

// Appends the spelling of `bytes`; at most 2 bytes of UTF-8 for each.
void AppendByteSpelling(std::string_view bytes, std::string* out);
// Appends the bytes that `spelling` (valid UTF-8) stands for. False, and nothing appended, when a
// character of it is not in the alphabet.
bool AppendSpelledBytes(std::string_view spelling, std::string* out);

}  // namespace tenon
