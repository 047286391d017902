#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "tenon/tokenizer/jinja_format.h"
#include "tenon/tokenizer/jinja_number_format.h"
#include "tenon/tokenizer/jinja_operators.h"
#include "tenon/tokenizer/jinja_print.h"
#include "tenon/tokenizer/jinja_unicode.h"

namespace tenon::jinja {
namespace {

constexpr std::string_view kAligns = "<>^=";
constexpr std::string_view kIntTypes = "bcdoxXn";
constexpr std::string_view kFloatTypes = "eEfFgGn%";

bool IsIndex(std::string_view text) {
  return !text.empty() && text.size() < 10 &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

int64_t IndexOf(std::string_view digits) {
  int64_t index = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), index);
  return index;
}

// Digits at `at`, absent = -1, out of range = -2.
int64_t ReadNumber(std::string_view text, size_t& at) {
  int64_t number = -1;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    number = (number < 0 ? 0 : number) * 10 + (text[at] - '0');
    if (number > std::numeric_limits<int32_t>::max()) return -2;
  }
  return number;
}

Result<FieldSpec> ParseSpec(std::string_view text) {
  const Status error = Refused(fmt::format("format specification '{}' is not valid", text));
  FieldSpec spec;
  size_t at = 0;
  bool has_fill = false;
  if (!text.empty()) {
    const size_t fill_bytes = DecodeAt(text, 0).num_bytes;
    if (fill_bytes < text.size() && kAligns.find(text[fill_bytes]) != std::string_view::npos) {
      spec.fill = text.substr(0, fill_bytes);
      spec.align = text[fill_bytes];
      has_fill = true;
      at = fill_bytes + 1;
    } else if (kAligns.find(text[0]) != std::string_view::npos) {
      spec.align = text[at++];
    }
  }
  const auto eat = [&](char c) {
    if (at >= text.size() || text[at] != c) return false;
    ++at;
    return true;
  };
  for (const char sign : {'+', '-', ' '}) {
    if (eat(sign)) spec.sign = sign;
  }
  spec.alternate = eat('#');
  if (eat('0') && !has_fill) {
    spec.fill = "0";
    if (spec.align == 0) spec.align = '=';
  }
  spec.width = ReadNumber(text, at);
  if (spec.width == -2) return error;
  if (spec.width < 0) spec.width = 0;
  if (eat(',')) spec.grouping = ',';
  if (eat('_')) spec.grouping = '_';
  if (eat('.')) {
    const int64_t precision = ReadNumber(text, at);
    if (precision < 0 || precision > kMaxPrecision) return error;
    spec.precision = static_cast<int>(precision);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) return error;
  return spec;
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Value& format, const Args& args)
      : runtime_(runtime), format_(format), args_(args) {}

  Result<Value> Run() {
    std::string out;
    TN_RETURN_IF_ERROR(Expand(format_.text(), 0, out));
    return runtime_.StringLike(format_, std::move(out));
  }

 private:
  // Depth 1 is a specification that itself holds fields.
  Status Expand(std::string_view text, int depth, std::string& out) {
    if (depth > 1) return Refused("a format specification nests fields too deeply");
    for (size_t at = 0; at < text.size();) {
      const char c = text[at];
      if (c != '{' && c != '}') {
        const size_t next = std::min(text.find_first_of("{}", at), text.size());
        out += text.substr(at, next - at);
        at = next;
        continue;
      }
      if (at + 1 < text.size() && text[at + 1] == c) {
        out += c;
        at += 2;
        continue;
      }
      if (c == '}') return Refused("a single '}' in a format text");
      const size_t close = FindClose(text, at);
      if (close == std::string_view::npos) return Refused("a single '{' in a format text");
      TN_RETURN_IF_ERROR(ExpandField(text.substr(at + 1, close - at - 1), depth, out));
      TN_RETURN_IF_ERROR(runtime_.Reserve(static_cast<Int>(out.size())));
      at = close + 1;
    }
    return {};
  }

  static size_t FindClose(std::string_view text, size_t open) {
    int level = 0;
    for (size_t at = open; at < text.size(); ++at) {
      level += text[at] == '{' ? 1 : (text[at] == '}' ? -1 : 0);
      if (level == 0) return at;
    }
    return std::string_view::npos;
  }

  // name[!conversion][:specification]
  Status ExpandField(std::string_view field, int depth, std::string& out) {
    const size_t name_end = std::min(field.find_first_of("!:"), field.size());
    TN_ASSIGN_OR_RETURN(Value value, Lookup(field.substr(0, name_end)));
    size_t at = name_end;
    if (at < field.size() && field[at] == '!') {
      const char conversion = at + 1 < field.size() ? field[at + 1] : '\0';
      at += 2;
      if (at < field.size() && field[at] != ':') return Refused("expected ':' after a conversion");
      TN_ASSIGN_OR_RETURN(value, Convert(value, conversion));
    }
    std::string spec_text;
    if (at < field.size()) TN_RETURN_IF_ERROR(Expand(field.substr(at + 1), depth + 1, spec_text));
    return Format(value, spec_text, out);
  }

  Result<Value> Convert(const Value& value, char conversion) {
    std::string text;
    if (conversion == 's') {
      TN_RETURN_IF_ERROR(AppendStr(runtime_, value, text));
    } else if (conversion == 'r' || conversion == 'a') {
      TN_RETURN_IF_ERROR(AppendRepr(runtime_, value, text));
    } else {
      return Refused("a format conversion must be !s, !r or !a");
    }
    return runtime_.String(std::move(text));
  }

  Result<Value> Lookup(std::string_view path) {
    const size_t first_end = std::min(path.find_first_of(".["), path.size());
    TN_ASSIGN_OR_RETURN(Value value, First(path.substr(0, first_end)));
    for (size_t at = first_end; at < path.size();) {
      if (path[at] == '.') {
        const size_t end = std::min(path.find_first_of(".[", at + 1), path.size());
        TN_ASSIGN_OR_RETURN(value,
                            GetAttribute(runtime_, value, path.substr(at + 1, end - at - 1)));
        at = end;
        continue;
      }
      const size_t close = path.find(']', at);
      if (path[at] != '[' || close == std::string_view::npos) {
        return Refused("a format field is not valid");
      }
      const std::string_view key = path.substr(at + 1, close - at - 1);
      const Value key_value =
          IsIndex(key) ? Value(IndexOf(key)) : runtime_.String(std::string(key));
      TN_ASSIGN_OR_RETURN(value, GetItem(runtime_, value, key_value));
      at = close + 1;
    }
    return value;
  }

  Result<Value> First(std::string_view name) {
    if (!name.empty() && !IsIndex(name)) {
      for (const auto& [key, value] : args_.named) {
        if (key.text() == name) return value;
      }
      return Refused(fmt::format("format() has no argument '{}'", name));
    }
    if ((name.empty() && manual_) || (!name.empty() && automatic_ > 0)) {
      return Refused("format() mixes automatic and manual field numbers");
    }
    manual_ = manual_ || !name.empty();
    const int64_t index = name.empty() ? automatic_++ : IndexOf(name);
    if (index >= static_cast<int64_t>(args_.positional.size())) {
      return Refused(fmt::format("format() has no argument number {}", index));
    }
    return args_.positional[static_cast<size_t>(index)];
  }

  Status Format(const Value& value, std::string_view spec_text, std::string& out) {
    if (spec_text.empty()) {
      return format_.is_markup() ? AppendEscapedValue(runtime_, value, out)
                                 : AppendStr(runtime_, value, out);
    }
    TN_ASSIGN_OR_RETURN(FieldSpec spec, ParseSpec(spec_text));
    TN_RETURN_IF_ERROR(runtime_.Reserve(static_cast<Int>(spec.width) * 4));
    if (value.is_text()) {
      if ((spec.type != 0 && spec.type != 's') || spec.align == '=') {
        return Refused(fmt::format("format '{}' does not fit a str", spec_text));
      }
      std::string text(value.text());
      if (spec.precision >= 0) text.resize(ByteOffset(text, static_cast<size_t>(spec.precision)));
      out += PadField(spec, '<', "", text);
      return {};
    }
    const bool int_type = spec.type == 0 || kIntTypes.find(spec.type) != std::string_view::npos;
    if (value.is_integral() && int_type) {
      if (spec.precision >= 0) {
        return Refused(fmt::format("format '{}' does not fit an int", spec_text));
      }
      if (spec.type == 'c') return FormatCharacter(spec, value.as_int(), out);
      out += FormatInt(spec, value.as_int());
      return {};
    }
    const bool float_type = spec.type == 0 || kFloatTypes.find(spec.type) != std::string_view::npos;
    if (value.is_number() && float_type) {
      out += FormatFloat(spec, value.as_double());
      return {};
    }
    return Refused(
        fmt::format("format '{}' does not fit a value of type '{}'", spec_text, value.TypeName()));
  }

  static Status FormatCharacter(const FieldSpec& spec, Int number, std::string& out) {
    if (number < 0 || number > 0x10FFFF || (number >= 0xD800 && number < 0xE000)) {
      return Refused("format 'c' needs a code point");
    }
    std::string text;
    AppendUtf8(static_cast<char32_t>(number), text);
    out += PadField(spec, '<', "", text);
    return {};
  }

  Runtime& runtime_;
  const Value& format_;
  const Args& args_;
  int64_t automatic_ = 0;
  bool manual_ = false;
};

}  // namespace

Result<Value> FormatBraces(Runtime& runtime, const Value& format, const Args& args) {
  return BraceFormatter(runtime, format, args).Run();
}

}  // namespace tenon::jinja
