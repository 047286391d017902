#include "tenon/base/json.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tenon/base/file.h"

namespace tenon {
namespace {

using Library = nlohmann::json;

// The library's parser knows no Infinity and NaN, which Hugging Face writes. Outside strings they
// are rewritten to strings with this prefix and turned back by the builder. Texts of the file that
// begin with the same control character (it has one spelling) get kTextMark in its place.
constexpr std::string_view kNumberMark = "\x01number:";
constexpr std::string_view kTextMark = "\x01text:";

std::string RewriteSpecialNumbers(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\' && i + 1 < text.size()) {
        out += c;
        out += text[++i];
        continue;
      }
      in_string = c != '"';
      out += c;
      continue;
    }
    bool replaced = false;
    for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
      if (text.substr(i, word.size()) != word) continue;
      out += fmt::format("\"\\u0001number:{}\"", word);
      i += word.size() - 1;
      replaced = true;
      break;
    }
    if (replaced) continue;
    in_string = c == '"';
    out += c;
    constexpr std::string_view kControl = "\\u0001";
    if (in_string && text.substr(i + 1).starts_with(kControl)) {
      out += "\\u0001text:";
      i += kControl.size();
    }
  }
  return out;
}

// Takes the mark off a text of the file.
void Unmark(std::string& value) {
  if (value.starts_with(kTextMark)) value.erase(1, kTextMark.size() - 1);
}

Json StringOrSpecialNumber(std::string& value, bool has_special) {
  if (!has_special) return std::move(value);
  if (value.starts_with(kNumberMark)) {
    const std::string word = value.substr(kNumberMark.size());
    if (word == "NaN") return std::numeric_limits<double>::quiet_NaN();
    const double infinity = std::numeric_limits<double>::infinity();
    return word[0] == '-' ? -infinity : infinity;
  }
  Unmark(value);
  return std::move(value);
}

// Receives the library's parse events and builds our tree without recursion.
class Builder : public nlohmann::json_sax<Library> {
 public:
  explicit Builder(bool has_special) : has_special_(has_special) {}

  bool null() override { return Add({}); }
  bool boolean(bool v) override { return Add(v); }
  bool number_integer(number_integer_t v) override { return Add(static_cast<int64_t>(v)); }
  bool number_unsigned(number_unsigned_t v) override { return Add(static_cast<uint64_t>(v)); }
  bool number_float(number_float_t v, const string_t&) override { return Add(v); }
  bool string(string_t& v) override { return Add(StringOrSpecialNumber(v, has_special_)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return Push(Json::Object{}); }
  bool start_array(std::size_t) override { return Push(Json::Array{}); }
  bool key(string_t& v) override {
    if (has_special_ && v.starts_with(kNumberMark)) {
      error = fmt::format("{} where a name in quotes belongs", v.substr(kNumberMark.size()));
      return false;
    }
    if (has_special_) Unmark(v);
    keys_.back() = std::move(v);
    return true;
  }
  bool end_object() override { return Pop(); }
  bool end_array() override { return Pop(); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& exception) override {
    error_position = position;
    error = exception.what();
    return false;
  }

  Json root;
  std::string error;
  size_t error_position = 0;

 private:
  bool Add(Json value) {
    if (open_.empty()) {
      root = std::move(value);
    } else if (open_.back().is_array()) {
      open_.back().as_array().push_back(std::move(value));
    } else {
      // Appending is what large objects need; duplicates are dropped when the object closes.
      open_.back().as_object().emplace_back(std::move(keys_.back()), std::move(value));
    }
    return true;
  }
  bool Push(Json container) {
    if (static_cast<int>(open_.size()) >= kMaxJsonDepth) {
      error = fmt::format("nested deeper than {}", kMaxJsonDepth);
      return false;
    }
    open_.push_back(std::move(container));
    keys_.emplace_back();
    return true;
  }
  bool Pop() {
    Json closed = std::move(open_.back());
    open_.pop_back();
    keys_.pop_back();
    if (closed.is_object()) DropRepeatedKeys(closed.as_object());
    return Add(std::move(closed));
  }
  static void DropRepeatedKeys(Json::Object& object) {
    std::vector<std::string_view> names;
    names.reserve(object.size());
    for (const auto& [name, value] : object) names.push_back(name);
    std::sort(names.begin(), names.end());
    if (std::adjacent_find(names.begin(), names.end()) == names.end()) return;
    Json unique{Json::Object{}};
    for (auto& [name, value] : object) unique.Set(name, std::move(value));
    object = std::move(unique.as_object());
  }

  bool has_special_;
  std::vector<Json> open_;
  std::vector<std::string> keys_;  // the pending key of each open container
};

std::string Place(std::string_view text, size_t position) {
  position = std::min(position, text.size());
  size_t line = 1;
  size_t column = 1;
  for (size_t i = 0; i + 1 < position; ++i) {
    column = text[i] == '\n' ? 1 : column + 1;
    line += text[i] == '\n' ? 1 : 0;
  }
  return fmt::format("line {}, column {}", line, column);
}

std::string NumberText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  std::string text = fmt::format("{}", value);  // shortest form that reads back equal
  if (text.find_first_of(".eE") == std::string::npos) text += ".0";
  return text;
}

void DumpTo(const Json& value, int indent, int depth, std::string& out) {
  const auto new_line = [&](int at) {
    if (indent < 0) return;
    out += '\n';
    out.append(static_cast<size_t>(at) * static_cast<size_t>(indent), ' ');
  };
  if (value.is_null()) {
    out += "null";
  } else if (value.is_bool()) {
    out += value.as_bool() ? "true" : "false";
  } else if (value.is_int()) {
    out += fmt::format("{}", value.as_int());
  } else if (value.is_large_int()) {
    out += fmt::format("{}", value.as_large_int());
  } else if (value.is_number()) {
    out += NumberText(value.as_double());
  } else if (value.is_string()) {
    out += JsonQuote(value.as_string());
  } else if (value.is_array()) {
    out += '[';
    for (size_t i = 0; i < value.as_array().size(); ++i) {
      if (i > 0) out += ',';
      new_line(depth + 1);
      DumpTo(value.as_array()[i], indent, depth + 1, out);
    }
    if (!value.as_array().empty()) new_line(depth);
    out += ']';
  } else {
    out += '{';
    bool first = true;
    for (const auto& [key, member] : value.as_object()) {
      if (!first) out += ',';
      first = false;
      new_line(depth + 1);
      out += JsonQuote(key);
      out += indent < 0 ? ":" : ": ";
      DumpTo(member, indent, depth + 1, out);
    }
    if (!first) new_line(depth);
    out += '}';
  }
}

}  // namespace

Json::Json(uint64_t value) {
  if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    value_ = value;
  } else {
    value_ = static_cast<int64_t>(value);
  }
}

const Json* Json::Find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const auto& [name, value] : as_object()) {
    if (name == key) return &value;
  }
  return nullptr;
}

void Json::Set(std::string_view key, Json value) {
  if (is_null()) value_ = Object{};
  for (auto& [name, member] : as_object()) {
    if (name == key) {
      member = std::move(value);
      return;
    }
  }
  as_object().emplace_back(std::string(key), std::move(value));
}

std::string_view Json::KindName() const {
  if (is_null()) return "null";
  if (is_bool()) return "boolean";
  if (is_int() || is_large_int()) return "integer";
  if (is_number()) return "number";
  if (is_string()) return "string";
  return is_array() ? "array" : "object";
}

std::string Json::Dump(int indent) const {
  std::string out;
  DumpTo(*this, indent, 0, out);
  return out;
}

Result<Json> ParseJson(std::string_view text) {
  const bool has_special =
      text.find("Infinity") != std::string_view::npos || text.find("NaN") != std::string_view::npos;
  const std::string rewritten = has_special ? RewriteSpecialNumbers(text) : std::string();
  const std::string_view input = has_special ? std::string_view(rewritten) : text;
  Builder builder(has_special);
  if (Library::sax_parse(input, &builder)) return std::move(builder.root);
  // "[json.exception.parse_error.101] parse error at line 1, column 2: <what>": keep <what>.
  const size_t what = builder.error.find("column ");
  const size_t colon = builder.error.find(": ", what == std::string::npos ? 0 : what);
  const std::string reason =
      colon == std::string::npos ? builder.error : builder.error.substr(colon + 2);
  if (builder.error_position == 0) return Refused("not valid JSON: " + reason);
  return Refused(
      fmt::format("not valid JSON at {}: {}", Place(input, builder.error_position), reason));
}

Result<Json> ReadJsonFile(const std::string& path) {
  TN_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseJson(text).WithContext(path);
}

std::string JsonQuote(std::string_view text) {
  return Library(std::string(text)).dump(-1, ' ', false, Library::error_handler_t::replace);
}

}  // namespace tenon
