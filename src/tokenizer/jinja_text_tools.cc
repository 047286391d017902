#include "tenon/tokenizer/jinja_text_tools.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "tenon/tokenizer/jinja_unicode.h"

namespace tenon::jinja {
namespace {

std::string InsertEverywhere(std::string_view text, std::string_view insert, Int limit) {
  std::string out;
  size_t at = 0;
  Int done = 0;
  for (; at < text.size() && (limit < 0 || done < limit); ++done) {
    const size_t num_bytes = DecodeAt(text, at).num_bytes;
    out += insert;
    out += text.substr(at, num_bytes);
    at += num_bytes;
  }
  out += text.substr(at);
  if (limit < 0 || done < limit) out += insert;
  return out;
}

// Drops comments and tags; an unclosed one stays.
std::string WithoutTags(std::string_view html) {
  std::string out;
  size_t from = 0;
  for (size_t open = html.find('<'); open != std::string_view::npos; open = html.find('<', from)) {
    const bool comment = html.substr(open).starts_with("<!--");
    const size_t close = comment ? FindText(html, "-->", open + 4) : html.find('>', open);
    if (close == std::string_view::npos) break;
    out += html.substr(from, open - from);
    from = close + (comment ? 3 : 1);
  }
  out += html.substr(from);
  return out;
}

// The character of an entity's body ("amp", "#39", "#x27"); 0 when it is not known.
char32_t EntityOf(std::string_view body) {
  constexpr std::pair<std::string_view, char32_t> kNamed[] = {
      {"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}, {"nbsp", 0xA0}};
  for (const auto& [name, value] : kNamed) {
    if (body == name) return value;
  }
  if (!body.starts_with('#')) return 0;
  body.remove_prefix(1);
  const bool hex = body.starts_with('x') || body.starts_with('X');
  if (hex) body.remove_prefix(1);
  uint32_t number = 0;
  const auto parsed =
      std::from_chars(body.data(), body.data() + body.size(), number, hex ? 16 : 10);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == body.data() + body.size();
  if (!whole || number > 0x10FFFF || (number >= 0xD800 && number < 0xE000)) return 0;
  return number;
}

std::string ResolveEntities(std::string_view text) {
  constexpr size_t kLongestEntity = 12;
  std::string out;
  size_t from = 0;
  for (size_t at = text.find('&'); at != std::string_view::npos; at = text.find('&', at + 1)) {
    const size_t end = text.substr(at, kLongestEntity).find(';');
    if (end == std::string_view::npos) continue;
    const char32_t character = EntityOf(text.substr(at + 1, end - 1));
    if (character == 0) continue;
    out += text.substr(from, at - from);
    AppendUtf8(character, out);
    from = at + end + 1;
  }
  out += text.substr(from);
  return out;
}

}  // namespace

std::string StripMarkup(std::string_view html) {
  const std::string text = WithoutTags(html);
  std::string joined;
  for (const std::string_view word : SplitBlanks(text, -1)) {
    if (!joined.empty()) joined += ' ';
    joined += word;
  }
  return ResolveEntities(joined);
}

size_t CountText(std::string_view text, std::string_view needle) {
  size_t count = 0;
  for (size_t at = FindText(text, needle); at != std::string_view::npos;
       at = FindText(text, needle, at + needle.size())) {
    ++count;
  }
  return count;
}

Result<std::string> ReplaceText(Runtime& runtime, std::string_view text, std::string_view old_text,
                                std::string_view new_text, Int limit) {
  if (old_text.empty()) {
    TN_RETURN_IF_ERROR(
        runtime.Reserve(static_cast<Int>(text.size() + 1) * static_cast<Int>(new_text.size() + 1)));
    return InsertEverywhere(text, new_text, limit);
  }
  if (!runtime.Work(text.size() < old_text.size() ? 1 : static_cast<int64_t>(text.size() / 16))) {
    return runtime.failure();
  }
  if (new_text.size() > old_text.size()) {
    const auto count = static_cast<Int>(CountText(text, old_text));
    TN_RETURN_IF_ERROR(
        runtime.Reserve(static_cast<Int>(text.size()) + count * static_cast<Int>(new_text.size())));
  }
  std::string out;
  size_t from = 0;
  for (Int done = 0; limit < 0 || done < limit; ++done) {
    const size_t at = FindText(text, old_text, from);
    if (at == std::string_view::npos) break;
    out += text.substr(from, at - from);
    out += new_text;
    from = at + old_text.size();
  }
  out += text.substr(from);
  return out;
}

std::vector<std::string_view> SplitAt(std::string_view text, std::string_view separator,
                                      Int limit) {
  std::vector<std::string_view> parts;
  size_t from = 0;
  for (Int done = 0; limit < 0 || done < limit; ++done) {
    const size_t at = FindText(text, separator, from);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(from, at - from));
    from = at + separator.size();
  }
  parts.push_back(text.substr(from));
  return parts;
}

std::vector<std::string_view> SplitFromEnd(std::string_view text, std::string_view separator,
                                           Int limit) {
  // Searching the reversed text keeps the time linear.
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_separator(separator.rbegin(), separator.rend());
  std::vector<std::string_view> parts;
  for (const std::string_view part : SplitAt(reversed_text, reversed_separator, limit)) {
    const auto begin = static_cast<size_t>(part.data() - reversed_text.data());
    parts.push_back(text.substr(text.size() - begin - part.size(), part.size()));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> SplitBlanks(std::string_view text, Int limit) {
  std::vector<std::string_view> parts;
  text = StripLeft(text);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<Int>(parts.size()) >= limit) {
      parts.push_back(text);  // keeps the blanks at its end
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      const CodePoint point = DecodeAt(text, end);
      if (IsSpace(point.value)) break;
      end += point.num_bytes;
    }
    parts.push_back(text.substr(0, end));
    text = StripLeft(text.substr(end));
  }
  return parts;
}

std::vector<std::string_view> SplitBlanksFromEnd(std::string_view text, Int limit) {
  std::vector<std::string_view> parts;
  text = StripRight(text);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<Int>(parts.size()) >= limit) {
      parts.push_back(text);
      break;
    }
    size_t begin = text.size();
    while (begin > 0) {
      const CodePoint point = DecodeBefore(text, begin);
      if (IsSpace(point.value)) break;
      begin -= point.num_bytes;
    }
    parts.push_back(text.substr(begin));
    text = StripRight(text.substr(0, begin));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Result<std::string> JustifyText(Runtime& runtime, std::string_view text, char align, Int width,
                                std::string_view fill) {
  const Int missing = width - static_cast<Int>(CountCodePoints(text));
  if (missing <= 0) return std::string(text);
  TN_RETURN_IF_ERROR(runtime.Reserve(missing * static_cast<Int>(fill.size())));
  Int left = align == '>' ? missing : 0;
  // Python gives the odd blank to the left when the width is odd.
  if (align == '^') left = missing / 2 + (missing & width & 1);
  std::string out;
  for (Int i = 0; i < left; ++i) out += fill;
  out += text;
  for (Int i = left; i < missing; ++i) out += fill;
  return out;
}

bool IsAllCased(std::string_view text, bool upper) {
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = DecodeAt(text, at);
    at += point.num_bytes;
    const bool is_upper = IsUpper(point.value);
    const bool is_lower = IsLower(point.value);
    if (IsTitlecase(point.value) || (upper ? is_lower : is_upper)) return false;
    any = any || (upper ? is_upper : is_lower);
  }
  return any;
}

Value TextList(Runtime& runtime, const Value& like, const std::vector<std::string_view>& parts) {
  Values items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) {
    items.push_back(runtime.StringLike(like, std::string(part)));
    if (!runtime.ok()) return {};
  }
  return runtime.List(std::move(items));
}

}  // namespace tenon::jinja
