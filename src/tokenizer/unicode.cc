#include "tenon/tokenizer/unicode.h"

#include <simdjson.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "tenon/base/check.h"
#include "tenon/tokenizer/unicode_additions.h"

namespace tenon {
namespace {

// How far the bytes at `text` go towards one well-formed sequence.
struct Sequence {
  int length = 0;  // bytes that belong together: a character, or a maximal ill-formed part
  enum Kind { kComplete, kIncomplete, kIllFormed } kind = kIllFormed;
};

// Table 3-7 of the Unicode standard (well-formed UTF-8 byte sequences).
Sequence NextSequence(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, Sequence::kComplete};
  if (lead < 0xC2 || lead > 0xF4) return {1, Sequence::kIllFormed};
  const int length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (int i = 1; i < length; ++i) {
    if (static_cast<size_t>(i) == text.size()) return {i, Sequence::kIncomplete};
    if (byte(i) < low || byte(i) > high) return {i, Sequence::kIllFormed};
    low = 0x80;
    high = 0xBF;
  }
  return {length, Sequence::kComplete};
}

// General category as two letters, of Unicode 16.0.
std::string_view CategoryOf(char32_t character) {
  const auto code = static_cast<utf8proc_int32_t>(character);
  if (utf8proc_category(code) == UTF8PROC_CATEGORY_CN) {
    const UnicodeAddition* addition = FindUnicodeAddition(character);
    return addition == nullptr ? "Cn" : addition->category;
  }
  return utf8proc_category_string(code);
}

// No normal form changes this character, and none joins it with one before it. Below U+0300 this is
// so for NFC, below U+0080 for all forms; the other ranges are letters of scripts without such
// cases.
bool IsInert(char32_t c, NormalForm form) {
  if (c < 0x80) return true;
  if (form == NormalForm::kNfc && (c < 0x300 || (c >= 0x388 && c <= 0x482))) return true;
  if (form == NormalForm::kNfc && c >= 0xAC00 && c <= 0xD7A3) return true;  // Hangul syllables
  return (c >= 0x2010 && c <= 0x2016 && c != 0x2011) || (c >= 0x2018 && c <= 0x2023) ||
         (c >= 0x3041 && c <= 0x3096 && form == NormalForm::kNfc) ||
         (c >= 0x30A1 && c <= 0x30FA && form == NormalForm::kNfc) || (c >= 0x4E00 && c <= 0x9FFF) ||
         (c >= 0x1F300 && c <= 0x1F5FF);
}

void AppendNormalized(std::string_view text, utf8proc_option_t options, std::string* out) {
  utf8proc_uint8_t* mapped = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &mapped, options);
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(mapped, &std::free);
  TN_CHECK(size >= 0, "the caller has validated the text");
  out->append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
}

}  // namespace

char32_t CharacterAt(std::string_view text, size_t position) {
  const auto byte = [&](size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[position + i]));
  };
  switch (Utf8Length(text[position])) {
    case 1:
      return byte(0);
    case 2:
      return ((byte(0) & 0x1F) << 6) | (byte(1) & 0x3F);
    case 3:
      return ((byte(0) & 0x0F) << 12) | ((byte(1) & 0x3F) << 6) | (byte(2) & 0x3F);
    default:
      return ((byte(0) & 0x07) << 18) | ((byte(1) & 0x3F) << 12) | ((byte(2) & 0x3F) << 6) |
             (byte(3) & 0x3F);
  }
}

size_t PreviousCharacter(std::string_view text, size_t position) {
  do {
    --position;
  } while (position > 0 && (static_cast<unsigned char>(text[position]) & 0xC0) == 0x80);
  return position;
}

void AppendUtf8(char32_t character, std::string* out) {
  utf8proc_uint8_t bytes[4];
  const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(character), bytes);
  out->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

size_t FindInvalidUtf8(std::string_view text) {
  if (simdjson::validate_utf8(text.data(), text.size())) return std::string_view::npos;
  size_t position = 0;
  while (position < text.size()) {
    const Sequence sequence = NextSequence(text.substr(position));
    if (sequence.kind != Sequence::kComplete) return position;
    position += static_cast<size_t>(sequence.length);
  }
  return std::string_view::npos;
}

bool IsWhiteSpace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsNumeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  return CategoryOf(c)[0] == 'N';
}

bool IsPunctuation(char32_t c) {
  if (c < 0x80) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  }
  return CategoryOf(c)[0] == 'P';
}

bool IsMark(char32_t c) { return c >= 0x300 && CategoryOf(c)[0] == 'M'; }

bool IsWord(char32_t c) {
  const std::string_view category = CategoryOf(c);
  if (category[0] == 'L' || category[0] == 'M') return true;
  if (category == "Nd" || category == "Nl" || category == "Pc") return true;
  // Alphabetic symbols (circled and squared letters) and the two joiners.
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189) || c == 0x200C ||
         c == 0x200D;
}

void AppendLowerCase(char32_t c, std::string* out) {
  // The one character whose lower case is always two (SpecialCasing.txt).
  if (c == 0x130) {
    out->append("i\xCC\x87");
    return;
  }
  AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
}

std::string Normalize(std::string_view text, NormalForm form) {
  int options = UTF8PROC_STABLE;
  const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  options |= composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
  std::string out;
  out.reserve(text.size());
  size_t copied = 0;      // what comes before is in `out`
  size_t last_inert = 0;  // the last inert character: what follows it may join it
  for (size_t at = 0; at < text.size();) {
    if (IsInert(CharacterAt(text, at), form)) {
      last_inert = at;
      at += static_cast<size_t>(Utf8Length(text[at]));
      continue;
    }
    size_t end = at;
    while (end < text.size() && !IsInert(CharacterAt(text, end), form)) {
      end += static_cast<size_t>(Utf8Length(text[end]));
    }
    const size_t begin = std::max(copied, last_inert);
    out.append(text.substr(copied, begin - copied));
    AppendNormalized(text.substr(begin, end - begin), static_cast<utf8proc_option_t>(options),
                     &out);
    copied = end;
    last_inert = end;
    at = end;
  }
  out.append(text.substr(copied));
  return out;
}

void Utf8Stream::Push(std::string_view bytes, std::string* out) {
  std::string joined;
  if (!pending_.empty()) {
    joined = pending_ + std::string(bytes);
    bytes = joined;
    pending_.clear();
  }
  size_t start = 0;  // of the well-formed run not yet copied
  size_t position = 0;
  while (position < bytes.size()) {
    const Sequence sequence = NextSequence(bytes.substr(position));
    if (sequence.kind != Sequence::kComplete) {
      out->append(bytes.substr(start, position - start));
      start = position + static_cast<size_t>(sequence.length);
      if (sequence.kind == Sequence::kIncomplete) {
        pending_ = bytes.substr(position);
      } else {
        out->append(kReplacementCharacter);
      }
    }
    position += static_cast<size_t>(sequence.length);
  }
  out->append(bytes.substr(start));
}

void Utf8Stream::Finish(std::string* out) {
  if (!pending_.empty()) out->append(kReplacementCharacter);
  pending_.clear();
}

}  // namespace tenon
