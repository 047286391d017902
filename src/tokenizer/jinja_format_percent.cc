#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tenon/tokenizer/jinja_format.h"
#include "tenon/tokenizer/jinja_number_format.h"
#include "tenon/tokenizer/jinja_operators.h"
#include "tenon/tokenizer/jinja_print.h"
#include "tenon/tokenizer/jinja_unicode.h"

namespace tenon::jinja {
namespace {

// Renders the conversions of one `format % values`.
class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Value& format, const Value& values)
      : runtime_(runtime), format_(format), text_(format.text()), values_(values) {}

  Result<Value> Run() {
    while (at_ < text_.size()) {
      const size_t percent = text_.find('%', at_);
      out_ += text_.substr(at_, percent - at_);
      if (percent == std::string_view::npos) break;
      at_ = percent + 1;
      TN_RETURN_IF_ERROR(Convert());
      TN_RETURN_IF_ERROR(runtime_.Reserve(static_cast<Int>(out_.size())));
    }
    const bool is_container =
        values_.is_dict() || values_.is_list() || values_.is_range() || values_.is_undefined();
    if (!is_container && next_ < NumValues()) {
      return Refused("not all values of a % formatting were used");
    }
    return runtime_.StringLike(format_, std::move(out_));
  }

 private:
  size_t NumValues() const { return values_.is_tuple() ? values_.sequence()->items.size() : 1; }

  Result<Value> NextValue() {
    if (next_ >= NumValues()) return Refused("not enough values for a % formatting");
    const size_t index = next_++;
    return values_.is_tuple() ? values_.sequence()->items[index] : values_;
  }

  Result<Value> NamedValue() {
    const size_t close = text_.find(')', at_);
    if (close == std::string_view::npos) return Refused("incomplete name in a % conversion");
    const std::string_view name = text_.substr(at_ + 1, close - at_ - 1);
    at_ = close + 1;
    if (!values_.is_dict()) return Refused("%(name) conversions need a dictionary");
    const Value* found = values_.dict()->Find(name);
    if (found == nullptr) return Refused(fmt::format("no value for %({})", name));
    return *found;
  }

  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  // Digits or `*`; -1 when there is neither.
  Result<int64_t> ReadNumber() {
    if (Peek() == '*') {
      ++at_;
      TN_ASSIGN_OR_RETURN(const Value value, NextValue());
      TN_ASSIGN_OR_RETURN(const Int number, IntegerArgument("%*", value));
      if (number > std::numeric_limits<int32_t>::max() || number < -1'000'000) {
        return Refused("a width of a % conversion is out of range");
      }
      return static_cast<int64_t>(number);
    }
    int64_t number = -1;
    while (Peek() >= '0' && Peek() <= '9') {
      number = (number < 0 ? 0 : number) * 10 + (text_[at_++] - '0');
      if (number > std::numeric_limits<int32_t>::max()) {
        return Refused("a width of a % conversion is out of range");
      }
    }
    return number;
  }

  Status ReadFlags(FieldSpec& spec) {
    bool zero = false;
    bool left = false;
    for (;; ++at_) {
      const char c = Peek();
      if (c == '-') {
        left = true;
      } else if (c == '+' || (c == ' ' && spec.sign != '+')) {
        spec.sign = c;
      } else if (c == '#') {
        spec.alternate = true;
      } else if (c == '0') {
        zero = true;
      } else if (c != ' ') {
        break;
      }
    }
    TN_ASSIGN_OR_RETURN(const int64_t width, ReadNumber());
    if (width < -1) left = true;  // a negative * width
    spec.width = width == -1 ? 0 : std::abs(width);
    if (Peek() == '.') {
      ++at_;
      TN_ASSIGN_OR_RETURN(const int64_t precision, ReadNumber());
      if (precision > kMaxPrecision) {
        return Refused(fmt::format("precision {} of a % conversion: at most {} is served",
                                   precision, kMaxPrecision));
      }
      spec.precision = static_cast<int>(std::max<int64_t>(precision, 0));
    }
    while (Peek() == 'h' || Peek() == 'l' || Peek() == 'L') ++at_;
    spec.align = left ? '<' : '>';
    pad_zero_ = zero && !left;
    return runtime_.Reserve(spec.width);
  }

  Status Convert() {
    FieldSpec spec;
    Value value = Value::Missing();
    if (Peek() == '(') {
      TN_ASSIGN_OR_RETURN(value, NamedValue());
    }
    TN_RETURN_IF_ERROR(ReadFlags(spec));
    if (at_ >= text_.size()) return Refused("incomplete % conversion at the end of the text");
    const char type = text_[at_++];
    if (type == '%') {
      out_ += '%';
      return {};
    }
    if (value.is_missing()) {
      TN_ASSIGN_OR_RETURN(value, NextValue());
    }
    switch (type) {
      case 's':
      case 'r':
      case 'a':
        return ConvertText(spec, type, value);
      case 'c':
        return ConvertCharacter(spec, value);
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return ConvertInt(spec, type, value);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return ConvertFloat(spec, type, value);
      default:
        return Refused(fmt::format("unsupported conversion %{}", type));
    }
  }

  Status ConvertText(const FieldSpec& spec, char type, const Value& value) {
    std::string text;
    if (type == 's') {
      TN_RETURN_IF_ERROR(AppendStr(runtime_, value, text));
    } else {
      TN_RETURN_IF_ERROR(AppendRepr(runtime_, value, text));
    }
    if (type == 'a') text = AsciiOf(text);
    if (format_.is_markup() && !(type == 's' && value.is_markup())) {
      std::string escaped;
      AppendEscaped(text, escaped);
      text = std::move(escaped);
    }
    if (spec.precision >= 0) text.resize(ByteOffset(text, static_cast<size_t>(spec.precision)));
    out_ += PadField(spec, '>', "", text);
    return {};
  }

  static std::string AsciiOf(std::string_view text) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const CodePoint point = DecodeAt(text, at);
      const auto number = static_cast<uint32_t>(point.value);
      if (number < 0x80) {
        out += static_cast<char>(number);
      } else if (number <= 0xFF) {
        out += fmt::format("\\x{:02x}", number);
      } else if (number <= 0xFFFF) {
        out += fmt::format("\\u{:04x}", number);
      } else {
        out += fmt::format("\\U{:08x}", number);
      }
      at += point.num_bytes;
    }
    return out;
  }

  Status ConvertCharacter(const FieldSpec& spec, const Value& value) {
    std::string text;
    if (value.is_integral()) {
      const Int number = value.as_int();
      if (number < 0 || number > 0x10FFFF || (number >= 0xD800 && number < 0xE000)) {
        return Refused("%c needs a code point");
      }
      AppendUtf8(static_cast<char32_t>(number), text);
    } else if (value.is_text() && CountCodePoints(value.text()) == 1) {
      text = value.text();
    } else {
      return Refused("%c needs an integer or a single character");
    }
    out_ += PadField(spec, '>', "", text);
    return {};
  }

  void UseZeroPadding(FieldSpec& spec) const {
    if (!pad_zero_) return;
    spec.fill = "0";
    spec.align = '=';
  }

  Status ConvertInt(FieldSpec spec, char type, const Value& value) {
    Int number = 0;
    if (value.is_integral()) {
      number = value.as_int();
    } else if (value.is_float() && (type == 'd' || type == 'i' || type == 'u') &&
               std::fabs(value.as_double()) < 1e38) {
      number = static_cast<Int>(value.as_double());
    } else {
      return Refused(fmt::format("%{} needs a number, not '{}'", type, value.TypeName()));
    }
    spec.type = type == 'i' || type == 'u' ? 'd' : type;
    UseZeroPadding(spec);
    out_ += FormatInt(spec, number);
    return {};
  }

  Status ConvertFloat(FieldSpec spec, char type, const Value& value) {
    if (!value.is_number()) {
      return Refused(fmt::format("%{} needs a number, not '{}'", type, value.TypeName()));
    }
    spec.type = type;
    UseZeroPadding(spec);
    out_ += FormatFloat(spec, value.as_double());
    return {};
  }

  Runtime& runtime_;
  const Value& format_;
  std::string_view text_;
  const Value& values_;
  size_t at_ = 0;
  size_t next_ = 0;
  bool pad_zero_ = false;
  std::string out_;
};

}  // namespace

Result<Value> FormatPercent(Runtime& runtime, const Value& format, const Value& values) {
  return PercentFormatter(runtime, format, values).Run();
}

}  // namespace tenon::jinja
