#include "tenon/tokenizer/jinja_string_literal.h"

#include <fmt/format.h>

#include "tenon/tokenizer/jinja_unicode.h"

namespace tenon::jinja {
namespace {

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// What a one-letter escape stands for; 0 when it is none.
char SimpleEscape(char c) {
  constexpr std::string_view kLetters = "\\'\"abfnrtv";
  constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
  const size_t at = kLetters.find(c);
  return at == std::string_view::npos ? '\0' : kMeanings[at];
}

class Unescaper {
 public:
  explicit Unescaper(std::string_view body) : body_(body) {}

  Result<std::string> Run() {
    while (at_ < body_.size()) {
      const size_t slash = body_.find('\\', at_);
      out_ += body_.substr(at_, slash - at_);
      if (slash == std::string_view::npos) break;
      at_ = slash + 1;
      TN_RETURN_IF_ERROR(Escape());
    }
    return std::move(out_);
  }

 private:
  Status Escape() {
    if (at_ >= body_.size()) return Refused("a string ends in a backslash");
    const char c = body_[at_];
    if (c == '\n') {  // the line goes on
      ++at_;
      return {};
    }
    if (const char meaning = SimpleEscape(c); meaning != '\0') {
      out_ += meaning;
      ++at_;
      return {};
    }
    if (c >= '0' && c <= '7') return OctalEscape();
    if (c == 'x') return HexEscape(2);
    if (c == 'u') return HexEscape(4);
    if (c == 'U') return HexEscape(8);
    if (c == 'N') return Refused("the escape \\N{...} is not served; write \\uXXXX");
    out_ += '\\';
    if (static_cast<unsigned char>(c) >= 0x80) AppendAsciiForm();
    return {};
  }

  // Jinja turns non-ASCII characters into escapes before it reads the escapes. After a backslash
  // this quirk shows: the character comes out as the text of its own escape.
  void AppendAsciiForm() {
    const CodePoint point = DecodeAt(body_, at_);
    const auto number = static_cast<uint32_t>(point.value);
    out_ += number <= 0xFF ? fmt::format("x{:02x}", number)
                           : (number <= 0xFFFF ? fmt::format("u{:04x}", number)
                                               : fmt::format("U{:08x}", number));
    at_ += point.num_bytes;
  }

  Status OctalEscape() {
    char32_t value = 0;
    for (int i = 0; i < 3 && at_ < body_.size() && body_[at_] >= '0' && body_[at_] <= '7'; ++i) {
      value = value * 8 + static_cast<char32_t>(body_[at_++] - '0');
    }
    AppendUtf8(value, out_);
    return {};
  }

  Status HexEscape(int num_digits) {
    const size_t begin = at_++;
    char32_t value = 0;
    for (int i = 0; i < num_digits; ++i, ++at_) {
      const int digit = at_ < body_.size() ? HexValue(body_[at_]) : -1;
      if (digit < 0) {
        return Refused(
            fmt::format("the escape \\{} needs {} hexadecimal digits", body_[begin], num_digits));
      }
      value = value * 16 + static_cast<char32_t>(digit);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      return Refused(
          fmt::format("the escape \\{} is no Unicode character", body_.substr(begin, at_ - begin)));
    }
    AppendUtf8(value, out_);
    return {};
  }

  std::string_view body_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> UnescapeString(std::string_view body) { return Unescaper(body).Run(); }

}  // namespace tenon::jinja
