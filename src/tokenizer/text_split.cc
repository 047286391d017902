#include "tenon/tokenizer/text_split.h"

#include <algorithm>

namespace tenon {
namespace {

void Append(Range range, std::vector<Range>* pieces) {
  if (range.size() > 0) pieces->push_back(range);
}

// A match joins what comes before it (unless that is a match too).
void AppendMergedWithPrevious(const std::vector<Part>& parts, std::vector<Range>* pieces) {
  for (size_t i = 0; i < parts.size(); ++i) {
    Range range = parts[i].range;
    if (!parts[i].is_match && i + 1 < parts.size() && parts[i + 1].is_match) {
      range.end = parts[++i].range.end;
    }
    Append(range, pieces);
  }
}

// A match joins what comes after it; of several matches only the last one does.
void AppendMergedWithNext(const std::vector<Part>& parts, std::vector<Range>* pieces) {
  for (size_t i = 0; i < parts.size(); ++i) {
    Range range = parts[i].range;
    if (parts[i].is_match && i + 1 < parts.size() && !parts[i + 1].is_match) {
      range.end = parts[++i].range.end;
    }
    Append(range, pieces);
  }
}

void AppendContiguous(const std::vector<Part>& parts, std::vector<Range>* pieces) {
  for (size_t i = 0; i < parts.size();) {
    Range range = parts[i].range;
    size_t next = i + 1;
    for (; next < parts.size() && parts[next].is_match == parts[i].is_match; ++next) {
      range.end = parts[next].range.end;
    }
    Append(range, pieces);
    i = next;
  }
}

}  // namespace

void AppendPieces(const std::vector<Part>& parts, SplitBehavior behavior,
                  std::vector<Range>* pieces) {
  switch (behavior) {
    case SplitBehavior::kRemoved:
      for (const Part& part : parts) {
        if (!part.is_match) Append(part.range, pieces);
      }
      return;
    case SplitBehavior::kIsolated:
      for (const Part& part : parts) Append(part.range, pieces);
      return;
    case SplitBehavior::kMergedWithPrevious:
      return AppendMergedWithPrevious(parts, pieces);
    case SplitBehavior::kMergedWithNext:
      return AppendMergedWithNext(parts, pieces);
    case SplitBehavior::kContiguous:
      return AppendContiguous(parts, pieces);
  }
}

}  // namespace tenon
