#include "tenon/tokenizer/jinja_print.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tenon/tokenizer/jinja_unicode.h"

namespace tenon::jinja {
namespace {

Status TooLarge(const Runtime& runtime) {
  return Refused(fmt::format("a value's text takes more than {} bytes (limit max_live_bytes)",
                             runtime.limits().max_live_bytes));
}

Status CheckSize(Runtime& runtime, const std::string& out) {
  if (!runtime.Work(1)) return runtime.failure();
  if (static_cast<int64_t>(out.size()) > runtime.limits().max_live_bytes) return TooLarge(runtime);
  return {};
}

Status AppendItems(Runtime& runtime, const Values& items, std::string& out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    TN_RETURN_IF_ERROR(AppendRepr(runtime, items[i], out));
  }
  return {};
}

Status AppendSequenceRepr(Runtime& runtime, const Sequence& sequence, std::string& out) {
  switch (sequence.type) {
    case SequenceType::kList:
      out += '[';
      TN_RETURN_IF_ERROR(AppendItems(runtime, sequence.items, out));
      out += ']';
      return {};
    case SequenceType::kTuple:
    case SequenceType::kGroup:
      out += '(';
      TN_RETURN_IF_ERROR(AppendItems(runtime, sequence.items, out));
      out += sequence.items.size() == 1 ? ",)" : ")";
      return {};
    case SequenceType::kItems:
      out += "dict_items([";
      break;
    case SequenceType::kKeys:
      out += "dict_keys([";
      break;
    case SequenceType::kValues:
      out += "dict_values([";
      break;
  }
  TN_RETURN_IF_ERROR(AppendItems(runtime, sequence.items, out));
  out += "])";
  return {};
}

Status AppendDictRepr(Runtime& runtime, const Dict& dict, std::string& out) {
  out += '{';
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!first) out += ", ";
    first = false;
    TN_RETURN_IF_ERROR(AppendRepr(runtime, key, out));
    out += ": ";
    TN_RETURN_IF_ERROR(AppendRepr(runtime, value, out));
  }
  out += '}';
  return {};
}

void AppendJsonText(std::string_view text, bool ensure_ascii, std::string& out) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = DecodeAt(text, at);
    const char32_t c = point.value;
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\b') {
      out += "\\b";
    } else if (c == '\f') {
      out += "\\f";
    } else if (c < 0x20 || (ensure_ascii && c >= 0x7F && c <= 0xFFFF)) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else if (ensure_ascii && c > 0xFFFF) {
      const uint32_t offset = static_cast<uint32_t>(c) - 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (offset >> 10), 0xDC00 + (offset & 0x3FF));
    } else {
      out += text.substr(at, point.num_bytes);
    }
    at += point.num_bytes;
  }
  out += '"';
}

std::string JsonFloat(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return FloatText(value);
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  Status Write(const Value& value, int level) {
    TN_RETURN_IF_ERROR(CheckSize(runtime_, out));
    switch (value.kind()) {
      case Value::Kind::kNone:
        out += "null";
        return {};
      case Value::Kind::kBool:
        out += value.as_bool() ? "true" : "false";
        return {};
      case Value::Kind::kInt:
        out += IntText(value.as_int());
        return {};
      case Value::Kind::kFloat:
        out += JsonFloat(value.as_double());
        return {};
      case Value::Kind::kText:
        AppendJsonText(value.text(), style_.ensure_ascii, out);
        return {};
      case Value::Kind::kDict:
        return WriteDict(*value.dict(), level);
      default:
        break;
    }
    if (value.is_list() || value.is_tuple()) return WriteItems(value.sequence()->items, level);
    return Refused(fmt::format("object of type '{}' is not JSON serializable", value.TypeName()));
  }

  std::string out;

 private:
  void NewLine(int level) {
    if (!style_.indent) return;
    out += '\n';
    for (int i = 0; i < level; ++i) out += *style_.indent;
  }

  Status WriteItems(const Values& items, int level) {
    out += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += style_.item_separator;
      NewLine(level + 1);
      TN_RETURN_IF_ERROR(Write(items[i], level + 1));
    }
    if (!items.empty()) NewLine(level);
    out += ']';
    return {};
  }

  Status WriteKey(const Value& key) {
    std::string text;
    switch (key.kind()) {
      case Value::Kind::kText:
        text = key.text();
        break;
      case Value::Kind::kNone:
        text = "null";
        break;
      case Value::Kind::kBool:
        text = key.as_bool() ? "true" : "false";
        break;
      case Value::Kind::kInt:
        text = IntText(key.as_int());
        break;
      case Value::Kind::kFloat:
        text = JsonFloat(key.as_double());
        break;
      default:
        return Refused(fmt::format("a JSON key must be str, int, float, bool or none, not '{}'",
                                   key.TypeName()));
    }
    AppendJsonText(text, style_.ensure_ascii, out);
    return {};
  }

  Status WriteDict(const Dict& dict, int level) {
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) TN_RETURN_IF_ERROR(Sort(entries));
    out += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out += style_.item_separator;
      NewLine(level + 1);
      TN_RETURN_IF_ERROR(WriteKey(entries[i]->first));
      out += style_.key_separator;
      TN_RETURN_IF_ERROR(Write(entries[i]->second, level + 1));
    }
    if (!entries.empty()) NewLine(level);
    out += '}';
    return {};
  }

  static Status Sort(std::vector<const Dict::Entry*>& entries) {
    bool all_text = true;
    bool all_numbers = true;
    for (const Dict::Entry* entry : entries) {
      all_text = all_text && entry->first.is_text();
      all_numbers = all_numbers && entry->first.is_number();
    }
    if (!all_text && !all_numbers) {
      return Refused("sort_keys: keys of different types have no order");
    }
    std::stable_sort(
        entries.begin(), entries.end(),
        [](const Dict::Entry* a, const Dict::Entry* b) { return KeyLess(a->first, b->first); });
    return {};
  }

  Runtime& runtime_;
  const JsonStyle& style_;
};

}  // namespace

std::string IntText(Int value) { return fmt::format("{}", value); }

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  const std::string_view scientific(buffer, static_cast<size_t>(end - buffer));
  const size_t e = scientific.find('e');
  int exponent = 0;
  const char* digits_of_exponent = buffer + e + (buffer[e + 1] == '+' ? 2 : 1);
  std::from_chars(digits_of_exponent, end, exponent);
  // Python switches to an exponent below 1e-4 and from 1e16.
  if (exponent < -4 || exponent >= 16) return std::string(scientific);
  std::string digits;
  for (const char c : scientific.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  std::string out = value < 0 || std::signbit(value) ? "-" : "";
  const auto num_digits = static_cast<int>(digits.size());
  if (exponent < 0) {
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  }
  if (exponent + 1 >= num_digits) {
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - num_digits), '0') + ".0";
  }
  const auto whole = static_cast<size_t>(exponent) + 1;
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string TextRepr(std::string_view text) {
  const bool use_double =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char32_t quote = use_double ? '"' : '\'';
  std::string out(1, static_cast<char>(quote));
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = DecodeAt(text, at);
    const char32_t c = point.value;
    const auto number = static_cast<uint32_t>(c);
    if (c == quote || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (IsPrintable(c)) {
      out += text.substr(at, point.num_bytes);
    } else if (c <= 0xFF) {
      out += fmt::format("\\x{:02x}", number);
    } else if (c <= 0xFFFF) {
      out += fmt::format("\\u{:04x}", number);
    } else {
      out += fmt::format("\\U{:08x}", number);
    }
    at += point.num_bytes;
  }
  out += static_cast<char>(quote);
  return out;
}

Status AppendRepr(Runtime& runtime, const Value& value, std::string& out) {
  TN_RETURN_IF_ERROR(CheckSize(runtime, out));
  const Nesting nesting(runtime);
  if (nesting.too_deep()) return nesting.Error();
  switch (value.kind()) {
    case Value::Kind::kText:
      out += value.is_markup() ? fmt::format("Markup({})", TextRepr(value.text()))
                               : TextRepr(value.text());
      return {};
    case Value::Kind::kSequence:
      return AppendSequenceRepr(runtime, *value.sequence(), out);
    case Value::Kind::kDict:
      return AppendDictRepr(runtime, *value.dict(), out);
    case Value::Kind::kUndefined:
      out += "Undefined";
      return {};
    default:
      return AppendStr(runtime, value, out);
  }
}

Status AppendStr(Runtime& runtime, const Value& value, std::string& out) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return {};
    case Value::Kind::kNone:
      out += "None";
      return {};
    case Value::Kind::kBool:
      out += value.as_bool() ? "True" : "False";
      return {};
    case Value::Kind::kInt:
      out += IntText(value.as_int());
      return {};
    case Value::Kind::kFloat:
      out += FloatText(value.as_double());
      return {};
    case Value::Kind::kText:
      out += value.text();
      return CheckSize(runtime, out);
    case Value::Kind::kSequence:
    case Value::Kind::kDict:
      return AppendRepr(runtime, value, out);
    case Value::Kind::kRange: {
      const Range& range = *value.range();
      out += range.step == 1
                 ? fmt::format("range({}, {})", range.start, range.stop)
                 : fmt::format("range({}, {}, {})", range.start, range.stop, range.step);
      return {};
    }
    case Value::Kind::kIterator:
      out += fmt::format("<{} object>", value.TypeName());
      return {};
    case Value::Kind::kObject:
      return value.object()->AppendRepr(runtime, out);
  }
  return {};
}

Result<std::string> Str(Runtime& runtime, const Value& value) {
  std::string out;
  TN_RETURN_IF_ERROR(AppendStr(runtime, value, out));
  return out;
}

void AppendEscaped(std::string_view text, std::string& out) {
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
}

Status AppendEscapedValue(Runtime& runtime, const Value& value, std::string& out) {
  if (value.is_markup()) return AppendStr(runtime, value, out);
  TN_ASSIGN_OR_RETURN(const std::string text, Str(runtime, value));
  AppendEscaped(text, out);
  return {};
}

Result<Value> Escape(Runtime& runtime, const Value& value) {
  if (value.is_markup()) return value;
  std::string out;
  TN_RETURN_IF_ERROR(AppendEscapedValue(runtime, value, out));
  return runtime.String(std::move(out), true);
}

Result<std::string> ToJson(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonWriter writer(runtime, style);
  TN_RETURN_IF_ERROR(writer.Write(value, 0));
  return std::move(writer.out);
}

Value FromJson(Runtime& runtime, const Json& json) {
  const Nesting nesting(runtime);
  if (nesting.too_deep()) {
    runtime.Fail(nesting.Error());
    return {};
  }
  if (json.is_null()) return {};
  if (json.is_bool()) return Value(json.as_bool());
  if (json.is_int()) return Value(json.as_int());
  if (json.is_large_int()) return Value(static_cast<Int>(json.as_large_int()));
  if (json.is_number()) return Value(json.as_double());
  const auto text = [&](const std::string& utf8) {
    return runtime.String(IsValidUtf8(utf8) ? utf8 : ReplaceInvalidUtf8(utf8));
  };
  if (json.is_string()) return text(json.as_string());
  if (json.is_array()) {
    Values items;
    items.reserve(json.as_array().size());
    for (const Json& item : json.as_array()) items.push_back(FromJson(runtime, item));
    return runtime.List(std::move(items));
  }
  std::vector<Dict::Entry> entries;
  entries.reserve(json.as_object().size());
  for (const auto& [key, member] : json.as_object()) {
    entries.emplace_back(text(key), FromJson(runtime, member));
  }
  return runtime.MakeDict(std::move(entries));
}

}  // namespace tenon::jinja
