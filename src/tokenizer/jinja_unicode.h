// Text as Python's str sees it: a sequence of code points with Python's character classes, case
// mappings, line ends and stripping. Every text here is valid UTF-8 (the callers see to it); a
// damaged one still causes no over-read. Not for tokenisation. Pure functions, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::jinja {

struct CodePoint {
  char32_t value;
  size_t num_bytes;  // at least 1
};
// The code point that starts at byte `at` (< text.size()).
CodePoint DecodeAt(std::string_view text, size_t at);
// The code point that ends before byte `end` (> 0).
CodePoint DecodeBefore(std::string_view text, size_t end);
void AppendUtf8(char32_t code_point, std::string& out);
bool IsValidUtf8(std::string_view text);
std::string ReplaceInvalidUtf8(std::string_view text);
size_t CountCodePoints(std::string_view text);
// Byte offset of code point number `index`; the text's size when it is shorter.
size_t ByteOffset(std::string_view text, size_t index);

// The str.is...() classes of single code points.
bool IsSpace(char32_t c);
bool IsAlpha(char32_t c);
bool IsDecimal(char32_t c);
bool IsDigit(char32_t c);
bool IsNumeric(char32_t c);
bool IsAlnum(char32_t c);
bool IsLower(char32_t c);
bool IsUpper(char32_t c);
bool IsTitlecase(char32_t c);
bool IsPrintable(char32_t c);
bool IsIdentifier(std::string_view text);

std::string ToLower(std::string_view text);
std::string ToUpper(std::string_view text);
std::string ToTitle(std::string_view text);
std::string Capitalize(std::string_view text);
std::string SwapCase(std::string_view text);
std::string CaseFold(std::string_view text);

// Strips blanks, or the code points of `chars` where it is not null.
std::string_view StripLeft(std::string_view text, const std::string_view* chars = nullptr);
std::string_view StripRight(std::string_view text, const std::string_view* chars = nullptr);
// Lines without their ends ("\r\n" is one end); a final line end opens no empty line.
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends = false);

// Position of `needle` at or after `from`, npos when absent. Linear time also on hostile input.
size_t FindText(std::string_view text, std::string_view needle, size_t from = 0);
size_t FindLastText(std::string_view text, std::string_view needle);

}  // namespace tenon::jinja
