#include "tenon/tokenizer/jinja_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "tenon/tokenizer/jinja_string_literal.h"
#include "tenon/tokenizer/jinja_unicode.h"

namespace tenon::jinja {
namespace {

bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }

// Newlines become \n; one newline at the end is dropped.
std::string NormalizeSource(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Result<std::vector<Token>> Run() {
    while (at_ < source_.size()) TN_RETURN_IF_ERROR(LexText());
    Add(TokenType::kEnd, {});
    return std::move(tokens_);
  }

 private:
  Status Error(std::string_view what) const {
    return Refused(fmt::format("line {}: {}", line_, what));
  }

  void Add(TokenType type, std::string text) {
    tokens_.push_back(Token{type, line_, std::move(text), {}});
  }

  // Moves to `end`, counting lines.
  void Advance(size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    at_ = end;
  }

  size_t SkipBlanks(size_t at) const {
    while (at < source_.size()) {
      const CodePoint point = DecodeAt(source_, at);
      if (!IsSpace(point.value)) break;
      at += point.num_bytes;
    }
    return at;
  }

  bool StartsWith(size_t at, std::string_view text) const {
    return source_.substr(std::min(at, source_.size())).starts_with(text);
  }

  // The first {{, {% or {# at or after the current place.
  size_t FindTag() const {
    size_t at = source_.find('{', at_);
    while (at != std::string_view::npos) {
      const char next = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') return at;
      at = source_.find('{', at + 1);
    }
    return source_.size();
  }

  // Text before a tag as the tag's mark and the environment leave it.
  std::string_view TrimBefore(std::string_view text, char mark, bool is_variable) const {
    if (mark == '-') return StripRight(text);
    if (mark == '+' || is_variable) return text;
    const size_t newline = text.rfind('\n');
    const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (line_begin == 0 && !line_starting_) return text;
    const std::string_view tail = text.substr(line_begin);
    return StripLeft(tail).empty() ? text.substr(0, line_begin) : text;
  }

  Status LexText() {
    const size_t tag = FindTag();
    const std::string_view text = source_.substr(at_, tag - at_);
    if (tag == source_.size()) {
      Add(TokenType::kData, std::string(text));
      Advance(tag);
      return {};
    }
    const char kind = source_[tag + 1];
    const char next = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const char mark = next == '-' || next == '+' ? next : '\0';
    const std::string_view kept = TrimBefore(text, mark, kind == '{');
    if (!kept.empty()) Add(TokenType::kData, std::string(kept));
    Advance(tag);
    const size_t inside = tag + (mark == '\0' ? 2 : 3);
    if (kind == '#') return LexComment(inside);
    const size_t raw_end = kind == '%' ? RawTagEnd(inside) : 0;
    if (raw_end > 0) return LexRaw(raw_end);
    Add(kind == '{' ? TokenType::kVariableBegin : TokenType::kBlockBegin, {});
    Advance(inside);
    return LexTag(kind == '{');
  }

  Status LexComment(size_t inside) {
    if (inside == source_.size()) {  // as the reference does, nothing
      Advance(inside);
      return {};
    }
    const size_t close = source_.find("#}", inside);
    if (close == std::string_view::npos) return Error("a comment is not closed with #}");
    const char mark = close > inside ? source_[close - 1] : '\0';
    CloseTag(close + 2, mark);
    return {};
  }

  // After a closing delimiter that ends at `end`: applies its mark.
  void CloseTag(size_t end, char mark) {
    if (mark == '-') {
      end = SkipBlanks(end);
    } else if (mark != '+' && end < source_.size() && source_[end] == '\n') {
      ++end;  // trim_blocks
    }
    Advance(end);
    line_starting_ = source_[end - 1] == '\n';
  }

  // Where `raw %}` ends when it stands at `inside`, with the blanks that `-%}` eats; 0 otherwise.
  size_t RawTagEnd(size_t inside) const {
    size_t at = SkipBlanks(inside);
    if (!StartsWith(at, "raw")) return 0;
    at = SkipBlanks(at + 3);
    if (StartsWith(at, "-%}")) return SkipBlanks(at + 3);
    return StartsWith(at, "%}") ? at + 2 : 0;
  }

  Status LexRaw(size_t begin) {
    const int opening_line = line_;
    Advance(begin);
    if (begin == source_.size()) return {};
    line_starting_ = source_[begin - 1] == '\n';
    for (size_t tag = source_.find("{%", begin); tag != std::string_view::npos;
         tag = source_.find("{%", tag + 2)) {
      const char next = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      const char mark = next == '-' || next == '+' ? next : '\0';
      size_t at = SkipBlanks(tag + (mark == '\0' ? 2 : 3));
      if (!StartsWith(at, "endraw")) continue;
      at = SkipBlanks(at + 6);
      const char end_mark = StartsWith(at, "-%}") || StartsWith(at, "+%}") ? source_[at] : '\0';
      if (end_mark != '\0') ++at;
      if (!StartsWith(at, "%}")) continue;
      const std::string_view kept = TrimBefore(source_.substr(begin, tag - begin), mark, false);
      if (!kept.empty()) Add(TokenType::kData, std::string(kept));
      CloseTag(at + 2, end_mark);
      return {};
    }
    line_ = opening_line;
    return Error("{% raw %} has no {% endraw %}");
  }

  // The end of the tag at the current place, with its mark: "}}", "-}}", "%}", "-%}", "+%}".
  bool LexTagEnd(bool is_variable) {
    const std::string_view delimiter = is_variable ? "}}" : "%}";
    const char c = source_[at_];
    const bool has_mark = c == '-' || (c == '+' && !is_variable);
    if (!StartsWith(at_ + (has_mark ? 1 : 0), delimiter)) return false;
    Add(is_variable ? TokenType::kVariableEnd : TokenType::kBlockEnd, {});
    const size_t end = at_ + (has_mark ? 3 : 2);
    if (is_variable && !has_mark) {
      Advance(end);
      line_starting_ = false;
    } else {
      CloseTag(end, has_mark ? c : '\0');
    }
    return true;
  }

  Status LexTag(bool is_variable) {
    std::string open_brackets;
    while (at_ < source_.size()) {
      if (open_brackets.empty() && LexTagEnd(is_variable)) return {};
      const size_t past_blanks = SkipBlanks(at_);
      if (past_blanks > at_) {
        Advance(past_blanks);
        continue;
      }
      TN_RETURN_IF_ERROR(LexToken(open_brackets));
    }
    return {};  // the parser reports the end of the template
  }

  Status LexToken(std::string& open_brackets) {
    const char c = source_[at_];
    if (IsAsciiDigit(c)) return LexNumber();
    if (c == '\'' || c == '"') return LexString(c);
    const CodePoint point = DecodeAt(source_, at_);
    if (point.value == '_' || IsAlnum(point.value) || point.value >= 0x80) return LexName();
    return LexOperator(open_brackets);
  }

  Status LexName() {
    size_t end = at_;
    while (end < source_.size()) {
      const CodePoint point = DecodeAt(source_, end);
      const bool joins = point.value == '_' || IsAlnum(point.value) ||
                         (point.value >= 0x80 && !IsSpace(point.value));
      if (!joins) break;
      end += point.num_bytes;
    }
    const std::string_view name = source_.substr(at_, end - at_);
    if (!IsIdentifier(name)) return Error(fmt::format("'{}' is not a name", name));
    Add(TokenType::kName, std::string(name));
    Advance(end);
    return {};
  }

  Status LexString(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return Error(fmt::format("a string is not closed with {}", quote));
    Result<std::string> text = UnescapeString(source_.substr(at_ + 1, end - at_ - 1));
    if (!text.ok()) return Error(text.message());
    Add(TokenType::kString, *std::move(text));
    Advance(end + 1);
    return {};
  }

  // Digits with single underscores between them, from `at`.
  size_t SkipDigits(size_t at) const {
    while (at < source_.size() &&
           (IsAsciiDigit(source_[at]) ||
            (source_[at] == '_' && at + 1 < source_.size() && IsAsciiDigit(source_[at + 1])))) {
      ++at;
    }
    return at;
  }

  bool DigitAt(size_t at) const { return at < source_.size() && IsAsciiDigit(source_[at]); }

  // The end of a float that starts here; 0 when it is none.
  size_t FloatEnd() const {
    if (at_ > 0 && source_[at_ - 1] == '.') return 0;
    size_t end = SkipDigits(at_);
    bool is_float = false;
    if (end < source_.size() && source_[end] == '.' && DigitAt(end + 1)) {
      end = SkipDigits(end + 1);
      is_float = true;
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) {
        ++exponent;
      }
      if (DigitAt(exponent)) return SkipDigits(exponent);
    }
    return is_float ? end : 0;
  }

  Status LexNumber() {
    if (const size_t end = FloatEnd(); end > 0) {
      std::string digits(source_.substr(at_, end - at_));
      digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
      double value = 0;
      const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (parsed.ec == std::errc::result_out_of_range) {
        // Beyond the range of double: infinity, or zero for a tiny number.
        const size_t e = digits.find_first_of("eE");
        const bool tiny = e != std::string::npos && digits[e + 1] == '-';
        value = tiny ? 0.0 : std::numeric_limits<double>::infinity();
      }
      Add(TokenType::kFloat, std::move(digits));
      tokens_.back().number = Value(value);
      Advance(end);
      return {};
    }
    return LexInteger();
  }

  static int DigitValue(char c) {
    if (IsAsciiDigit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return 99;
  }

  Status LexInteger() {
    int base = 10;
    size_t end = at_;
    const char prefix = at_ + 1 < source_.size() ? source_[at_ + 1] : '\0';
    if (source_[at_] == '0' && std::string_view("bBoOxX").find(prefix) != std::string_view::npos) {
      const char kind = static_cast<char>(prefix | 0x20);
      base = kind == 'b' ? 2 : (kind == 'o' ? 8 : 16);
      end += 2;
    }
    const size_t first_digit = end;
    const bool only_zeros = base == 10 && source_[at_] == '0';
    Int value = 0;
    for (; end < source_.size(); ++end) {
      const char c = source_[end];
      if (c == '_') {
        if (end + 1 >= source_.size() || DigitValue(source_[end + 1]) >= base) break;
        continue;
      }
      if (DigitValue(c) >= base || (only_zeros && c != '0')) break;
      if (__builtin_mul_overflow(value, base, &value) ||
          __builtin_add_overflow(value, DigitValue(c), &value)) {
        return Error("an integer needs more than 127 bits");
      }
    }
    if (end == first_digit) return Error("a number has no digits");
    Add(TokenType::kInteger, std::string(source_.substr(at_, end - at_)));
    tokens_.back().number = Value(value);
    Advance(end);
    return {};
  }

  Status LexOperator(std::string& open_brackets) {
    constexpr std::string_view kDouble[] = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kSingle = "+-/*%~[](){}><=.:|,;";
    const std::string_view rest = source_.substr(at_);
    for (const std::string_view op : kDouble) {
      if (!rest.starts_with(op)) continue;
      Add(TokenType::kOperator, std::string(op));
      Advance(at_ + 2);
      return {};
    }
    const char c = rest[0];
    if (kSingle.find(c) == std::string_view::npos) {
      return Error(fmt::format("unexpected character '{}'", c));
    }
    constexpr std::string_view kOpen = "([{";
    constexpr std::string_view kClose = ")]}";
    if (const size_t kind = kOpen.find(c); kind != std::string_view::npos) {
      open_brackets += kClose[kind];
    } else if (kClose.find(c) != std::string_view::npos) {
      if (open_brackets.empty()) return Error(fmt::format("unexpected '{}'", c));
      if (open_brackets.back() != c) {
        return Error(fmt::format("unexpected '{}', expected '{}'", c, open_brackets.back()));
      }
      open_brackets.pop_back();
    }
    Add(TokenType::kOperator, std::string(1, c));
    Advance(at_ + 1);
    return {};
  }

  std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::string DescribeToken(const Token& token) {
  switch (token.type) {
    case TokenType::kData:
      return "template text";
    case TokenType::kVariableBegin:
      return "begin of print statement";
    case TokenType::kVariableEnd:
      return "end of print statement";
    case TokenType::kBlockBegin:
      return "begin of statement block";
    case TokenType::kBlockEnd:
      return "end of statement block";
    case TokenType::kString:
      return "a string";
    case TokenType::kEnd:
      return "end of template";
    default:
      return fmt::format("'{}'", token.text);
  }
}

Result<std::vector<Token>> Tokenize(std::string_view source) {
  const std::string normalized = NormalizeSource(source);
  return Lexer(normalized).Run();
}

}  // namespace tenon::jinja
