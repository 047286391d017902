#include "tenon/config/quant_keys.h"

#include <algorithm>

#include "tenon/base/text.h"
#include "tenon/config/glob.h"

namespace tenon {
namespace {

using Match = QuantKey::Match;

constexpr std::string_view kRegexMark = "re:";

bool IsRegex(const QuantKey& key) {
  return key.match == Match::kRegex || key.match == Match::kRegexTree;
}

std::string_view PatternText(const QuantKey& key) {
  std::string_view text = key.text;
  if (IsRegex(key) && text.starts_with(kRegexMark)) text.remove_prefix(kRegexMark.size());
  return text;
}

bool IsLetter(char c) { return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || c == '_'; }
bool IsDigit(char c) { return '0' <= c && c <= '9'; }

// The name and its ancestors, the longest first.
template <typename Visit>
void ForEachAncestor(std::string_view name, Visit visit) {
  for (;;) {
    visit(name);
    const size_t dot = name.rfind('.');
    if (dot == std::string_view::npos) return;
    name = name.substr(0, dot);
  }
}

// Names that a pattern matches begin with this and a dot; empty: with anything.
std::string LiteralStart(const QuantKey& key) {
  const std::string_view text = PatternText(key);
  if (IsRegex(key) && text.find('|') != std::string_view::npos) return "";
  std::string literal;
  for (size_t i = IsRegex(key) && text.starts_with('^') ? 1 : 0; i < text.size(); ++i) {
    const bool escaped_dot = IsRegex(key) && text.substr(i).starts_with("\\.");
    if (escaped_dot) ++i;
    const char c = escaped_dot ? '.' : text[i];
    const bool plain = IsLetter(c) || IsDigit(c) || c == '-';
    if (!plain && !escaped_dot && !(c == '.' && !IsRegex(key))) break;
    // A quantifier makes the character before it optional.
    if (IsRegex(key) && i + 1 < text.size() &&
        std::string_view("*?{+").find(text[i + 1]) != std::string_view::npos) {
      break;
    }
    literal += c;
  }
  const size_t dot = literal.rfind('.');
  // "x.*" is "x" too, whose ancestor is shorter.
  if (dot == std::string::npos) return "";
  literal.resize(dot);
  if (key.match == Match::kGlob && text == literal + ".*") {
    const size_t before = literal.rfind('.');
    literal.resize(before == std::string::npos ? 0 : before);
  }
  return literal;
}

// Every digit of a name can only be taken by a wildcard that takes any run of characters: then
// other numbers in its place give the same answer.
bool SeesNumbers(const QuantKey& key) {
  std::string_view text = PatternText(key);
  if (!IsRegex(key)) return text.find_first_of("0123456789?[") != std::string_view::npos;
  if (text.starts_with('^')) text.remove_prefix(1);
  if (text.ends_with('$') && !text.ends_with("\\$")) text.remove_suffix(1);
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = text.substr(i);
    if (rest.starts_with("\\.") || rest.starts_with(".*")) {
      ++i;
    } else if (!IsLetter(text[i])) {
      return true;
    }
    // What follows must not change what this takes.
    if (i + 1 < text.size() &&
        std::string_view("*?+{").find(text[i + 1]) != std::string_view::npos) {
      return true;
    }
  }
  return false;
}

}  // namespace

Result<QuantKeySet> QuantKeySet::Compile(std::vector<QuantKey> keys, const Spellings& spellings) {
  QuantKeySet set;
  set.keys_ = std::move(keys);
  set.matched_.resize(set.keys_.size());
  for (size_t i = 0; i < set.keys_.size(); ++i) {
    TN_RETURN_IF_ERROR(set.Add(static_cast<int>(i), spellings));
  }
  return set;
}

Status QuantKeySet::Add(int key, const Spellings& spellings) {
  const QuantKey& k = keys_[static_cast<size_t>(key)];
  if (IsRegex(k)) return AddPattern(key, k);
  std::vector<std::string> names = spellings ? spellings(k.text) : std::vector<std::string>();
  names.push_back(k.text);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  if (k.match == Match::kGlob) {
    for (const std::string& name : names) TN_RETURN_IF_ERROR(AddPattern(key, {name, k.match}));
    return {};
  }
  for (const std::string& name : names) {
    (k.match == Match::kName ? names_ : parts_)[name].push_back(key);
    if (k.match == Match::kParts) part_counts_.insert(Split(name, '.').size());
    ForEachAncestor(name, [&](std::string_view ancestor) {
      first_inside_.try_emplace(std::string(ancestor), key);
    });
  }
  return {};
}

Status QuantKeySet::AddPattern(int key, const QuantKey& spelled) {
  Pattern pattern{key, spelled.text, nullptr, SeesNumbers(spelled)};
  if (IsRegex(spelled)) {
    const auto extent =
        spelled.match == Match::kRegex ? NameRegex::Extent::kStart : NameRegex::Extent::kWhole;
    TN_ASSIGN_OR_RETURN(NameRegex regex,
                        NameRegex::Compile(std::string(PatternText(spelled)), extent));
    pattern.regex = std::make_unique<NameRegex>(std::move(regex));
  }
  const std::string start = LiteralStart(spelled);
  const size_t index = patterns_.size();
  if (!start.empty()) {
    by_start_[start].push_back(index);
  } else {
    (pattern.sees_numbers ? unbound_ : unbound_blind_).push_back(index);
  }
  patterns_.push_back(std::move(pattern));
  return {};
}

Status QuantKeySet::TryPattern(const Pattern& pattern, std::string_view name,
                               std::vector<int>& hits) {
  const QuantKey& key = keys_[static_cast<size_t>(pattern.key)];
  bool hit = false;
  Status status;
  const auto try_one = [&](std::string_view candidate) {
    if (hit || !status.ok()) return;
    ++comparisons_;
    if (pattern.regex == nullptr) {
      const std::string_view text = pattern.text;
      hit = GlobMatches(text, candidate) ||
            (text.ends_with(".*") && text.substr(0, text.size() - 2) == candidate);
      return;
    }
    const Result<bool> matches = pattern.regex->Matches(candidate);
    if (matches.ok()) {
      hit = *matches;
    } else {
      status = matches.status();
    }
  };
  if (key.match == Match::kRegex) {
    try_one(name);
  } else {
    ForEachAncestor(name, try_one);
  }
  if (hit) hits.push_back(pattern.key);
  return status;
}

Status QuantKeySet::TryPatterns(const ModuleName& name, std::vector<int>& hits) {
  Status status;
  const auto try_all = [&](const std::vector<size_t>& indices, std::vector<int>& out) {
    for (const size_t index : indices) {
      if (status.ok()) status = TryPattern(patterns_[index], name.name, out);
    }
  };
  if (!by_start_.empty()) {
    ForEachAncestor(name.name, [&](std::string_view ancestor) {
      ++comparisons_;
      const auto bucket = by_start_.find(std::string(ancestor));
      if (bucket != by_start_.end()) try_all(bucket->second, hits);
    });
  }
  try_all(unbound_, hits);
  if (unbound_blind_.empty()) return status;
  const auto [known, is_new] = blind_hits_.try_emplace(std::string(name.numberless));
  if (is_new) try_all(unbound_blind_, known->second);
  hits.insert(hits.end(), known->second.begin(), known->second.end());
  return status;
}

Result<std::vector<int>> QuantKeySet::Match(const ModuleName& name) {
  std::vector<int> hits;
  const auto look_up = [&](const ByName& keys, std::string_view text) {
    ++comparisons_;
    const auto found = keys.find(std::string(text));
    if (found != keys.end()) hits.insert(hits.end(), found->second.begin(), found->second.end());
  };
  if (!names_.empty()) look_up(names_, name.name);
  if (!parts_.empty()) {
    // Runs of whole parts, as many of them as some key has.
    std::vector<size_t> starts = {0};
    for (size_t i = 0; i < name.name.size(); ++i) {
      if (name.name[i] == '.') starts.push_back(i + 1);
    }
    starts.push_back(name.name.size() + 1);
    for (const size_t count : part_counts_) {
      for (size_t i = 0; i + count < starts.size(); ++i) {
        look_up(parts_, name.name.substr(starts[i], starts[i + count] - 1 - starts[i]));
      }
    }
  }
  TN_RETURN_IF_ERROR(TryPatterns(name, hits));
  std::sort(hits.begin(), hits.end());
  hits.erase(std::unique(hits.begin(), hits.end()), hits.end());
  for (const int hit : hits) MarkMatched(hit);
  return hits;
}

int QuantKeySet::FirstInside(std::string_view module) const {
  const auto found = first_inside_.find(std::string(module));
  return found == first_inside_.end() ? -1 : found->second;
}

std::vector<int> QuantKeySet::Unmatched() const {
  std::vector<int> unmatched;
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (!matched_[i] && !keys_[i].is_default) unmatched.push_back(static_cast<int>(i));
  }
  return unmatched;
}

}  // namespace tenon
