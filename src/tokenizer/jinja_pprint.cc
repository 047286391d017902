#include "tenon/tokenizer/jinja_pprint.h"

#include <algorithm>

#include "tenon/tokenizer/jinja_print.h"
#include "tenon/tokenizer/jinja_unicode.h"

namespace tenon::jinja {
namespace {

constexpr int64_t kWidth = 80;

int64_t Columns(std::string_view text) { return static_cast<int64_t>(CountCodePoints(text)); }

// Keys in order where they have one; by type otherwise.
std::vector<const Dict::Entry*> SortedEntries(const Dict& dict) {
  std::vector<const Dict::Entry*> entries;
  for (const Dict::Entry& entry : dict.entries) entries.push_back(&entry);
  std::stable_sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
    const Value& x = a->first;
    const Value& y = b->first;
    const bool comparable = (x.is_text() && y.is_text()) || (x.is_number() && y.is_number());
    return comparable ? KeyLess(x, y) : x.TypeName() < y.TypeName();
  });
  return entries;
}

// `repr` with sorted keys, on one line.
Status AppendSortedRepr(Runtime& runtime, const Value& value, std::string& out) {
  const Nesting nesting(runtime);
  if (nesting.too_deep()) return nesting.Error();
  if (value.is_dict()) {
    out += '{';
    bool first = true;
    for (const Dict::Entry* entry : SortedEntries(*value.dict())) {
      if (!first) out += ", ";
      first = false;
      TN_RETURN_IF_ERROR(AppendSortedRepr(runtime, entry->first, out));
      out += ": ";
      TN_RETURN_IF_ERROR(AppendSortedRepr(runtime, entry->second, out));
    }
    out += '}';
    return {};
  }
  if (!value.is_list() && !value.is_tuple()) return AppendRepr(runtime, value, out);
  const Values& items = value.sequence()->items;
  out += value.is_list() ? '[' : '(';
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    TN_RETURN_IF_ERROR(AppendSortedRepr(runtime, items[i], out));
  }
  if (value.is_tuple() && items.size() == 1) out += ',';
  out += value.is_list() ? ']' : ')';
  return {};
}

class PrettyPrinter {
 public:
  explicit PrettyPrinter(Runtime& runtime) : runtime_(runtime) {}

  // `allowance`: columns that what follows the value needs on its last line.
  Status Write(const Value& value, int64_t indent, int64_t allowance, bool top_level) {
    const Nesting nesting(runtime_);
    if (nesting.too_deep()) return nesting.Error();
    std::string flat;
    TN_RETURN_IF_ERROR(AppendSortedRepr(runtime_, value, flat));
    TN_RETURN_IF_ERROR(runtime_.Reserve(static_cast<Int>(out.size() + flat.size())));
    if (Columns(flat) <= kWidth - indent - allowance) {
      out += flat;
      return {};
    }
    if (value.is_dict()) return WriteDict(*value.dict(), indent, allowance);
    if (value.is_list() || value.is_tuple()) return WriteItems(value, indent, allowance);
    if (value.is_text() && !value.is_markup()) {
      WriteText(value.text(), indent, allowance, top_level);
      return {};
    }
    out += flat;
    return {};
  }

  std::string out;

 private:
  void NextLine(int64_t indent) {
    out += '\n';
    out.append(static_cast<size_t>(indent), ' ');
  }

  Status WriteDict(const Dict& dict, int64_t indent, int64_t allowance) {
    out += '{';
    const std::vector<const Dict::Entry*> entries = SortedEntries(dict);
    for (size_t i = 0; i < entries.size(); ++i) {
      const bool last = i + 1 == entries.size();
      std::string key;
      TN_RETURN_IF_ERROR(AppendSortedRepr(runtime_, entries[i]->first, key));
      out += key;
      out += ": ";
      TN_RETURN_IF_ERROR(Write(entries[i]->second, indent + 1 + Columns(key) + 2,
                               last ? allowance + 1 : 1, false));
      if (last) continue;
      out += ',';
      NextLine(indent + 1);
    }
    out += '}';
    return {};
  }

  Status WriteItems(const Value& value, int64_t indent, int64_t allowance) {
    const Values& items = value.sequence()->items;
    const std::string_view close = value.is_list() ? "]" : (items.size() == 1 ? ",)" : ")");
    out += value.is_list() ? '[' : '(';
    for (size_t i = 0; i < items.size(); ++i) {
      const bool last = i + 1 == items.size();
      TN_RETURN_IF_ERROR(Write(items[i], indent + 1, last ? allowance + Columns(close) : 1, false));
      if (last) continue;
      out += ',';
      NextLine(indent + 1);
    }
    out += close;
    return {};
  }

  // The words of a line, each with the blanks behind it.
  static std::vector<std::string_view> Words(std::string_view line) {
    std::vector<std::string_view> words;
    for (size_t at = 0; at < line.size();) {
      size_t end = at;
      bool in_blanks = false;
      while (end < line.size()) {
        const CodePoint point = DecodeAt(line, end);
        const bool blank = IsSpace(point.value);
        if (in_blanks && !blank) break;
        in_blanks = blank;
        end += point.num_bytes;
      }
      words.push_back(line.substr(at, end - at));
      at = end;
    }
    return words;
  }

  // A long text as several literals, cut after line ends and words.
  void WriteText(std::string_view text, int64_t indent, int64_t allowance, bool top_level) {
    if (top_level) {
      ++indent;
      ++allowance;
    }
    const int64_t width = kWidth - indent;
    std::vector<std::string> chunks;
    const std::vector<std::string_view> lines = SplitLines(text, true);
    for (size_t i = 0; i < lines.size(); ++i) {
      const bool last_line = i + 1 == lines.size();
      std::string flat = TextRepr(lines[i]);
      if (Columns(flat) <= width - (last_line ? allowance : 0)) {
        chunks.push_back(std::move(flat));
        continue;
      }
      std::string current;
      const std::vector<std::string_view> words = Words(lines[i]);
      for (size_t j = 0; j < words.size(); ++j) {
        const int64_t room = width - (last_line && j + 1 == words.size() ? allowance : 0);
        const std::string candidate = current + std::string(words[j]);
        if (Columns(TextRepr(candidate)) <= room) {
          current = candidate;
          continue;
        }
        if (!current.empty()) chunks.push_back(TextRepr(current));
        current = words[j];
      }
      if (!current.empty()) chunks.push_back(TextRepr(current));
    }
    const bool brackets = top_level && chunks.size() > 1;
    if (brackets) out += '(';
    for (size_t i = 0; i < chunks.size(); ++i) {
      if (i > 0) NextLine(indent);
      out += chunks[i];
    }
    if (brackets) out += ')';
  }

  Runtime& runtime_;
};

}  // namespace

Result<std::string> PrettyRepr(Runtime& runtime, const Value& value) {
  PrettyPrinter printer(runtime);
  TN_RETURN_IF_ERROR(printer.Write(value, 0, 0, true));
  return std::move(printer.out);
}

}  // namespace tenon::jinja
