// Small helpers for text in messages and names. Not for user text (tokenizer/). Pure functions,
// thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

std::string Join(std::span<const std::string> parts, std::string_view separator);
std::string Join(std::span<const std::string_view> parts, std::string_view separator);
// "[2, 3, 4]": how shapes are printed in every message.
std::string ShapeText(std::span<const int64_t> dims);
// Splits at every `separator`; an empty text gives one empty part.
std::vector<std::string_view> Split(std::string_view text, char separator);
std::string_view Trim(std::string_view text);  // ASCII blanks
std::string ToLowerAscii(std::string_view text);
bool EqualsIgnoreCase(std::string_view a, std::string_view b);
// "1.5 GiB", "98 MiB", "312 B".
std::string BytesText(int64_t bytes);

// Text of unknown origin for a terminal: control characters but the newline, and bytes that are no
// UTF-8, become \xNN; what is longer than `limit` bytes is cut, and its length said.
std::string Printable(std::string_view text, size_t limit = std::string_view::npos);

// Levenshtein distance.
int EditDistance(std::string_view a, std::string_view b);
// Up to `limit` candidates that resemble `name`, nearest first: for "did you mean".
std::vector<std::string> NearNames(std::string_view name, std::span<const std::string> candidates,
                                   int limit = 3);

}  // namespace tenon
