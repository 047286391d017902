#include "tenon/tokenizer/regex_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include "tenon/base/text.h"
#include "tenon/tokenizer/unicode_additions.h"

namespace tenon {
namespace {

constexpr int kMaxClassDepth = 50;

// Bodies of character classes. PCRE2's own \s adds U+180E, its \w lacks marks and connectors.
constexpr std::string_view kSpace =
    R"(\x09-\x0D\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kNotSpace =
    R"(\x00-\x08\x0E-\x1F\x21-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027})"
    R"(\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";
constexpr std::string_view kAddedHan = R"(\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})";
constexpr std::string_view kHexDigit = "0-9a-fA-F";

// Oniguruma's \w; inside a class without the Latin-1 digits and fractions (a quirk of its tables).
std::string WordBody(bool in_class, bool with_additions) {
  std::string body = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
  if (!in_class) body += R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";
  if (!with_additions) return body;
  return body + AdditionsOfCategory("L") + AdditionsOfCategory("M") + AdditionsOfCategory("Nd");
}

struct PropertyAlias {
  std::string_view name;           // lower case, without blanks, '_' and '-'
  std::string_view body;           // of a character class
  std::string_view category = {};  // whose additions belong to it
};
// Names that Oniguruma has and PCRE2 spells otherwise or lacks.
constexpr std::array kAliases = {
    PropertyAlias{"letter", R"(\p{L})", "L"},
    PropertyAlias{"uppercaseletter", R"(\p{Lu})", "Lu"},
    PropertyAlias{"lowercaseletter", R"(\p{Ll})", "Ll"},
    PropertyAlias{"titlecaseletter", R"(\p{Lt})", "Lt"},
    PropertyAlias{"casedletter", R"(\p{L&})"},
    PropertyAlias{"lc", R"(\p{L&})"},
    PropertyAlias{"modifierletter", R"(\p{Lm})", "Lm"},
    PropertyAlias{"otherletter", R"(\p{Lo})", "Lo"},
    PropertyAlias{"mark", R"(\p{M})", "M"},
    PropertyAlias{"combiningmark", R"(\p{M})", "M"},
    PropertyAlias{"nonspacingmark", R"(\p{Mn})", "Mn"},
    PropertyAlias{"spacingmark", R"(\p{Mc})", "Mc"},
    PropertyAlias{"enclosingmark", R"(\p{Me})", "Me"},
    PropertyAlias{"number", R"(\p{N})", "N"},
    PropertyAlias{"decimalnumber", R"(\p{Nd})", "Nd"},
    PropertyAlias{"letternumber", R"(\p{Nl})", "Nl"},
    PropertyAlias{"othernumber", R"(\p{No})", "No"},
    PropertyAlias{"punctuation", R"(\p{P})", "P"},
    PropertyAlias{"symbol", R"(\p{S})", "S"},
    PropertyAlias{"mathsymbol", R"(\p{Sm})", "Sm"},
    PropertyAlias{"currencysymbol", R"(\p{Sc})", "Sc"},
    PropertyAlias{"separator", R"(\p{Z})", "Z"},
    PropertyAlias{"spaceseparator", R"(\p{Zs})", "Zs"},
    PropertyAlias{"control", R"(\p{Cc})", "Cc"},
    PropertyAlias{"format", R"(\p{Cf})", "Cf"},
    PropertyAlias{"alpha", R"(\p{Alphabetic})", "L"},
    PropertyAlias{"digit", R"(\p{Nd})", "Nd"},
    PropertyAlias{"lower", R"(\p{Lowercase})", "Ll"},
    PropertyAlias{"upper", R"(\p{Uppercase})", "Lu"},
    PropertyAlias{"punct", R"(\p{P})", "P"},
    PropertyAlias{"cntrl", R"(\p{Cc})"},
    PropertyAlias{"blank", R"(\p{Zs}\x09)"},
    PropertyAlias{"space", kSpace},
    PropertyAlias{"whitespace", kSpace},
    PropertyAlias{"xdigit", kHexDigit},
    PropertyAlias{"asciihexdigit", kHexDigit},
    PropertyAlias{"ascii", R"(\x00-\x7F)"},
    PropertyAlias{"any", R"(\x00-\x{10FFFF})"},
};

// Binary properties; every other long name is taken for a script.
constexpr std::array<std::string_view, 14> kBinaryProperties = {"alphabetic",
                                                                "lowercase",
                                                                "uppercase",
                                                                "cased",
                                                                "ideographic",
                                                                "emoji",
                                                                "math",
                                                                "emojipresentation",
                                                                "emojimodifier",
                                                                "dash",
                                                                "idstart",
                                                                "idcontinue",
                                                                "emojimodifierbase",
                                                                "extendedpictographic"};

// The class body of \p{name}; `plain` is the name without case, blanks, '_' and '-'.
std::string PropertyBody(std::string_view name, std::string_view plain, bool with_additions) {
  const auto additions = [&](std::string_view category) {
    return with_additions ? AdditionsOfCategory(category) : std::string();
  };
  if (name.size() <= 2 && plain != "lc") {  // a general category
    return fmt::format("\\p{{{}}}{}", name, additions(name));
  }
  if (plain == "han") return fmt::format("\\p{{sc:Han}}{}", with_additions ? kAddedHan : "");
  if (plain == "word") return WordBody(false, with_additions);
  if (plain == "alnum") {
    return R"(\p{Alphabetic}\p{Nd})" + additions("L") + additions("Nd");
  }
  for (const PropertyAlias& alias : kAliases) {
    if (alias.name != plain) continue;
    return std::string(alias.body) + (alias.category.empty() ? "" : additions(alias.category));
  }
  // PCRE2 would read a bare script name as Script_Extensions.
  const bool is_binary = std::find(kBinaryProperties.begin(), kBinaryProperties.end(), plain) !=
                         kBinaryProperties.end();
  return fmt::format("\\p{{{}{}}}", is_binary ? "" : "sc:", name);
}

// A set of characters: the body of one class, plus one-character expressions joined to it.
struct CharacterSet {
  std::string body;
  std::vector<std::string> others;
};

// An expression that matches exactly one character of the set.
std::string Render(const CharacterSet& set, bool negated) {
  if (set.others.empty()) {
    if (set.body.empty()) return negated ? "(?s:.)" : "(?!)";
    return fmt::format("[{}{}]", negated ? "^" : "", set.body);
  }
  std::string alternatives = set.body.empty() ? "" : fmt::format("[{}]", set.body);
  for (const std::string& other : set.others) {
    if (!alternatives.empty()) alternatives += '|';
    alternatives += other;
  }
  return negated ? fmt::format("(?:(?!{})(?s:.))", alternatives)
                 : fmt::format("(?:{})", alternatives);
}

class Translator {
 public:
  Translator(std::string_view pattern, bool with_additions)
      : pattern_(pattern), with_additions_(with_additions) {}

  Result<std::string> Translate() {
    while (!AtEnd()) {
      const char c = Peek();
      if (c == '\\') {
        TN_RETURN_IF_ERROR(TranslateEscape());
      } else if (c == '[') {
        ++position_;
        TN_ASSIGN_OR_RETURN(const std::string set, ParseClass(0));
        out_ += set;
      } else if (c == '{') {
        TN_RETURN_IF_ERROR(TranslateInterval());
      } else if (pattern_.substr(position_, 2) == "(?") {
        TranslateGroup();
      } else {
        out_ += c;
        ++position_;
      }
    }
    return std::move(out_);
  }

 private:
  bool AtEnd() const { return position_ >= pattern_.size(); }
  char Peek() const { return pattern_[position_]; }
  char PeekAt(size_t ahead) const {
    return position_ + ahead < pattern_.size() ? pattern_[position_ + ahead] : '\0';
  }
  Status Unsupported(std::string_view what) const {
    return Refused(fmt::format("regex '{}', offset {}: {}", pattern_, position_, what));
  }

  // (?imx-imx: and (?imx-imx): Ruby's m is "dot matches newline", PCRE2's s.
  void TranslateGroup() {
    size_t end = position_ + 2;
    while (end < pattern_.size() &&
           (std::isalpha(static_cast<unsigned char>(pattern_[end])) != 0 || pattern_[end] == '-')) {
      ++end;
    }
    const bool is_options = end < pattern_.size() && (pattern_[end] == ':' || pattern_[end] == ')');
    if (!is_options) {
      out_ += "(?";
      position_ += 2;
      return;
    }
    for (; position_ < end; ++position_) out_ += Peek() == 'm' ? 's' : Peek();
  }

  // {,n} is {0,n} in Ruby; {n,m}+ repeats the repetition there but is possessive in PCRE2.
  Status TranslateInterval() {
    size_t end = position_ + 1;
    while (end < pattern_.size() &&
           (std::isdigit(static_cast<unsigned char>(pattern_[end])) != 0 || pattern_[end] == ',')) {
      ++end;
    }
    const std::string_view inside = pattern_.substr(position_ + 1, end - position_ - 1);
    const bool is_interval = end < pattern_.size() && pattern_[end] == '}' && !inside.empty() &&
                             std::count(inside.begin(), inside.end(), ',') <= 1 && inside != ",";
    if (!is_interval) {
      out_ += "\\{";
      ++position_;
      return {};
    }
    if (end + 1 < pattern_.size() && pattern_[end + 1] == '+') {
      return Unsupported("an interval followed by '+' is not supported; write (?:x{n,m})+");
    }
    out_ += fmt::format("{{{}{}}}", inside[0] == ',' ? "0" : "", inside);
    position_ = end + 1;
    return {};
  }

  // At a backslash outside a class.
  Status TranslateEscape() {
    const char c = PeekAt(1);
    CharacterSet set;
    TN_ASSIGN_OR_RETURN(const bool is_set, ParseSetEscape(false, &set));
    if (is_set) {
      out_ += Render(set, false);
    } else if (c == 'b' || c == 'B') {
      const std::string word = fmt::format("[{}]", WordBody(false, with_additions_));
      out_ += c == 'b' ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)
                       : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word);
      position_ += 2;
    } else {
      CopyEscape(&out_);
    }
    return {};
  }

  // An escape that stands for one character, or that PCRE2 reads as Oniguruma does.
  void CopyEscape(std::string* out) {
    if (PeekAt(1) == 'u') {  // \uHHHH
      const std::string_view digits = pattern_.substr(std::min(position_ + 2, pattern_.size()), 4);
      *out += fmt::format("\\x{{{}}}", digits);
      position_ += 2 + digits.size();
      return;
    }
    *out += '\\';
    ++position_;
    if (AtEnd()) return;
    *out += Peek();
    ++position_;
  }

  // Reads \s \S \d \D \w \W \h \H \p{..} \P{..}; false (and nothing read) for any other escape.
  Result<bool> ParseSetEscape(bool in_class, CharacterSet* set) {
    const char c = PeekAt(1);
    const auto add = [&](std::string_view body, bool negated) {
      if (negated) {
        set->others.push_back(fmt::format("[^{}]", body));
      } else {
        set->body += body;
      }
      position_ += 2;
    };
    switch (c) {
      case 's':
        add(kSpace, false);
        return true;
      case 'S':
        add(kNotSpace, false);
        return true;
      case 'd':
      case 'D':
        add(PropertyBody("Nd", "nd", with_additions_), c == 'D');
        return true;
      case 'w':
      case 'W':
        add(WordBody(in_class, with_additions_), c == 'W');
        return true;
      case 'h':
      case 'H':
        add(kHexDigit, c == 'H');
        return true;
      case 'p':
      case 'P':
        TN_RETURN_IF_ERROR(ParseProperty(set));
        return true;
      default:
        return false;
    }
  }

  // At "\p" or "\P".
  Status ParseProperty(CharacterSet* set) {
    bool negated = PeekAt(1) == 'P';
    const size_t close = pattern_.find('}', position_);
    if (PeekAt(2) != '{' || close == std::string_view::npos) {
      return Unsupported("a property is written \\p{Name}");
    }
    std::string_view name = pattern_.substr(position_ + 3, close - position_ - 3);
    if (!name.empty() && name[0] == '^') {
      negated = !negated;
      name.remove_prefix(1);
    }
    std::string plain;
    for (const char c : name) {
      if (c == ' ' || c == '_' || c == '-') continue;
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    position_ = close + 1;
    const std::string body = PropertyBody(name, plain, with_additions_);
    if (negated) {
      set->others.push_back(fmt::format("[^{}]", body));
    } else {
      set->body += body;
    }
    return {};
  }

  // After the '[' of a class; reads up to and with its ']'.
  Result<std::string> ParseClass(int depth) {
    if (depth > kMaxClassDepth) return Unsupported("classes nested too deeply");
    const bool negated = PeekAt(0) == '^';
    if (negated) ++position_;
    CharacterSet set;
    std::vector<std::string> operands;  // what '&&' joins
    for (bool first = true;; first = false) {
      if (AtEnd()) return Unsupported("a character class is not closed");
      const char c = Peek();
      if (c == ']' && !first) break;
      if (pattern_.substr(position_, 2) == "&&") {
        operands.push_back(Render(set, false));
        set = {};
        position_ += 2;
      } else if (pattern_.substr(position_, 2) == "[:") {
        TN_RETURN_IF_ERROR(ParsePosixBracket(&set));
      } else if (c == '[') {
        ++position_;
        TN_ASSIGN_OR_RETURN(std::string nested, ParseClass(depth + 1));
        set.others.push_back(std::move(nested));
      } else if (c == '\\') {
        TN_ASSIGN_OR_RETURN(const bool is_set, ParseSetEscape(true, &set));
        if (!is_set) CopyEscape(&set.body);
      } else {
        if (c == ']') set.body += '\\';
        set.body += c;
        ++position_;
      }
    }
    ++position_;
    if (operands.empty()) return Render(set, negated);
    std::string joined;
    for (const std::string& operand : operands) joined += fmt::format("(?={})", operand);
    joined += Render(set, false);
    return negated ? fmt::format("(?:(?!{})(?s:.))", joined) : fmt::format("(?:{})", joined);
  }

  // At "[:" inside a class: "[:alpha:]" or "[:^alpha:]".
  Status ParsePosixBracket(CharacterSet* set) {
    const size_t close = pattern_.find(":]", position_ + 2);
    if (close == std::string_view::npos) return Unsupported("'[:' is not closed");
    std::string_view name = pattern_.substr(position_ + 2, close - position_ - 2);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    static constexpr std::string_view kNames[] = {"alnum", "alpha", "ascii", "blank",
                                                  "cntrl", "digit", "lower", "punct",
                                                  "space", "upper", "word",  "xdigit"};
    if (std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames)) {
      return Unsupported(fmt::format("[:{}:] is not supported, supported: {}", name,
                                     Join(std::span(kNames), ", ")));
    }
    std::string body = name == "word" ? WordBody(true, with_additions_)
                                      : PropertyBody(name, name, with_additions_);
    if (name == "punct") body += PropertyBody("S", "s", with_additions_);
    if (negated) {
      set->others.push_back(fmt::format("[^{}]", body));
    } else {
      set->body += body;
    }
    position_ = close + 2;
    return {};
  }

  std::string_view pattern_;
  bool with_additions_;
  size_t position_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> TranslateToPcre2(std::string_view pattern, bool with_additions) {
  return Translator(pattern, with_additions).Translate();
}

}  // namespace tenon
