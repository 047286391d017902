#include "tenon/config/glob.h"

#include <algorithm>

namespace tenon {
namespace {

// Length of the set that begins with `[`; 0: it has no end, so the bracket is a character.
size_t SetLength(std::string_view pattern) {
  size_t at = 1;
  if (at < pattern.size() && pattern[at] == '!') ++at;
  if (at < pattern.size() && pattern[at] == ']') ++at;  // a first one belongs to the set
  const size_t end = pattern.find(']', at);
  return end == std::string_view::npos ? 0 : end + 1;
}

bool SetHas(std::string_view set, char c) {
  set = set.substr(1, set.size() - 2);
  const bool negated = set.starts_with('!');
  if (negated) set.remove_prefix(1);
  bool has = false;
  for (size_t i = 0; i < set.size(); ++i) {
    if (i + 2 < set.size() && set[i + 1] == '-') {
      has |= set[i] <= c && c <= set[i + 2];
      i += 2;
    } else {
      has |= set[i] == c;
    }
  }
  return has != negated;
}

// How much of the pattern stands for the one character; 0: it does not fit.
size_t OneCharacter(std::string_view pattern, char c) {
  if (pattern.empty() || pattern[0] == '*') return 0;
  if (pattern[0] == '?') return 1;
  const size_t set = pattern[0] == '[' ? SetLength(pattern) : 0;
  if (set > 0) return SetHas(pattern.substr(0, set), c) ? set : 0;
  return pattern[0] == c ? 1 : 0;
}

}  // namespace

bool GlobMatches(std::string_view pattern, std::string_view text) {
  // Only the last `*` ever has to take more: what an earlier one would gain, it can have too.
  constexpr size_t kNone = std::string_view::npos;
  size_t p = 0, t = 0, after_star = kNone, star_text = 0;
  while (t < text.size()) {
    const size_t step = OneCharacter(pattern.substr(p), text[t]);
    if (step > 0) {
      p += step;
      ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      after_star = ++p;
      star_text = t;
    } else if (after_star != kNone) {
      p = after_star;
      t = ++star_text;
    } else {
      return false;
    }
  }
  return std::all_of(pattern.begin() + static_cast<std::ptrdiff_t>(p), pattern.end(),
                     [](char c) { return c == '*'; });
}

}  // namespace tenon
