#include <fmt/format.h>

#include <algorithm>

#include "tenon/tokenizer/jinja_filters.h"
#include "tenon/tokenizer/jinja_format.h"
#include "tenon/tokenizer/jinja_operators.h"
#include "tenon/tokenizer/jinja_print.h"
#include "tenon/tokenizer/jinja_text_tools.h"
#include "tenon/tokenizer/jinja_unicode.h"
#include "tenon/tokenizer/jinja_wordwrap.h"

namespace tenon::jinja {
namespace {

// The value as text; text keeps its markup mark.
Result<Value> AsText(Runtime& runtime, const Value& value) {
  if (value.is_text()) return value;
  TN_ASSIGN_OR_RETURN(std::string text, Str(runtime, value));
  return runtime.String(std::move(text));
}

template <std::string (*kMap)(std::string_view)>
Result<Value> MapText(Runtime& runtime, const Value& input, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("a text filter", args, {}).status());
  TN_ASSIGN_OR_RETURN(const Value text, AsText(runtime, input));
  return runtime.StringLike(text, kMap(text.text()));
}

bool OpensWord(char32_t c) {
  return IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
}

// Upper case after blanks, hyphens and opening brackets, lower case elsewhere: not str.title().
std::string TitleWords(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    const bool gap = OpensWord(DecodeAt(text, at).value);
    while (end < text.size()) {
      const CodePoint point = DecodeAt(text, end);
      if (OpensWord(point.value) != gap) break;
      end += point.num_bytes;
    }
    const std::string_view run = text.substr(at, end - at);
    const size_t first = DecodeAt(run, 0).num_bytes;
    out += ToUpper(run.substr(0, first));
    out += ToLower(run.substr(first));
    at = end;
  }
  return out;
}

Result<Value> Title(Runtime& runtime, const Value& input, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("title", args, {}).status());
  TN_ASSIGN_OR_RETURN(const Value text, AsText(runtime, input));
  return runtime.String(TitleWords(text.text()));
}

Result<Value> Trim(Runtime& runtime, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("trim", args, {"chars"}));
  TN_ASSIGN_OR_RETURN(const Value text, AsText(runtime, input));
  std::string_view chars;
  const std::string_view* given = nullptr;
  if (bound.HasValue(0)) {
    TN_ASSIGN_OR_RETURN(chars, TextArgument("trim", *bound[0]));
    given = &chars;
  }
  return runtime.StringLike(text, std::string(StripLeft(StripRight(text.text(), given), given)));
}

Result<Value> Center(Runtime& runtime, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("center", args, {"width"}));
  TN_ASSIGN_OR_RETURN(const Value text, AsText(runtime, input));
  Int width = 80;
  if (bound.Has(0)) {
    TN_ASSIGN_OR_RETURN(width, IntegerArgument("center", *bound[0]));
  }
  TN_ASSIGN_OR_RETURN(std::string centered, JustifyText(runtime, text.text(), '^', width, " "));
  return runtime.StringLike(text, std::move(centered));
}

Result<Value> Replace(Runtime& runtime, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("replace", args, {"old", "new", "count"}, 2));
  Int limit = -1;
  if (bound.HasValue(2)) {
    TN_ASSIGN_OR_RETURN(limit, IntegerArgument("replace", *bound[2]));
  }
  TN_ASSIGN_OR_RETURN(Value text, AsText(runtime, input));
  TN_ASSIGN_OR_RETURN(Value old_text, AsText(runtime, *bound[0]));
  TN_ASSIGN_OR_RETURN(Value new_text, AsText(runtime, *bound[1]));
  bool markup = false;
  if (runtime.autoescape) {
    if (old_text.is_markup() || (new_text.is_markup() && !text.is_markup())) {
      TN_ASSIGN_OR_RETURN(text, Escape(runtime, text));
    }
    markup = text.is_markup();
  }
  if (markup) {
    TN_ASSIGN_OR_RETURN(old_text, Escape(runtime, old_text));
    TN_ASSIGN_OR_RETURN(new_text, Escape(runtime, new_text));
  }
  TN_ASSIGN_OR_RETURN(std::string replaced,
                      ReplaceText(runtime, text.text(), old_text.text(), new_text.text(), limit));
  return runtime.String(std::move(replaced), markup);
}

Result<Value> Format(Runtime& runtime, const Value& input, const Args& args) {
  if (!args.positional.empty() && !args.named.empty()) {
    return Refused("format: positional and named values cannot be mixed");
  }
  TN_ASSIGN_OR_RETURN(const Value text, AsText(runtime, input));
  Value values;
  if (args.named.empty()) {
    values = runtime.Tuple(args.positional);
  } else {
    values = runtime.MakeDict({args.named.begin(), args.named.end()});
  }
  return FormatPercent(runtime, text, values);
}

Result<Value> Indent(Runtime& runtime, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("indent", args, {"width", "first", "blank"}));
  TN_RETURN_IF_ERROR(TextArgument("indent", input).status());
  std::string indent(4, ' ');
  if (bound.Has(0) && bound[0]->is_text()) {
    indent = bound[0]->text();
  } else if (bound.Has(0)) {
    TN_ASSIGN_OR_RETURN(const Int width, IntegerArgument("indent", *bound[0]));
    TN_RETURN_IF_ERROR(runtime.Reserve(width));
    indent = std::string(static_cast<size_t>(std::max<Int>(width, 0)), ' ');
  }
  const bool first = bound.Has(1) && Truth(*bound[1]);
  const bool blank = bound.Has(2) && Truth(*bound[2]);
  // The added newline makes a trailing one open a last, empty line.
  const std::string text = std::string(input.text()) + "\n";
  TN_RETURN_IF_ERROR(
      runtime.Reserve(static_cast<Int>(text.size()) * Int{sizeof(std::string_view)}));
  const std::vector<std::string_view> lines = SplitLines(text);
  TN_RETURN_IF_ERROR(
      runtime.Reserve(static_cast<Int>(lines.size()) * static_cast<Int>(indent.size()) +
                      static_cast<Int>(text.size())));
  std::string out = first ? indent : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 && (blank || !lines[i].empty())) out += indent;
    out += lines[i];
  }
  return runtime.StringLike(input, std::move(out));
}

Result<Value> Truncate(Runtime& runtime, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound,
                      Bind("truncate", args, {"length", "killwords", "end", "leeway"}));
  if (input.is_undefined()) return input;  // of no length
  TN_ASSIGN_OR_RETURN(const std::string_view text, TextArgument("truncate", input));
  Int length = 255;
  Int leeway = 5;
  std::string_view end = "...";
  if (bound.Has(0)) {
    TN_ASSIGN_OR_RETURN(length, IntegerArgument("truncate", *bound[0]));
  }
  if (bound.Has(2)) {
    TN_ASSIGN_OR_RETURN(end, TextArgument("truncate", *bound[2]));
  }
  if (bound.HasValue(3)) {
    TN_ASSIGN_OR_RETURN(leeway, IntegerArgument("truncate", *bound[3]));
  }
  const auto end_size = static_cast<Int>(CountCodePoints(end));
  if (length < end_size || leeway < 0) {
    return Refused("truncate(): length must hold the end mark, and leeway be at least 0");
  }
  if (static_cast<Int>(CountCodePoints(text)) - leeway <= length) return input;
  std::string_view kept = text.substr(0, ByteOffset(text, static_cast<size_t>(length - end_size)));
  if (!(bound.Has(1) && Truth(*bound[1])))
    kept = kept.substr(0, std::min(kept.rfind(' '), kept.size()));
  return runtime.StringLike(input, std::string(kept) + std::string(end));
}

Result<Value> WordCount(Runtime& runtime, const Value& input, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("wordcount", args, {}).status());
  TN_ASSIGN_OR_RETURN(const Value value, AsText(runtime, input));
  const std::string_view text = value.text();
  int64_t count = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = DecodeAt(text, at);
    at += point.num_bytes;
    const bool joins = point.value == '_' || IsAlnum(point.value);
    count += joins && !in_word ? 1 : 0;
    in_word = joins;
  }
  return Value(count);
}

Result<Value> WordWrap(Runtime& runtime, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(
      const Bound bound,
      Bind("wordwrap", args, {"width", "break_long_words", "wrapstring", "break_on_hyphens"}));
  TN_ASSIGN_OR_RETURN(const std::string_view text, TextArgument("wordwrap", input));
  WrapOptions options;
  if (bound.Has(0)) {
    TN_ASSIGN_OR_RETURN(const Int width, IntegerArgument("wordwrap", *bound[0]));
    if (width < 1) return Refused("wordwrap(): width must be at least 1");
    options.width = static_cast<size_t>(std::min<Int>(width, 1 << 30));
  }
  if (bound.Has(1)) options.break_long_words = Truth(*bound[1]);
  std::string_view separator = "\n";
  if (bound.HasValue(2)) {
    TN_ASSIGN_OR_RETURN(separator, TextArgument("wordwrap", *bound[2]));
  }
  if (bound.Has(3)) options.break_on_hyphens = Truth(*bound[3]);
  const auto size = static_cast<Int>(text.size()) + 1;
  TN_RETURN_IF_ERROR(runtime.Reserve(size * 48 + size * static_cast<Int>(separator.size())));
  std::string out;
  bool first_line = true;
  for (const std::string_view paragraph : SplitLines(text)) {
    // An empty paragraph wraps to no line, which still leaves its place.
    const std::vector<std::string> lines = WrapParagraph(paragraph, options);
    if (!first_line) out += separator;
    first_line = false;
    for (size_t i = 0; i < lines.size(); ++i) {
      if (i > 0) out += separator;
      out += lines[i];
    }
  }
  return runtime.String(std::move(out));
}

void AppendUrlQuoted(std::string_view text, bool for_query, std::string& out) {
  for (const char c : text) {
    const bool unreserved = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                            (c >= 'a' && c <= 'z') || c == '_' || c == '.' || c == '-' || c == '~';
    if (unreserved || (c == '/' && !for_query)) {
      out += c;
    } else if (c == ' ' && for_query) {
      out += '+';
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
}

Result<Value> UrlEncode(Runtime& runtime, const Value& input, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("urlencode", args, {}).status());
  std::string out;
  if (input.is_text() || !Cursor::CanIterate(input)) {
    TN_ASSIGN_OR_RETURN(const std::string text, Str(runtime, input));
    AppendUrlQuoted(text, false, out);
    return runtime.String(std::move(out));
  }
  std::vector<Dict::Entry> entries;
  if (input.is_dict()) {
    entries = input.dict()->entries;
  } else {
    TN_ASSIGN_OR_RETURN(const Values pairs, ToItems(runtime, input));
    for (const Value& pair : pairs) {
      TN_ASSIGN_OR_RETURN(Values items, ToItems(runtime, pair));
      if (items.size() != 2) return Refused("urlencode wants pairs of a key and a value");
      entries.emplace_back(std::move(items[0]), std::move(items[1]));
    }
  }
  for (const auto& [key, value] : entries) {
    if (!out.empty()) out += '&';
    TN_ASSIGN_OR_RETURN(const std::string key_text, Str(runtime, key));
    AppendUrlQuoted(key_text, true, out);
    out += '=';
    TN_ASSIGN_OR_RETURN(const std::string value_text, Str(runtime, value));
    AppendUrlQuoted(value_text, true, out);
    TN_RETURN_IF_ERROR(runtime.Reserve(static_cast<Int>(out.size())));
  }
  return runtime.String(std::move(out));
}

Result<Value> XmlAttr(Runtime& runtime, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("xmlattr", args, {"autospace"}));
  if (!input.is_dict()) return Refused("xmlattr wants a dictionary");
  std::string out;
  for (const auto& [key, value] : input.dict()->entries) {
    if (value.is_none() || value.is_undefined()) continue;
    TN_ASSIGN_OR_RETURN(const std::string_view name, TextArgument("xmlattr", key));
    if (name.find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos) {
      return Refused(fmt::format("xmlattr: '{}' is no attribute name", name));
    }
    if (!out.empty()) out += ' ';
    TN_RETURN_IF_ERROR(AppendEscapedValue(runtime, key, out));
    out += "=\"";
    TN_RETURN_IF_ERROR(AppendEscapedValue(runtime, value, out));
    out += '"';
  }
  if (!out.empty() && !(bound.Has(0) && !Truth(*bound[0]))) out.insert(0, 1, ' ');
  return runtime.String(std::move(out), runtime.autoescape);
}

// Removes comments and tags, joins blanks to one, and resolves the common entities.
Result<Value> StripTags(Runtime& runtime, const Value& input, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("striptags", args, {}).status());
  TN_ASSIGN_OR_RETURN(const std::string text, Str(runtime, input));
  return runtime.String(StripMarkup(text));
}

constexpr FilterEntry kFilters[] = {{"upper", MapText<ToUpper>},
                                    {"lower", MapText<ToLower>},
                                    {"title", Title},
                                    {"capitalize", MapText<Capitalize>},
                                    {"trim", Trim},
                                    {"center", Center},
                                    {"replace", Replace},
                                    {"format", Format},
                                    {"indent", Indent},
                                    {"truncate", Truncate},
                                    {"wordcount", WordCount},
                                    {"wordwrap", WordWrap},
                                    {"urlencode", UrlEncode},
                                    {"xmlattr", XmlAttr},
                                    {"striptags", StripTags}};

}  // namespace

const FilterEntry* FindTextFilter(std::string_view name) {
  for (const FilterEntry& entry : kFilters) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

}  // namespace tenon::jinja
