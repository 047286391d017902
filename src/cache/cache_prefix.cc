// The verbs of CacheManager that find and offer published rows.
#include <algorithm>
#include <limits>

#include "tenon/cache/cache_manager.h"

#include <fmt/format.h>

namespace tenon {

// The longest length below `length` at which a state was kept.
int64_t CacheManager::StateBefore(const PrefixTree::Match& match, int64_t length) const {
  int64_t nodes = length / kPrefixTokens;
  while (nodes > 0 && tree_->state(match.nodes[static_cast<size_t>(nodes - 1)]) < 0) --nodes;
  return nodes * kPrefixTokens;
}

// The last of the rows that the query after `length` rows sees and that are gone; -1: none is.
int64_t CacheManager::MissingRow(const PrefixTree::Match& match, int64_t length) const {
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (!HasRows(g)) continue;
    const int64_t page_tokens = groups_[g].pool->page_tokens();
    const int64_t first = plan_.groups[g].spec.FirstSeen(length);
    // Page by page, of each the last row: its node's page has the rows before it, too.
    for (int64_t row = length - 1; row >= first; row = row / page_tokens * page_tokens - 1) {
      const int32_t node = match.nodes[static_cast<size_t>(row / kPrefixTokens)];
      if (tree_->PageOf(node, groups_[g].in_tree, row) < 0) return row;
    }
  }
  return -1;
}

int64_t CacheManager::Reusable(const PrefixTree::Match& match) const {
  int64_t length = match.tokens;
  for (;;) {
    if (plan_.HasStates()) length = StateBefore(match, length);
    if (length == 0) return 0;
    const int64_t missing = MissingRow(match, length);
    if (missing < 0) return length;
    length = missing / kPrefixTokens * kPrefixTokens;  // without the node that lacks it
  }
}

void CacheManager::TakePrefix(int32_t sequence, const PrefixTree::Match& match, int64_t length) {
  Sequence& s = At(sequence);
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (!HasRows(g)) continue;
    PagePool& pool = *groups_[g].pool;
    const int64_t page_tokens = pool.page_tokens();
    const int64_t dropped = plan_.groups[g].spec.FirstSeen(length) / page_tokens;
    pool.BeginDropped(sequence, dropped);
    for (int64_t j = dropped; j < pool.PagesFor(length); ++j) {
      const int64_t row = std::min((j + 1) * page_tokens, length) - 1;
      const int32_t node = match.nodes[static_cast<size_t>(row / kPrefixTokens)];
      pool.Adopt(sequence, tree_->PageOf(node, groups_[g].in_tree, row));
    }
  }
  s.length = length;
  const int64_t whole = length / kPrefixTokens;
  if (whole == 0) return;
  const int32_t last = match.nodes[static_cast<size_t>(whole - 1)];
  s.published = tree_->RefOf(last);
  if (!plan_.HasStates()) return;
  const int32_t state = tree_->state(last);
  snapshots_[static_cast<size_t>(state)].last_use = ++clock_;
  CopyStates(SnapshotSlot(state), SlotOf(sequence));
}

Result<Admission> CacheManager::AdmitWithPrefix(std::span<const int32_t> tokens,
                                                const PrefixKey& key, int64_t keep_for_compute) {
  TN_CHECK(keep_for_compute >= 0, "a number of tokens");
  Admission admission;
  TN_ASSIGN_OR_RETURN(admission.sequence, Admit(key));
  const int64_t usable = static_cast<int64_t>(tokens.size()) - keep_for_compute;
  if (!tree_ || usable <= 0) return admission;
  const PrefixTree::Match match = tree_->Find(tokens.first(static_cast<size_t>(usable)), key);
  admission.reused_rows = Reusable(match);
  if (admission.reused_rows > 0) TakePrefix(admission.sequence, match, admission.reused_rows);
  return admission;
}

// The last node of `tokens`, -1: not all could be offered.
int32_t CacheManager::PublishNodes(Sequence& s, int32_t sequence, std::span<const int32_t> tokens) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (HasRows(g)) tables_[groups_[g].in_tree] = groups_[g].pool->TableOf(sequence);
  }
  const auto nodes = static_cast<int64_t>(tokens.size()) / kPrefixTokens;
  int32_t node = -1;
  int64_t done = 0;
  if (tree_->Lives(s.published)) {
    node = s.published.node;
    done = tree_->depth(node) + 1;
  }
  for (; done < nodes; ++done) {
    const auto part = tokens.subspan(static_cast<size_t>(done * kPrefixTokens), kPrefixTokens);
    const int32_t next = tree_->Publish(node, s.key, part, tables_);
    if (next < 0) return -1;
    s.published = tree_->RefOf(next);
    node = next;
  }
  return done == nodes ? node : -1;
}

void CacheManager::KeepState(int32_t sequence, int32_t node) {
  if (const int32_t kept = tree_->state(node); kept >= 0) {
    snapshots_[static_cast<size_t>(kept)].last_use = ++clock_;
    return;
  }
  // As long as it has a state, the node does not go with those that make room for it.
  tree_->SetState(node, std::numeric_limits<int32_t>::max());
  const int32_t snapshot = FindSnapshotSlot();
  tree_->SetState(node, snapshot);
  if (snapshot < 0) return;
  snapshots_[static_cast<size_t>(snapshot)] = {.node = tree_->RefOf(node), .last_use = ++clock_};
  CopyStates(SlotOf(sequence), SnapshotSlot(snapshot));
}

void CacheManager::Publish(int32_t sequence, std::span<const int32_t> tokens,
                           PublishStates states) {
  Sequence& s = At(sequence);
  const auto rows = static_cast<int64_t>(tokens.size());
  TN_CHECK(rows <= s.length, "only rows that are there can be offered");
  if (!tree_ || rows < kPrefixTokens) return;
  if (!plan_.HasStates()) {
    PublishNodes(s, sequence, tokens);
    return;
  }
  // Without a state at their end, nodes lead nowhere.
  if (states == PublishStates::kNone || rows != s.length || rows % kPrefixTokens != 0) return;
  if (const int32_t node = PublishNodes(s, sequence, tokens); node >= 0) KeepState(sequence, node);
}

void CacheManager::Preempt(int32_t sequence, std::span<const int32_t> tokens) {
  Publish(sequence, tokens, PublishStates::kKeep);
  Free(sequence);
}

Status CacheManager::CheckStates() const {
  for (size_t i = 0; i < snapshots_.size(); ++i) {
    const SnapshotEntry& e = snapshots_[i];
    if (e.node.node < 0 || !tree_->Lives(e.node)) continue;
    if (e.sequence >= 0 || tree_->state(e.node.node) != static_cast<int32_t>(i)) {
      return InternalError(fmt::format("snapshot {}: of a published node that has state {}", i,
                                       tree_->state(e.node.node)));
    }
  }
  return {};
}

}  // namespace tenon
