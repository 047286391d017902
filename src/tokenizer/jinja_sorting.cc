#include "tenon/tokenizer/jinja_sorting.h"

#include <algorithm>

#include "tenon/base/text.h"
#include "tenon/tokenizer/jinja_number_parse.h"
#include "tenon/tokenizer/jinja_operators.h"
#include "tenon/tokenizer/jinja_unicode.h"

namespace tenon::jinja {
namespace {

bool IsDigits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

Result<bool> KeysLess(Runtime& runtime, const Values& a, const Values& b, bool as_lists) {
  if (a.size() == 1 && !as_lists) return Compare(runtime, CompareOperator::kLess, a[0], b[0]);
  for (size_t i = 0; i < a.size(); ++i) {
    TN_ASSIGN_OR_RETURN(const bool equal, Equal(runtime, a[i], b[i]));
    if (equal) continue;
    return Compare(runtime, CompareOperator::kLess, a[i], b[i]);
  }
  return false;
}

}  // namespace

Result<AttributePath> AttributePath::Parse(Runtime& runtime, const Value& attribute) {
  AttributePath path;
  if (attribute.is_none()) return path;
  if (!attribute.is_text()) {
    path.keys_.push_back(attribute);
    return path;
  }
  for (const std::string_view part : Split(attribute.text(), '.')) {
    const std::optional<Int> index = IsDigits(part) ? ParseInt(part, 10) : std::nullopt;
    path.keys_.push_back(index ? Value(*index) : runtime.String(std::string(part)));
  }
  return path;
}

Result<Value> AttributePath::Get(Runtime& runtime, const Value& item, const Value* fallback) const {
  Value value = item;
  for (const Value& key : keys_) {
    TN_ASSIGN_OR_RETURN(value, GetItem(runtime, value, key));
    if (fallback != nullptr && value.is_undefined()) value = *fallback;
  }
  return value;
}

Result<std::vector<AttributePath>> ParsePaths(Runtime& runtime, const Value& attribute) {
  std::vector<AttributePath> paths;
  if (!attribute.is_text()) {
    TN_ASSIGN_OR_RETURN(AttributePath path, AttributePath::Parse(runtime, attribute));
    paths.push_back(std::move(path));
    return paths;
  }
  for (const std::string_view part : Split(attribute.text(), ',')) {
    TN_ASSIGN_OR_RETURN(AttributePath path,
                        AttributePath::Parse(runtime, runtime.String(std::string(part))));
    paths.push_back(std::move(path));
  }
  return paths;
}

Value IgnoreCase(Runtime& runtime, const Value& value) {
  return value.is_text() ? runtime.StringLike(value, ToLower(value.text())) : value;
}

Status SortByKey(Runtime& runtime, std::vector<Keyed>& items, bool reverse, bool as_lists) {
  Status failure;
  // After a failure every answer is "not less": the sort ends at once and in bounds.
  const auto less = [&](const Keyed& a, const Keyed& b) {
    if (!failure.ok()) return false;
    const Result<bool> answer = KeysLess(runtime, a.key, b.key, as_lists);
    if (!answer.ok()) {
      failure = answer.status();
      return false;
    }
    return *answer;
  };
  if (reverse) std::reverse(items.begin(), items.end());
  std::stable_sort(items.begin(), items.end(), less);
  if (reverse) std::reverse(items.begin(), items.end());
  return failure;
}

}  // namespace tenon::jinja
