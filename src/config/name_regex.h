// NameRegex: the regular expressions of quantisation settings, run by PCRE2 over names of modules.
// Patterns come out of a file: one that takes too long gives up and says so. Not for user text
// (tokenizer/regex.h). Immutable; may be matched by many threads.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tenon/base/status.h"

namespace tenon {

class NameRegex {
 public:
  enum class Extent {
    kStart,
    kWhole
  };  // matches begin at the first character; also end at the last
  // kRefused with the pattern, the offset and the reason.
  static Result<NameRegex> Compile(std::string pattern, Extent extent);
  NameRegex(NameRegex&&) noexcept;
  NameRegex& operator=(NameRegex&&) noexcept;
  ~NameRegex();

  // kRefused when the pattern gave up on the name.
  Result<bool> Matches(std::string_view name) const;

 private:
  struct Compiled;
  explicit NameRegex(std::string pattern);
  std::string pattern_;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace tenon
