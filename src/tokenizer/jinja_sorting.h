// What filters over sequences share: attribute paths ("function.name", "content.0") and sorting by
// keys with Python's rules. Stateless but for the Runtime's account.
#pragma once

#include <string_view>
#include <vector>

#include "tenon/tokenizer/jinja_runtime.h"

namespace tenon::jinja {

// A path to a part of an item. Parts that are digits are indices.
class AttributePath {
 public:
  AttributePath() = default;  // the item itself
  // `attribute` is a text with dots, a single key of another type, or none.
  static Result<AttributePath> Parse(Runtime& runtime, const Value& attribute);
  // An undefined part becomes `fallback` where it is given.
  Result<Value> Get(Runtime& runtime, const Value& item, const Value* fallback = nullptr) const;

 private:
  Values keys_;
};
// "name,age" as several paths.
Result<std::vector<AttributePath>> ParsePaths(Runtime& runtime, const Value& attribute);

// Text in lower case, anything else as it is.
Value IgnoreCase(Runtime& runtime, const Value& value);

struct Keyed {
  Values key;  // compared one after another
  Value item;
};
// Stable; descending order keeps equal items in their order too. Keys `as_lists` are looked at for
// equality first, so that two undefined ones need no order. Error: keys without an order.
Status SortByKey(Runtime& runtime, std::vector<Keyed>& items, bool reverse, bool as_lists = false);

}  // namespace tenon::jinja
