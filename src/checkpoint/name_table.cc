#include "tenon/checkpoint/name_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/text.h"
#include "tenon/checkpoint/name_pattern.h"

namespace tenon {
namespace {

int Literals(const std::vector<int64_t>& numbers) {
  return static_cast<int>(numbers.size()) -
         static_cast<int>(std::count(numbers.begin(), numbers.end(), kPlaceholder));
}

bool Fits(const std::vector<int64_t>& pattern, const std::vector<int64_t>& numbers) {
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != kPlaceholder && pattern[i] != numbers[i]) return false;
  }
  return true;
}

// The numbers of a name that stand where the pattern has `{}`.
std::vector<int64_t> Captured(const std::vector<int64_t>& pattern,
                              const std::vector<int64_t>& numbers) {
  std::vector<int64_t> captured;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == kPlaceholder) captured.push_back(numbers[i]);
  }
  return captured;
}

}  // namespace

NameTable& NameTable::Add(std::string canonical, std::string stored, Transform transform) {
  CompiledRow compiled;
  const std::string canonical_key = PatternKey(canonical, compiled.canonical);
  const std::string stored_key = PatternKey(stored, compiled.stored);
  const auto placeholders = [](const Numbers& numbers) {
    return static_cast<int>(numbers.size()) - Literals(numbers);
  };
  const auto marks = [](std::string_view pattern) {
    int count = 0;
    for (size_t at = pattern.find("{}"); at != pattern.npos; at = pattern.find("{}", at + 2))
      ++count;
    return count;
  };
  TN_CHECK(marks(canonical) == placeholders(compiled.canonical) &&
               marks(stored) == placeholders(compiled.stored),
           "`{}` is a whole part between dots");
  const auto slices = std::count_if(transform.begin(), transform.end(), [](const auto& step) {
    return step.kind == TransformStep::Kind::kSlice;
  });
  TN_CHECK(slices == 0 || (slices == 1 && transform[0].kind == TransformStep::Kind::kSlice),
           "a row has one slice at most, as its first step");
  TN_CHECK(placeholders(compiled.canonical) == placeholders(compiled.stored) + slices,
           "both patterns have the same numbers, the canonical one has the slice's too");
  compiled.row = {std::move(canonical), std::move(stored), std::move(transform)};
  if (const TransformStep* slice = SliceOf(compiled.row.transform)) {
    compiled.row.slice_placeholder = slice->placeholder;
    TN_CHECK(slice->placeholder >= 0 && slice->placeholder < placeholders(compiled.canonical),
             "the slice's index is a number of the canonical pattern");
  }
  const int index = static_cast<int>(rows_.size());
  rows_.push_back(std::move(compiled));
  by_canonical_[canonical_key].push_back(index);
  by_stored_[stored_key].push_back(index);
  return *this;
}

NameTable& NameTable::Prefix(std::string stored, std::string canonical,
                             std::vector<std::string> unless) {
  prefixes_.push_back({std::move(stored), std::move(canonical), std::move(unless)});
  return *this;
}

NameTable& NameTable::Suffix(std::string stored, std::string canonical) {
  suffixes_.push_back({std::move(stored), std::move(canonical), {}});
  return *this;
}

NameTable& NameTable::WrapperPrefixes() { return Prefix("_orig_mod.", "").Prefix("module.", ""); }

std::string NameTable::Normalise(std::string_view stored) const {
  std::string name(stored);
  for (const Affix& rule : prefixes_) {
    if (!name.starts_with(rule.stored)) continue;
    const bool is_exempt = std::any_of(rule.unless.begin(), rule.unless.end(),
                                       [&](const auto& start) { return name.starts_with(start); });
    if (!is_exempt) name.replace(0, rule.stored.size(), rule.canonical);
  }
  for (const Affix& rule : suffixes_) {
    if (!name.ends_with(rule.stored)) continue;
    name.replace(name.size() - rule.stored.size(), rule.stored.size(), rule.canonical);
  }
  return name;
}

std::vector<int> NameTable::Find(const ByKey& keys, std::string_view name, bool by_stored,
                                 Numbers& numbers) const {
  const auto bucket = keys.find(PatternKey(name, numbers));
  if (bucket == keys.end()) return {};
  std::vector<int> best;
  int most = -1;
  for (const int index : bucket->second) {
    const CompiledRow& row = rows_[static_cast<size_t>(index)];
    const Numbers& pattern = by_stored ? row.stored : row.canonical;
    if (!Fits(pattern, numbers)) continue;
    const int literals = Literals(pattern);
    if (literals > most) best.clear();
    most = std::max(most, literals);
    if (literals == most) best.push_back(index);
  }
  return best;
}

std::vector<NameTable::Match> NameTable::MatchStored(std::string_view normalised) const {
  Numbers numbers;
  std::vector<Match> matches;
  for (const int index : Find(by_stored_, normalised, true, numbers)) {
    const CompiledRow& row = rows_[static_cast<size_t>(index)];
    matches.push_back({&row.row, Captured(row.stored, numbers)});
  }
  return matches;
}

std::string NameTable::CanonicalName(const Match& match, int64_t slice) const {
  std::vector<int64_t> numbers = match.numbers;
  if (match.row->slice_placeholder >= 0) {
    numbers.insert(numbers.begin() + match.row->slice_placeholder, slice);
  }
  return FillPattern(match.row->canonical, numbers);
}

std::optional<NameTable::StoredName> NameTable::StoredOf(std::string_view canonical) const {
  Numbers numbers;
  const std::vector<int> found = Find(by_canonical_, canonical, false, numbers);
  if (found.empty()) return std::nullopt;
  const CompiledRow& row = rows_[static_cast<size_t>(found.front())];
  std::vector<int64_t> captured = Captured(row.canonical, numbers);
  StoredName stored;
  stored.row = &row.row;
  if (row.row.slice_placeholder >= 0) {
    const auto slice = captured.begin() + row.row.slice_placeholder;
    stored.slice = *slice;
    captured.erase(slice);
  }
  stored.name = FillPattern(row.row.stored, captured);
  return stored;
}

std::vector<std::string> NameTable::CanonicalModules(std::string_view stored_module) const {
  constexpr std::string_view kWeight = ".weight";
  // Rules may look at the end of a tensor's name, so the module is normalised as its weight.
  std::string weight = Normalise(fmt::format("{}{}", stored_module, kWeight));
  std::vector<std::string> modules;
  for (const Match& match : MatchStored(weight)) {
    std::string name = CanonicalName(match, kPlaceholder);
    if (name.ends_with(kWeight)) name.resize(name.size() - kWeight.size());
    modules.push_back(std::move(name));
  }
  if (!modules.empty()) return modules;
  if (weight.ends_with(kWeight)) weight.resize(weight.size() - kWeight.size());
  return {std::move(weight)};
}

}  // namespace tenon
