// Pattern: what a component of tokenizer.json searches for: a literal string or a regex. Immutable,
// thread-safe; a PatternSearch belongs to one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tenon/base/status.h"
#include "tenon/tokenizer/regex.h"

namespace tenon {

class Pattern {
 public:
  static Pattern Literal(std::string literal) {
    Pattern pattern;
    pattern.literal_ = std::move(literal);
    return pattern;
  }
  static Result<Pattern> FromRegex(std::string_view regex) {
    Pattern pattern;
    TN_ASSIGN_OR_RETURN(pattern.regex_, Regex::Compile(regex));
    return pattern;
  }

  bool is_literal() const { return regex_ == nullptr; }

 private:
  friend class PatternSearch;
  std::string literal_;  // when regex_ is null; not empty
  std::shared_ptr<const Regex> regex_;
};

// The matches in one text after the other, leftmost first, not overlapping.
class PatternSearch {
 public:
  // The texts to come are `whole` or parts of it.
  PatternSearch(const Pattern& pattern, std::string_view whole) : literal_(pattern.literal_) {
    if (pattern.regex_ != nullptr) search_.emplace(*pattern.regex_, whole);
  }
  void Start(std::string_view text) {
    text_ = text;
    position_ = 0;
    if (search_) search_->Start(text);
  }
  // False when there are no more matches or the regex gave up; status() tells which.
  bool Next(Range* match) {
    if (search_) return search_->Next(match);
    const size_t found = text_.find(literal_, position_);
    if (found == std::string_view::npos) return false;
    position_ = found + literal_.size();
    *match = {static_cast<uint32_t>(found), static_cast<uint32_t>(position_)};
    return true;
  }
  Status status() const { return search_ ? search_->status() : Status(); }

 private:
  std::string_view literal_;
  std::optional<RegexSearch> search_;
  std::string_view text_;
  size_t position_ = 0;
};

// Replaces every match by `content`, taken literally. Errors: the regex gave up.
Status ReplaceAll(const Pattern& pattern, std::string_view content, std::string* text);

}  // namespace tenon
