#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tenon/tokenizer/jinja_format.h"
#include "tenon/tokenizer/jinja_methods.h"
#include "tenon/tokenizer/jinja_number_format.h"
#include "tenon/tokenizer/jinja_operators.h"
#include "tenon/tokenizer/jinja_print.h"
#include "tenon/tokenizer/jinja_text_tools.h"
#include "tenon/tokenizer/jinja_unicode.h"

namespace tenon::jinja {
namespace {

// A text of n bytes splits into at most n + 1 parts, each a view before it becomes a value.
constexpr int kBytesPerPart = sizeof(std::string_view);

template <std::string (*kMap)(std::string_view)>
Result<Value> MapText(Runtime& runtime, const Value& self, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("a method of str", args, {}).status());
  return runtime.StringLike(self, kMap(self.text()));
}

// Every code point is in the class, and there is one.
template <bool (*kClass)(char32_t)>
Result<Value> AllInClass(Runtime&, const Value& self, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("a method of str", args, {}).status());
  const std::string_view text = self.text();
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = DecodeAt(text, at);
    if (!kClass(point.value)) return Value(false);
    at += point.num_bytes;
  }
  return Value(!text.empty());
}

template <bool kUpper>
Result<Value> HasCase(Runtime&, const Value& self, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("a method of str", args, {}).status());
  return Value(IsAllCased(self.text(), kUpper));
}

Result<Value> IsTitle(Runtime&, const Value& self, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("istitle", args, {}).status());
  bool any = false;
  bool previous_cased = false;
  const std::string_view text = self.text();
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = DecodeAt(text, at);
    at += point.num_bytes;
    const bool opens = IsUpper(point.value) || IsTitlecase(point.value);
    const bool follows = IsLower(point.value);
    if ((opens && previous_cased) || (follows && !previous_cased)) return Value(false);
    any = any || opens || follows;
    previous_cased = opens || follows;
  }
  return Value(any);
}

Result<Value> IsAscii(Runtime&, const Value& self, const Args&) {
  const std::string_view text = self.text();
  return Value(std::all_of(text.begin(), text.end(),
                           [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}

Result<Value> IsPrintableText(Runtime& runtime, const Value& self, const Args& args) {
  if (self.text().empty()) return Value(true);
  return AllInClass<IsPrintable>(runtime, self, args);
}

Result<Value> IsIdentifierText(Runtime&, const Value& self, const Args&) {
  return Value(IsIdentifier(self.text()));
}

template <bool kLeft, bool kRight>
Result<Value> Strip(Runtime& runtime, const Value& self, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("strip", args, {"chars"}));
  std::string_view chars;
  const std::string_view* given = nullptr;
  if (bound.HasValue(0)) {
    TN_ASSIGN_OR_RETURN(chars, TextArgument("strip", *bound[0]));
    given = &chars;
  }
  std::string_view text = self.text();
  if (kLeft) text = StripLeft(text, given);
  if (kRight) text = StripRight(text, given);
  return runtime.StringLike(self, std::string(text));
}

// The part of the text that find, count and startswith look at. `usable` is false when the start
// lies behind the end: nothing is found then, not even the empty text.
struct Window {
  bool usable;
  size_t begin;  // byte
  std::string_view text;
};

Result<Window> WindowOf(std::string_view function, std::string_view text, const Bound& bound) {
  if (!bound.HasValue(1) && !bound.HasValue(2)) return Window{true, 0, text};
  const auto size = static_cast<Int>(CountCodePoints(text));
  Int limits[] = {0, size};
  for (size_t i = 0; i < 2; ++i) {
    if (!bound.HasValue(i + 1)) continue;
    TN_ASSIGN_OR_RETURN(limits[i], IntegerArgument(function, *bound[i + 1]));
    if (limits[i] < 0) limits[i] = std::max<Int>(limits[i] + size, 0);
  }
  limits[1] = std::min(limits[1], size);
  if (limits[0] > limits[1]) return Window{false, 0, {}};
  const size_t begin = ByteOffset(text, static_cast<size_t>(limits[0]));
  const size_t length = ByteOffset(text.substr(begin), static_cast<size_t>(limits[1] - limits[0]));
  return Window{true, begin, text.substr(begin, length)};
}

// Code point index of the first or last occurrence, -1 when absent.
Result<int64_t> Locate(Runtime& runtime, const Value& self, const Args& args, bool from_end) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("find", args, {"sub", "start", "end"}, 1));
  TN_ASSIGN_OR_RETURN(const std::string_view needle, TextArgument("find", *bound[0]));
  TN_ASSIGN_OR_RETURN(const Window window, WindowOf("find", self.text(), bound));
  if (!window.usable) return int64_t{-1};
  if (!runtime.Work(SearchCost(self.text(), needle))) return runtime.failure();
  const size_t found = from_end ? FindLastText(window.text, needle) : FindText(window.text, needle);
  if (found == std::string_view::npos) return int64_t{-1};
  return static_cast<int64_t>(CountCodePoints(self.text().substr(0, window.begin + found)));
}

template <bool kFromEnd>
Result<Value> Find(Runtime& runtime, const Value& self, const Args& args) {
  TN_ASSIGN_OR_RETURN(const int64_t at, Locate(runtime, self, args, kFromEnd));
  return Value(at);
}

template <bool kFromEnd>
Result<Value> Index(Runtime& runtime, const Value& self, const Args& args) {
  TN_ASSIGN_OR_RETURN(const int64_t at, Locate(runtime, self, args, kFromEnd));
  if (at < 0) return Refused("index(): the substring is not there");
  return Value(at);
}

Result<Value> Count(Runtime& runtime, const Value& self, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("count", args, {"sub", "start", "end"}, 1));
  TN_ASSIGN_OR_RETURN(const std::string_view needle, TextArgument("count", *bound[0]));
  TN_ASSIGN_OR_RETURN(const Window window, WindowOf("count", self.text(), bound));
  if (!window.usable) return Value(0);
  if (needle.empty()) return Value(CountCodePoints(window.text) + 1);
  if (!runtime.Work(SearchCost(window.text, needle))) return runtime.failure();
  return Value(CountText(window.text, needle));
}

template <bool kStart>
Result<Value> Affix(Runtime&, const Value& self, const Args& args) {
  constexpr std::string_view kName = kStart ? "startswith" : "endswith";
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind(kName, args, {"affix", "start", "end"}, 1));
  TN_ASSIGN_OR_RETURN(const Window window, WindowOf(kName, self.text(), bound));
  const Values single = {*bound[0]};
  const Values& affixes = bound[0]->is_tuple() ? bound[0]->sequence()->items : single;
  for (const Value& affix : affixes) {
    TN_ASSIGN_OR_RETURN(const std::string_view text, TextArgument(kName, affix));
    if (!window.usable) continue;
    if (kStart ? window.text.starts_with(text) : window.text.ends_with(text)) return Value(true);
  }
  return Value(false);
}

template <bool kStart>
Result<Value> RemoveAffix(Runtime& runtime, const Value& self, const Args& args) {
  constexpr std::string_view kName = kStart ? "removeprefix" : "removesuffix";
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind(kName, args, {"affix"}, 1));
  TN_ASSIGN_OR_RETURN(const std::string_view affix, TextArgument(kName, *bound[0]));
  std::string_view text = self.text();
  if (kStart && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!kStart && text.ends_with(affix)) text.remove_suffix(affix.size());
  return runtime.StringLike(self, std::string(text));
}

Result<Value> Replace(Runtime& runtime, const Value& self, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("replace", args, {"old", "new", "count"}, 2));
  TN_RETURN_IF_ERROR(TextArgument("replace", *bound[0]).status());
  TN_RETURN_IF_ERROR(TextArgument("replace", *bound[1]).status());
  Value old_text = *bound[0];
  Value new_text = *bound[1];
  if (self.is_markup()) {
    TN_ASSIGN_OR_RETURN(old_text, Escape(runtime, old_text));
    TN_ASSIGN_OR_RETURN(new_text, Escape(runtime, new_text));
  }
  Int limit = -1;
  if (bound.HasValue(2)) {
    TN_ASSIGN_OR_RETURN(limit, IntegerArgument("replace", *bound[2]));
  }
  TN_ASSIGN_OR_RETURN(std::string text,
                      ReplaceText(runtime, self.text(), old_text.text(), new_text.text(), limit));
  return runtime.StringLike(self, std::move(text));
}

template <bool kFromEnd>
Result<Value> Split(Runtime& runtime, const Value& self, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("split", args, {"sep", "maxsplit"}));
  Int limit = -1;
  if (bound.HasValue(1)) {
    TN_ASSIGN_OR_RETURN(limit, IntegerArgument("split", *bound[1]));
  }
  TN_RETURN_IF_ERROR(runtime.Reserve(static_cast<Int>(self.text().size()) * kBytesPerPart));
  std::vector<std::string_view> parts;
  if (bound.HasValue(0)) {
    TN_ASSIGN_OR_RETURN(const std::string_view separator, TextArgument("split", *bound[0]));
    if (separator.empty()) return Refused("split(): the separator is empty");
    if (!runtime.Work(SearchCost(self.text(), separator))) return runtime.failure();
    parts = kFromEnd ? SplitFromEnd(self.text(), separator, limit)
                     : SplitAt(self.text(), separator, limit);
  } else {
    parts = kFromEnd ? SplitBlanksFromEnd(self.text(), limit) : SplitBlanks(self.text(), limit);
  }
  return TextList(runtime, self, parts);
}

Result<Value> SplitLinesMethod(Runtime& runtime, const Value& self, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("splitlines", args, {"keepends"}));
  TN_RETURN_IF_ERROR(runtime.Reserve(static_cast<Int>(self.text().size()) * kBytesPerPart));
  return TextList(runtime, self, SplitLines(self.text(), bound.Has(0) && Truth(*bound[0])));
}

template <bool kFromEnd>
Result<Value> Partition(Runtime& runtime, const Value& self, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("partition", args, {"sep"}, 1));
  TN_ASSIGN_OR_RETURN(const std::string_view separator, TextArgument("partition", *bound[0]));
  if (separator.empty()) return Refused("partition(): the separator is empty");
  const std::string_view text = self.text();
  if (!runtime.Work(SearchCost(text, separator))) return runtime.failure();
  const size_t found = kFromEnd ? FindLastText(text, separator) : FindText(text, separator);
  std::string_view parts[] = {text, {}, {}};
  if (found != std::string_view::npos) {
    parts[0] = text.substr(0, found);
    parts[1] = separator;
    parts[2] = text.substr(found + separator.size());
  } else if (kFromEnd) {
    std::swap(parts[0], parts[2]);
  }
  Values items;
  for (const std::string_view part : parts) {
    items.push_back(runtime.StringLike(self, std::string(part)));
  }
  return runtime.Tuple(std::move(items));
}

Result<Value> Join(Runtime& runtime, const Value& self, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("join", args, {"iterable"}, 1));
  TN_ASSIGN_OR_RETURN(const Values items, ToItems(runtime, *bound[0]));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_text()) {
      return Refused(fmt::format("join(): item {} is '{}', not str", i, items[i].TypeName()));
    }
    if (i > 0) out += self.text();
    if (self.is_markup() && !items[i].is_markup()) {
      AppendEscaped(items[i].text(), out);
    } else {
      out += items[i].text();
    }
    if (i % 64 == 0) TN_RETURN_IF_ERROR(runtime.Reserve(static_cast<Int>(out.size())));
  }
  return runtime.StringLike(self, std::move(out));
}

template <char kAlign>
Result<Value> Justify(Runtime& runtime, const Value& self, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("justify", args, {"width", "fillchar"}, 1));
  TN_ASSIGN_OR_RETURN(const Int width, IntegerArgument("justify", *bound[0]));
  std::string_view fill = " ";
  if (bound.Has(1)) {
    TN_ASSIGN_OR_RETURN(fill, TextArgument("justify", *bound[1]));
    if (CountCodePoints(fill) != 1) return Refused("the fill character must be one character");
  }
  TN_ASSIGN_OR_RETURN(std::string text, JustifyText(runtime, self.text(), kAlign, width, fill));
  return runtime.StringLike(self, std::move(text));
}

Result<Value> ZeroFill(Runtime& runtime, const Value& self, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("zfill", args, {"width"}, 1));
  TN_ASSIGN_OR_RETURN(const Int width, IntegerArgument("zfill", *bound[0]));
  const std::string_view text = self.text();
  const bool has_sign = !text.empty() && (text[0] == '+' || text[0] == '-');
  const std::string_view sign = text.substr(0, has_sign ? 1 : 0);
  TN_ASSIGN_OR_RETURN(const std::string digits,
                      JustifyText(runtime, text.substr(sign.size()), '>',
                                  width - static_cast<Int>(sign.size()), "0"));
  return runtime.StringLike(self, std::string(sign) + digits);
}

Result<Value> ExpandTabs(Runtime& runtime, const Value& self, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("expandtabs", args, {"tabsize"}));
  Int size = 8;
  if (bound.Has(0)) {
    TN_ASSIGN_OR_RETURN(size, IntegerArgument("expandtabs", *bound[0]));
  }
  size = std::clamp<Int>(size, 0, std::numeric_limits<int32_t>::max());
  const std::string_view text = self.text();
  const auto num_tabs = static_cast<Int>(std::count(text.begin(), text.end(), '\t'));
  TN_RETURN_IF_ERROR(runtime.Reserve(num_tabs * size));
  std::string out;
  size_t column = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = DecodeAt(text, at);
    if (point.value == '\t') {
      const auto stop = static_cast<size_t>(size);
      const size_t blanks = stop == 0 ? 0 : stop - column % stop;
      out.append(blanks, ' ');
      column += blanks;
    } else {
      out += text.substr(at, point.num_bytes);
      column = point.value == '\n' || point.value == '\r' ? 0 : column + 1;
    }
    at += point.num_bytes;
  }
  return runtime.StringLike(self, std::move(out));
}

Result<Value> FormatMap(Runtime& runtime, const Value& self, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("format_map", args, {"mapping"}, 1));
  if (!bound[0]->is_dict()) return Refused("format_map() wants a dictionary");
  Args named;
  for (const auto& [key, value] : bound[0]->dict()->entries) {
    if (key.is_text()) named.named.emplace_back(key, value);
  }
  return FormatBraces(runtime, self, named);
}

constexpr MethodEntry kMethods[] = {
    {"strip", Strip<true, true>},
    {"split", Split<false>},
    {"startswith", Affix<true>},
    {"endswith", Affix<false>},
    {"lstrip", Strip<true, false>},
    {"rstrip", Strip<false, true>},
    {"replace", Replace},
    {"join", Join},
    {"upper", MapText<ToUpper>},
    {"lower", MapText<ToLower>},
    {"title", MapText<ToTitle>},
    {"capitalize", MapText<Capitalize>},
    {"swapcase", MapText<SwapCase>},
    {"casefold", MapText<CaseFold>},
    {"rsplit", Split<true>},
    {"splitlines", SplitLinesMethod},
    {"partition", Partition<false>},
    {"rpartition", Partition<true>},
    {"find", Find<false>},
    {"rfind", Find<true>},
    {"index", Index<false>},
    {"rindex", Index<true>},
    {"count", Count},
    {"removeprefix", RemoveAffix<true>},
    {"removesuffix", RemoveAffix<false>},
    {"format", FormatBraces},
    {"format_map", FormatMap},
    {"center", Justify<'^'>},
    {"ljust", Justify<'<'>},
    {"rjust", Justify<'>'>},
    {"zfill", ZeroFill},
    {"expandtabs", ExpandTabs},
    {"isalnum", AllInClass<IsAlnum>},
    {"isalpha", AllInClass<IsAlpha>},
    {"isascii", IsAscii},
    {"isdecimal", AllInClass<IsDecimal>},
    {"isdigit", AllInClass<IsDigit>},
    {"isidentifier", IsIdentifierText},
    {"islower", HasCase<false>},
    {"isnumeric", AllInClass<IsNumeric>},
    {"isprintable", IsPrintableText},
    {"isspace", AllInClass<IsSpace>},
    {"istitle", IsTitle},
    {"isupper", HasCase<true>},
};

}  // namespace

const MethodEntry* FindTextMethod(std::string_view name) {
  for (const MethodEntry& entry : kMethods) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

}  // namespace tenon::jinja
