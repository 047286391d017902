#include "tenon/tokenizer/jinja_unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "tenon/tokenizer/jinja_unicode_tables.h"
#include "tenon/tokenizer/unicode.h"

namespace tenon::jinja {
namespace {

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

template <size_t N>
bool InRanges(const CodePointRange (&ranges)[N], char32_t c) {
  const auto* found =
      std::upper_bound(std::begin(ranges), std::end(ranges), c,
                       [](char32_t value, const CodePointRange& r) { return value < r.first; });
  return found != std::begin(ranges) && c <= std::prev(found)->last;
}

template <size_t N>
const CaseExpansion* FindExpansion(const CaseExpansion (&table)[N], char32_t c) {
  const auto* found =
      std::lower_bound(std::begin(table), std::end(table), c,
                       [](const CaseExpansion& e, char32_t value) { return e.from < value; });
  return found != std::end(table) && found->from == c ? found : nullptr;
}

void AppendExpansion(const CaseExpansion& expansion, std::string& out) {
  for (const char32_t c : expansion.to) {
    if (c != 0) AppendUtf8(c, out);
  }
}

utf8proc_category_t CategoryOf(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}
bool IsCased(char32_t c) { return IsLower(c) || IsUpper(c) || IsTitlecase(c); }

bool IsCaseIgnorable(char32_t c) {
  switch (CategoryOf(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2018 || c == 0x2019 ||
             c == 0x2024 || c == 0x2027 || c == 0x387;
  }
}

constexpr char32_t kCapitalSigma = 0x3A3;
constexpr char32_t kSmallSigma = 0x3C3;
constexpr char32_t kFinalSigma = 0x3C2;

// A capital sigma at the end of a word has its own lowercase form (Unicode's Final_Sigma rule).
char32_t LowerSigma(std::string_view text, size_t at) {
  size_t before = at;
  bool cased_before = false;
  while (before > 0) {
    const CodePoint point = DecodeBefore(text, before);
    before -= point.num_bytes;
    if (IsCaseIgnorable(point.value)) continue;
    cased_before = IsCased(point.value);
    break;
  }
  if (!cased_before) return kSmallSigma;
  for (size_t after = at + 2; after < text.size();) {
    const CodePoint point = DecodeAt(text, after);
    after += point.num_bytes;
    if (IsCaseIgnorable(point.value)) continue;
    return IsCased(point.value) ? kSmallSigma : kFinalSigma;
  }
  return kFinalSigma;
}

void AppendLower(std::string_view text, size_t at, char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  } else if (c == kCapitalSigma) {
    AppendUtf8(LowerSigma(text, at), out);
  } else if (c == 0x130) {
    out += "i\xCC\x87";  // the only lowercase form of two code points
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
  }
}

void AppendUpper(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  } else if (const CaseExpansion* expansion = FindExpansion(kUpperExpansions, c)) {
    AppendExpansion(*expansion, out);
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))), out);
  }
}

void AppendTitle(char32_t c, std::string& out) {
  if (const CaseExpansion* expansion = FindExpansion(kTitleExpansions, c)) {
    AppendExpansion(*expansion, out);
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))), out);
  }
}

// Membership in a small set of code points; sorted, so that a long set costs no quadratic time.
class CodePointSet {
 public:
  explicit CodePointSet(std::string_view chars) {
    for (size_t at = 0; at < chars.size();) {
      const CodePoint point = DecodeAt(chars, at);
      at += point.num_bytes;
      members_.push_back(point.value);
    }
    std::sort(members_.begin(), members_.end());
  }
  bool Has(char32_t c) const { return std::binary_search(members_.begin(), members_.end(), c); }

 private:
  std::vector<char32_t> members_;
};

template <typename Predicate>
std::string_view StripLeftWhere(std::string_view text, const Predicate& strip) {
  while (!text.empty()) {
    const CodePoint point = DecodeAt(text, 0);
    if (!strip(point.value)) break;
    text.remove_prefix(point.num_bytes);
  }
  return text;
}

template <typename Predicate>
std::string_view StripRightWhere(std::string_view text, const Predicate& strip) {
  while (!text.empty()) {
    const CodePoint point = DecodeBefore(text, text.size());
    if (!strip(point.value)) break;
    text.remove_suffix(point.num_bytes);
  }
  return text;
}

bool IsLineEnd(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

CodePoint DecodeAt(std::string_view text, size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return {byte, 1};
  utf8proc_int32_t value = 0;
  const utf8proc_ssize_t used =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at),
                       static_cast<utf8proc_ssize_t>(text.size() - at), &value);
  if (used <= 0) return {0xFFFD, 1};
  return {static_cast<char32_t>(value), static_cast<size_t>(used)};
}

CodePoint DecodeBefore(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && end - at < 4 && IsContinuation(text[at])) --at;
  const CodePoint point = DecodeAt(text.substr(0, end), at);
  if (at + point.num_bytes == end) return point;
  return {0xFFFD, 1};
}

void AppendUtf8(char32_t code_point, std::string& out) { tenon::AppendUtf8(code_point, &out); }

bool IsValidUtf8(std::string_view text) { return FindInvalidUtf8(text) == std::string_view::npos; }

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = DecodeAt(text, at);
    AppendUtf8(point.value, out);
    at += point.num_bytes;
  }
  return out;
}

size_t CountCodePoints(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += IsContinuation(c) ? 0 : 1;
  return count;
}

size_t ByteOffset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) {
    ++at;
    while (at < text.size() && IsContinuation(text[at])) ++at;
  }
  return at;
}

bool IsSpace(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsAlpha(char32_t c) {
  const auto category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}
bool IsDecimal(char32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_ND; }
bool IsDigit(char32_t c) { return IsDecimal(c) || InRanges(kDigitExtra, c); }
bool IsNumeric(char32_t c) {
  const auto category = CategoryOf(c);
  return (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) ||
         InRanges(kNumericExtra, c);
}
bool IsAlnum(char32_t c) { return IsAlpha(c) || IsNumeric(c); }
bool IsLower(char32_t c) {
  return CategoryOf(c) == UTF8PROC_CATEGORY_LL || InRanges(kLowerExtra, c);
}
bool IsUpper(char32_t c) {
  return CategoryOf(c) == UTF8PROC_CATEGORY_LU || InRanges(kUpperExtra, c);
}
bool IsTitlecase(char32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_LT; }
bool IsPrintable(char32_t c) {
  if (c == ' ') return true;
  const auto category = CategoryOf(c);
  return category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS;
}

bool IsIdentifier(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = DecodeAt(text, at);
    const auto category = CategoryOf(point.value);
    const bool starts =
        point.value == '_' || IsAlpha(point.value) || category == UTF8PROC_CATEGORY_NL;
    const bool continues = starts || category == UTF8PROC_CATEGORY_ND ||
                           category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
                           category == UTF8PROC_CATEGORY_PC || point.value == 0xB7;
    if (at == 0 ? !starts : !continues) return false;
    at += point.num_bytes;
  }
  return !text.empty();
}

std::string ToLower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = DecodeAt(text, at);
    AppendLower(text, at, point.value, out);
    at += point.num_bytes;
  }
  return out;
}

std::string ToUpper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = DecodeAt(text, at);
    AppendUpper(point.value, out);
    at += point.num_bytes;
  }
  return out;
}

std::string ToTitle(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = DecodeAt(text, at);
    if (in_word) {
      AppendLower(text, at, point.value, out);
    } else {
      AppendTitle(point.value, out);
    }
    in_word = IsCased(point.value);
    at += point.num_bytes;
  }
  return out;
}

std::string Capitalize(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = DecodeAt(text, at);
    if (at == 0) {
      AppendTitle(point.value, out);
    } else {
      AppendLower(text, at, point.value, out);
    }
    at += point.num_bytes;
  }
  return out;
}

std::string SwapCase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = DecodeAt(text, at);
    if (IsUpper(point.value)) {
      AppendLower(text, at, point.value, out);
    } else if (IsLower(point.value)) {
      AppendUpper(point.value, out);
    } else {
      AppendUtf8(point.value, out);
    }
    at += point.num_bytes;
  }
  return out;
}

std::string CaseFold(std::string_view text) {
  utf8proc_uint8_t* folded = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &folded, UTF8PROC_CASEFOLD);
  if (size < 0) return std::string(text);
  std::string out(reinterpret_cast<const char*>(folded), static_cast<size_t>(size));
  std::free(folded);
  return out;
}

std::string_view StripLeft(std::string_view text, const std::string_view* chars) {
  if (chars == nullptr) return StripLeftWhere(text, IsSpace);
  const CodePointSet set(*chars);
  return StripLeftWhere(text, [&](char32_t c) { return set.Has(c); });
}

std::string_view StripRight(std::string_view text, const std::string_view* chars) {
  if (chars == nullptr) return StripRightWhere(text, IsSpace);
  const CodePointSet set(*chars);
  return StripRightWhere(text, [&](char32_t c) { return set.Has(c); });
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = DecodeAt(text, at);
    size_t next = at + point.num_bytes;
    if (IsLineEnd(point.value)) {
      if (point.value == '\r' && next < text.size() && text[next] == '\n') ++next;
      lines.push_back(text.substr(begin, (keep_ends ? next : at) - begin));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

size_t FindText(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  // For a short needle the simple search is linear as well, and starts faster.
  constexpr size_t kShort = 16;
  if (needle.size() <= kShort) return text.find(needle, from);
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t FindLastText(std::string_view text, std::string_view needle) {
  if (needle.empty()) return text.size();
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_needle(needle.rbegin(), needle.rend());
  const size_t found = FindText(reversed_text, reversed_needle);
  return found == std::string_view::npos ? found : text.size() - found - needle.size();
}

}  // namespace tenon::jinja
