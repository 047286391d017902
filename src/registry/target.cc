#include "tenon/registry/target.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/text.h"
#include "tenon/registry/resolution.h"

namespace tenon {
namespace {

// "isa = avx2, wants avx512_bf16_vnni: no match".
std::string TextOf(const Criterion& c) {
  return fmt::format("{} = {}, wants {}: {}", c.name, c.value, c.wanted,
                     c.match ? "match" : "no match");
}

// What a candidate's criteria came to; also the line for errors.
struct Verdict {
  bool match = true;
  std::string text;
};

Verdict Judge(const TargetEntry& target, const TargetQuery& query) {
  std::vector<Criterion> criteria = target.fingerprint(query);
  const bool fits =
      std::all_of(criteria.begin(), criteria.end(), [](const Criterion& c) { return c.match; });
  // Bounds may rely on the fingerprint.
  if (fits && target.bounds) {
    for (Criterion& c : target.bounds(query)) criteria.push_back(std::move(c));
  }
  Verdict verdict;
  std::vector<std::string> lines;
  for (const Criterion& c : criteria) {
    verdict.match &= c.match;
    lines.push_back(TextOf(c));
  }
  verdict.text = Join(lines, "; ");
  return verdict;
}

}  // namespace

Status ChooseTarget(const TargetQuery* query, TargetMode mode, Resolution& resolution) {
  if (mode == TargetMode::kOff) return resolution.index_failure;
  std::vector<std::string> refusals;
  for (const auto& candidate : resolution.candidates) {
    if (query == nullptr) break;
    const Verdict verdict = Judge(*candidate.entry, *query);
    resolution.trace.push_back({"target", candidate.entry->name,
                                (verdict.match ? "chosen: " : "not chosen: ") + verdict.text});
    if (verdict.match) {
      resolution.target = candidate.entry;
      return {};
    }
    refusals.push_back(candidate.entry->name + ": " + verdict.text);
  }
  TN_RETURN_IF_ERROR(resolution.index_failure);
  if (mode != TargetMode::kRequire) return {};
  return Refused(fmt::format(
      "target = require, but no target serves '{}': {}; fix: --target auto", resolution.stated,
      refusals.empty() ? "none is registered for it" : Join(refusals, " | ")));
}

Status DropTarget(const NoTarget& answer, TargetMode mode, Resolution& resolution) {
  TN_CHECK(resolution.target != nullptr, "only the chosen target may answer NoTarget");
  const std::string name = resolution.target->name;
  if (mode == TargetMode::kRequire) {
    return Refused(fmt::format("target = require, but '{}' refuses: {}; fix: --target auto", name,
                               answer.why));
  }
  resolution.target = nullptr;
  resolution.trace.push_back(
      {"target", "built-in", fmt::format("'{}' refuses: {}", name, answer.why)});
  return resolution.index_failure;
}

}  // namespace tenon
