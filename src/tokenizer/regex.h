// Regex: the regular expressions of tokenizer files (Oniguruma's syntax, see regex_syntax.h), run
// by PCRE2 with its JIT. Matches bytes of valid UTF-8 only. A Regex is immutable and thread-safe; a
// RegexSearch belongs to one thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tenon/base/status.h"
#include "tenon/tokenizer/model.h"

namespace tenon {

class Regex {
 public:
  // Errors (kRefused) say the pattern, the offset and the reason.
  static Result<std::shared_ptr<const Regex>> Compile(std::string_view pattern);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;
  const std::string& pattern() const { return pattern_; }

 private:
  friend class RegexSearch;
  struct Compiled;
  struct Extended;
  Regex(std::string pattern, std::unique_ptr<const Compiled> compiled);
  static Result<std::unique_ptr<const Compiled>> CompileTranslated(std::string_view pattern,
                                                                   bool with_additions);
  // The form for a text: the plain one, or the slower one that knows the newest characters.
  const Compiled& FormFor(std::string_view text) const;

  std::string pattern_;
  std::unique_ptr<const Compiled> compiled_;
  std::unique_ptr<Extended> extended_;  // compiled when a text first needs it
};

// The matches of a regex in one text after the other, leftmost first, not overlapping. An empty
// match right behind the previous match is skipped (as in Rust's onig crate).
class RegexSearch {
 public:
  // The texts to come are `whole` or parts of it.
  RegexSearch(const Regex& regex, std::string_view whole);
  ~RegexSearch();
  RegexSearch(const RegexSearch&) = delete;
  RegexSearch& operator=(const RegexSearch&) = delete;

  // Nothing outside `text` is seen by the pattern.
  void Start(std::string_view text);
  // False when there are no more matches or the regex gave up; status() tells which.
  bool Next(Range* match);
  const Status& status() const { return status_; }

 private:
  struct State;
  const Regex& regex_;
  const Regex::Compiled& compiled_;
  std::unique_ptr<State> state_;
  std::string_view text_;
  size_t position_ = 0;
  size_t last_end_ = 0;
  bool matched_before_ = false;
  Status status_;
};

}  // namespace tenon
