#include "tenon/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace tenon {
namespace {

template <typename Part>
std::string JoinParts(std::span<const Part> parts, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += separator;
    text += parts[i];
  }
  return text;
}

// Bytes of the UTF-8 character at the front, 0 when there is none. Does not refuse surrogates: what
// matters is what a terminal does with the bytes.
size_t CharacterBytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  const size_t length = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (lead > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 0;
  }
  return length;
}

// C0, DEL and C1.
bool IsControl(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return lead < 0x20 || lead == 0x7F;
  return lead == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
}

}  // namespace

std::string Printable(std::string_view text, size_t limit) {
  const size_t whole = text.size();
  std::string out;
  while (!text.empty() && whole - text.size() < limit) {
    const size_t bytes = std::max<size_t>(CharacterBytes(text), 1);
    const std::string_view character = text.substr(0, bytes);
    text.remove_prefix(bytes);
    const bool broken = bytes == 1 && static_cast<unsigned char>(character[0]) >= 0x80;
    if (character == "\n" || !(broken || IsControl(character))) {
      out += character;
      continue;
    }
    for (const char byte : character) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    }
  }
  if (!text.empty()) out += fmt::format("... ({} bytes)", whole);
  return out;
}

std::string Join(std::span<const std::string> parts, std::string_view separator) {
  return JoinParts(parts, separator);
}
std::string Join(std::span<const std::string_view> parts, std::string_view separator) {
  return JoinParts(parts, separator);
}

std::string ShapeText(std::span<const int64_t> dims) {
  return fmt::format("[{}]", fmt::join(dims.begin(), dims.end(), ", "));
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::string_view Trim(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

std::string ToLowerAscii(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

bool EqualsIgnoreCase(std::string_view a, std::string_view b) {
  return ToLowerAscii(a) == ToLowerAscii(b);
}

std::string BytesText(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.{}f} {}", value, std::abs(value) < 10 ? 1 : 0, kUnits[unit]);
}

int EditDistance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int next =
          std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = row[j];
      row[j] = next;
    }
  }
  return row.back();
}

std::vector<std::string> NearNames(std::string_view name, std::span<const std::string> candidates,
                                   int limit) {
  const std::string lower = ToLowerAscii(name);
  // A third of the name may differ: beyond that a suggestion confuses more than it helps.
  const int allowed = std::max<int>(2, static_cast<int>(name.size()) / 3);
  std::vector<std::pair<int, std::string>> near;
  for (const std::string& candidate : candidates) {
    // At least this far apart; also keeps a name of megabytes from costing its square.
    const auto apart = static_cast<int64_t>(name.size()) - static_cast<int64_t>(candidate.size());
    if (std::abs(apart) > allowed) continue;
    const int distance = EditDistance(lower, ToLowerAscii(candidate));
    if (distance <= allowed) near.emplace_back(distance, candidate);
  }
  std::sort(near.begin(), near.end());
  near.erase(std::unique(near.begin(), near.end()), near.end());
  std::vector<std::string> names;
  for (const auto& [distance, candidate] : near) {
    if (static_cast<int>(names.size()) == limit) break;
    names.push_back(candidate);
  }
  return names;
}

}  // namespace tenon
