#include "tenon/tokenizer/jinja_filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tenon/tokenizer/jinja_number_parse.h"
#include "tenon/tokenizer/jinja_operators.h"
#include "tenon/tokenizer/jinja_pprint.h"
#include "tenon/tokenizer/jinja_print.h"

namespace tenon::jinja {
namespace {

Result<Value> Abs(Runtime&, const Value& input, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("abs", args, {}).status());
  if (input.is_undefined()) return UndefinedError(input);
  if (input.is_integral()) {
    return input.as_int() < 0 ? Negate(input) : Result<Value>(Value(input.as_int()));
  }
  if (input.is_float()) return Value(std::fabs(input.as_double()));
  return Refused(fmt::format("abs() wants a number, not '{}'", input.TypeName()));
}

Result<Value> Attr(Runtime& runtime, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("attr", args, {"name"}, 1));
  TN_ASSIGN_OR_RETURN(const std::string_view name, TextArgument("attr", *bound[0]));
  TN_ASSIGN_OR_RETURN(Value attribute, GetOwnAttribute(runtime, input, name));
  if (!attribute.is_missing()) return attribute;
  return Value::Undefined({fmt::format("{} object", input.TypeName()), std::string(name), {}});
}

Result<Value> Default(Runtime& runtime, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("default", args, {"default_value", "boolean"}));
  const bool replace = input.is_undefined() || (bound.Has(1) && Truth(*bound[1]) && !Truth(input));
  if (!replace) return input;
  return bound.Has(0) ? *bound[0] : runtime.String("");
}

Result<Value> EscapeFilter(Runtime& runtime, const Value& input, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("escape", args, {}).status());
  return Escape(runtime, input);
}

Result<Value> ForceEscape(Runtime& runtime, const Value& input, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("forceescape", args, {}).status());
  TN_ASSIGN_OR_RETURN(std::string text, Str(runtime, input));
  return Escape(runtime, runtime.String(std::move(text)));
}

Result<Value> Safe(Runtime& runtime, const Value& input, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("safe", args, {}).status());
  if (input.is_markup()) return input;
  TN_ASSIGN_OR_RETURN(std::string text, Str(runtime, input));
  return runtime.String(std::move(text), true);
}

Result<Value> StringFilter(Runtime& runtime, const Value& input, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("string", args, {}).status());
  if (input.is_text()) return input;
  TN_ASSIGN_OR_RETURN(std::string text, Str(runtime, input));
  return runtime.String(std::move(text));
}

Result<Value> LengthFilter(Runtime& runtime, const Value& input, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("length", args, {}).status());
  TN_ASSIGN_OR_RETURN(const int64_t length, Length(runtime, input));
  return Value(length);
}

// A float cut to an integer; absent for NaN and what is beyond 127 bits.
std::optional<Int> Truncate(double value) {
  if (!(std::fabs(value) < 1.7e38)) return std::nullopt;
  return static_cast<Int>(value);
}

Result<Value> IntFilter(Runtime&, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("int", args, {"default", "base"}));
  const Value fallback = bound.Has(0) ? *bound[0] : Value(0);
  if (input.is_undefined()) return UndefinedError(input);
  if (input.is_integral()) return Value(input.as_int());
  std::optional<double> real;
  if (input.is_float()) {
    real = input.as_double();
    if (std::isinf(*real)) return Refused("int: infinity has no integer value");
  } else if (input.is_text()) {
    Int base = 10;
    if (bound.Has(1)) {
      TN_ASSIGN_OR_RETURN(base, IntegerArgument("int", *bound[1]));
    }
    const std::optional<Int> integer =
        ParseInt(input.text(), static_cast<int>(std::clamp<Int>(base, -1, 37)));
    if (integer) return Value(*integer);
    real = ParseFloat(input.text());
  }
  const std::optional<Int> cut = real ? Truncate(*real) : std::nullopt;
  return cut ? Value(*cut) : fallback;
}

Result<Value> FloatFilter(Runtime&, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("float", args, {"default"}));
  if (input.is_undefined()) return UndefinedError(input);
  if (input.is_number()) return Value(input.as_double());
  const std::optional<double> real =
      input.is_text() ? ParseFloat(input.text()) : std::optional<double>();
  if (real) return Value(*real);
  return bound.Has(0) ? *bound[0] : Value(0.0);
}

Value RoundInt(Int value, Int precision) {
  if (precision >= 0) return Value(value);
  if (precision < -37) return Value(0);
  Int unit = 1;
  for (Int i = precision; i < 0; ++i) unit *= 10;
  const Int rest = ((value % unit) + unit) % unit;
  const Int low = value - rest;
  const bool up = rest * 2 > unit || (rest * 2 == unit && (low / unit) % 2 != 0);
  return Value(up ? low + unit : low);
}

double RoundFloat(double value, Int precision) {
  // More digits than a double has change nothing.
  if (!std::isfinite(value) || precision > 330) return value;
  if (precision >= 0) {
    const std::string text = fmt::format("{:.{}f}", value, static_cast<int>(precision));
    return ParseFloat(text).value_or(value);
  }
  if (precision < -310) return std::copysign(0.0, value);
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(value / unit) * unit;
}

Result<Value> Round(Runtime&, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("round", args, {"precision", "method"}));
  Int precision = 0;
  if (bound.Has(0)) {
    TN_ASSIGN_OR_RETURN(precision, IntegerArgument("round", *bound[0]));
  }
  std::string_view method = "common";
  if (bound.Has(1)) {
    TN_ASSIGN_OR_RETURN(method, TextArgument("round", *bound[1]));
  }
  if (method != "common" && method != "ceil" && method != "floor") {
    return Refused(fmt::format("round(): method = '{}', must be common, ceil or floor", method));
  }
  if (input.is_undefined()) return UndefinedError(input);
  if (!input.is_number()) {
    return Refused(fmt::format("round() wants a number, not '{}'", input.TypeName()));
  }
  if (method == "common") {
    return input.is_integral() ? RoundInt(input.as_int(), precision)
                               : Value(RoundFloat(input.as_double(), precision));
  }
  const double scale = std::pow(10.0, static_cast<double>(std::clamp<Int>(precision, -400, 400)));
  const double scaled = input.as_double() * scale;
  if (!std::isfinite(scaled) || scale == 0) return Refused("round(): the number is too large");
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Result<Value> FileSizeFormat(Runtime& runtime, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("filesizeformat", args, {"binary"}));
  const bool binary = bound.Has(0) && Truth(*bound[0]);
  TN_ASSIGN_OR_RETURN(const Value number, FloatFilter(runtime, input, {{Value()}, {}}));
  if (!number.is_float()) return Refused("filesizeformat wants a number");
  const double bytes = number.as_double();
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return runtime.String("1 Byte");
  if (!(bytes >= base)) return runtime.String(fmt::format("{:.0f} Bytes", std::trunc(bytes)));
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base * base;
  size_t at = 0;
  while (at + 1 < kPrefixes.size() && bytes >= unit) {
    unit *= base;
    ++at;
  }
  const std::string prefix = binary ? fmt::format("{}iB", at == 0 ? 'K' : kPrefixes[at])
                                    : fmt::format("{}B", kPrefixes[at]);
  return runtime.String(fmt::format("{:.1f} {}", base * bytes / unit, prefix));
}

Status ReadSeparators(const Value& value, JsonStyle& style) {
  const bool is_pair = (value.is_tuple() || value.is_list()) &&
                       value.sequence()->items.size() == 2 &&
                       value.sequence()->items[0].is_text() && value.sequence()->items[1].is_text();
  if (!is_pair) return Refused("tojson(): separators must be a pair of str");
  style.item_separator = value.sequence()->items[0].text();
  style.key_separator = value.sequence()->items[1].text();
  return {};
}

Result<Value> ToJsonFilter(Runtime& runtime, const Value& input, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound,
                      Bind("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = bound.Has(0) && Truth(*bound[0]);
  style.sort_keys = bound.Has(3) && Truth(*bound[3]);
  if (bound.HasValue(1) && bound[1]->is_text()) {
    style.indent = bound[1]->text();
  } else if (bound.HasValue(1)) {
    TN_ASSIGN_OR_RETURN(const Int width, IntegerArgument("tojson", *bound[1]));
    if (width > 1000) return Refused("tojson(): an indent of at most 1000 is served");
    style.indent = std::string(static_cast<size_t>(std::max<Int>(width, 0)), ' ');
  }
  if (style.indent) style.item_separator = ",";
  if (bound.HasValue(2)) TN_RETURN_IF_ERROR(ReadSeparators(*bound[2], style));
  TN_ASSIGN_OR_RETURN(std::string text, ToJson(runtime, input, style));
  return runtime.String(std::move(text));
}

Result<Value> PrettyPrint(Runtime& runtime, const Value& input, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("pprint", args, {}).status());
  TN_ASSIGN_OR_RETURN(std::string text, PrettyRepr(runtime, input));
  return runtime.String(std::move(text));
}

Result<Value> RandomRefused(Runtime&, const Value&, const Args&) {
  return Refused("the filter 'random' is not served: a prompt must not depend on chance");
}

Result<Value> UrlizeRefused(Runtime&, const Value&, const Args&) {
  return Refused("the filter 'urlize' is not served: it makes HTML links, not prompts");
}

constexpr FilterEntry kFilters[] = {{"abs", Abs},
                                    {"attr", Attr},
                                    {"d", Default},
                                    {"default", Default},
                                    {"e", EscapeFilter},
                                    {"escape", EscapeFilter},
                                    {"forceescape", ForceEscape},
                                    {"safe", Safe},
                                    {"string", StringFilter},
                                    {"length", LengthFilter},
                                    {"count", LengthFilter},
                                    {"int", IntFilter},
                                    {"float", FloatFilter},
                                    {"round", Round},
                                    {"filesizeformat", FileSizeFormat},
                                    {"tojson", ToJsonFilter},
                                    {"pprint", PrettyPrint},
                                    {"random", RandomRefused},
                                    {"urlize", UrlizeRefused}};

}  // namespace

const FilterEntry* FindFilter(std::string_view name) {
  for (const FilterEntry& entry : kFilters) {
    if (entry.name == name) return &entry;
  }
  for (const auto find : {FindTextFilter, FindSequenceFilter, FindSelectionFilter}) {
    if (const FilterEntry* entry = find(name)) return entry;
  }
  return nullptr;
}

Result<Value> CallFilter(Runtime& runtime, const FilterEntry& filter, const Value& input,
                         const Args& args) {
  const int64_t text_work = input.is_text() ? static_cast<int64_t>(input.text().size() / 64) : 0;
  if (!runtime.Work(1 + text_work)) return runtime.failure();
  return filter.function(runtime, input, args);
}

}  // namespace tenon::jinja
