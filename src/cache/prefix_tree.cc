#include "tenon/cache/prefix_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace tenon {
namespace {

int32_t NodesPerPage(int32_t page_tokens) {
  return std::max(1, page_tokens / static_cast<int32_t>(kPrefixTokens));
}
int32_t PagesPerNode(int32_t page_tokens) {
  return std::max(1, static_cast<int32_t>(kPrefixTokens) / page_tokens);
}

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

}  // namespace

PrefixTree::PrefixTree(int64_t nodes, std::span<const Group> groups)
    : nodes_(static_cast<size_t>(nodes)), buckets_(BucketsFor(nodes), -1) {
  int64_t holders = 0;
  for (const Group& group : groups) {
    GroupLayout g;
    g.pool = group.pool;
    g.drops_rows = group.drops_rows;
    g.page_tokens = group.pool->page_tokens();
    g.pages_per_node = PagesPerNode(g.page_tokens);
    g.nodes_per_page = NodesPerPage(g.page_tokens);
    g.first_page = pages_per_node_;
    g.first_holder = holders;
    pages_per_node_ += g.pages_per_node;
    holders += group.pool->pages() * g.nodes_per_page;
    groups_.push_back(g);
  }
  pages_.resize(static_cast<size_t>(nodes * pages_per_node_), -1);
  holders_.resize(static_cast<size_t>(holders), -1);
  path_.resize(nodes_.size());
  for (int64_t node = nodes - 1; node >= 0; --node) {
    At(static_cast<int32_t>(node)).next_in_bucket = first_unused_;
    first_unused_ = static_cast<int32_t>(node);
  }
}

size_t PrefixTree::BucketsFor(int64_t nodes) {
  return std::bit_ceil(static_cast<size_t>(std::max<int64_t>(1, nodes)));
}

int64_t PrefixTree::BytesFor(int64_t nodes, std::span<const GroupSizes> groups) {
  int64_t per_node = sizeof(Node) + sizeof(int32_t);  // and its place in path_
  int64_t holders = 0;
  for (const GroupSizes& g : groups) {
    per_node += PagesPerNode(g.page_tokens) * int64_t{sizeof(int32_t)};
    holders += g.pages * NodesPerPage(g.page_tokens);
  }
  return nodes * per_node +
         (holders + static_cast<int64_t>(BucketsFor(nodes))) * int64_t{sizeof(int32_t)};
}

int64_t PrefixTree::bytes() const {
  return static_cast<int64_t>(nodes_.size() * sizeof(Node) +
                              (pages_.size() + buckets_.size() + holders_.size() + path_.size()) *
                                  sizeof(int32_t));
}

uint64_t PrefixTree::Hash(int32_t parent, const PrefixKey& key, std::span<const int32_t> tokens) {
  uint64_t hash = Mix(Mix(Mix(0, static_cast<uint32_t>(parent)), key.salt), key.regime);
  for (const int32_t token : tokens) hash = Mix(hash, static_cast<uint32_t>(token));
  return hash;
}

int32_t PrefixTree::ChildOf(int32_t parent, const PrefixKey& key, std::span<const int32_t> tokens,
                            uint64_t hash) const {
  int32_t node = buckets_[hash & (buckets_.size() - 1)];
  for (; node >= 0; node = At(node).next_in_bucket) {
    const Node& b = At(node);
    if (b.hash == hash && b.parent == parent && b.key == key &&
        std::equal(tokens.begin(), tokens.end(), b.tokens.begin())) {
      break;
    }
  }
  return node;
}

PrefixTree::Match PrefixTree::Find(std::span<const int32_t> tokens, const PrefixKey& key) {
  size_t found = 0;
  int32_t parent = -1;
  while (tokens.size() >= kPrefixTokens) {
    const auto node_tokens = tokens.first(kPrefixTokens);
    const int32_t node = ChildOf(parent, key, node_tokens, Hash(parent, key, node_tokens));
    if (node < 0) break;
    At(node).last_use = ++clock_;
    path_[found++] = parent = node;
    tokens = tokens.subspan(kPrefixTokens);
  }
  Match match{{}, static_cast<int64_t>(found) * kPrefixTokens};
  int64_t most = 0;
  for (int32_t child = FirstChild(parent); child >= 0; child = At(child).next_sibling) {
    const Node& b = At(child);
    if (!(b.key == key)) continue;
    const auto end =
        b.tokens.begin() +
        std::min<std::ptrdiff_t>(kPrefixTokens, static_cast<std::ptrdiff_t>(tokens.size()));
    const int64_t same =
        std::mismatch(b.tokens.begin(), end, tokens.begin()).first - b.tokens.begin();
    if (same <= most) continue;
    most = same;
    path_[found] = child;
  }
  match.tokens += most;
  match.nodes = {path_.data(), found + (most > 0 ? 1 : 0)};
  return match;
}

bool PrefixTree::HasRoom(int64_t depth, std::span<const std::span<const int32_t>> tables) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const GroupLayout& layout = groups_[g];
    for (int32_t i = 0; i < layout.pages_per_node; ++i) {
      const int64_t j =
          (depth * kPrefixTokens + int64_t{i} * layout.page_tokens) / layout.page_tokens;
      const int32_t page = tables[g][static_cast<size_t>(j)];
      if (page == PagePool::kDropped ? !layout.drops_rows : Holder(layout, page, depth) >= 0)
        return false;
    }
  }
  return true;
}

int32_t PrefixTree::Publish(int32_t parent, const PrefixKey& key, std::span<const int32_t> tokens,
                            std::span<const std::span<const int32_t>> tables) {
  TN_CHECK(tokens.size() == kPrefixTokens && tables.size() == groups_.size(),
           "a node's tokens, a table per group");
  const uint64_t hash = Hash(parent, key, tokens);
  int32_t node = ChildOf(parent, key, tokens, hash);
  if (node < 0) {
    if (!HasRoom(parent < 0 ? 0 : At(parent).depth + 1, tables)) return -1;
    if (first_unused_ < 0) {
      const int32_t leaf = OldestLeaf();
      if (leaf == parent) return -1;
      RemoveLeaf(leaf);
    }
    node = Add(parent, key, tokens, hash);
  }
  At(node).last_use = ++clock_;
  TakePages(node, tables);
  return node;
}

int32_t PrefixTree::Add(int32_t parent, const PrefixKey& key, std::span<const int32_t> tokens,
                        uint64_t hash) {
  const int32_t node = first_unused_;
  Node& b = At(node);
  first_unused_ = b.next_in_bucket;
  std::copy(tokens.begin(), tokens.end(), b.tokens.begin());
  b.key = key;
  b.hash = hash;
  b.depth = parent < 0 ? 0 : At(parent).depth + 1;
  b.parent = parent;
  b.first_child = b.previous_sibling = b.state = -1;
  b.next_sibling = FirstChild(parent);
  if (b.next_sibling >= 0) At(b.next_sibling).previous_sibling = node;
  FirstChild(parent) = node;
  int32_t& bucket = buckets_[hash & (buckets_.size() - 1)];
  b.next_in_bucket = bucket;
  bucket = node;
  ++used_;
  return node;
}

void PrefixTree::TakePages(int32_t node, std::span<const std::span<const int32_t>> tables) {
  const int64_t depth = At(node).depth;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const GroupLayout& layout = groups_[g];
    for (int32_t i = 0; i < layout.pages_per_node; ++i) {
      const int64_t row = depth * kPrefixTokens + int64_t{i} * layout.page_tokens;
      const int32_t page = tables[g][static_cast<size_t>(row / layout.page_tokens)];
      int32_t& entry = pages_[static_cast<size_t>(PageAt(node, g, row))];
      if (entry >= 0 || page == PagePool::kDropped || Holder(layout, page, depth) >= 0) continue;
      entry = page;
      Holder(layout, page, depth) = node;
      layout.pool->Hold(page,
                        std::min<int32_t>(layout.page_tokens,
                                          static_cast<int32_t>(depth % layout.nodes_per_page + 1) *
                                              static_cast<int32_t>(kPrefixTokens)));
    }
  }
}

void PrefixTree::LosePage(size_t group, int32_t node, int64_t entry) {
  int32_t& page = pages_[static_cast<size_t>(entry)];
  if (page < 0) return;
  Holder(groups_[group], page, At(node).depth) = -1;
  groups_[group].pool->Unhold(page);
  page = -1;
}

// A node that follows in the same page may have a page of its own, which then begins with the same
// rows.
bool PrefixTree::Replace(size_t group, int32_t node, int32_t page) {
  const GroupLayout& layout = groups_[group];
  const int64_t depth = At(node).depth;
  if ((depth + 1) % layout.nodes_per_page == 0) return false;
  for (int32_t child = At(node).first_child; child >= 0; child = At(child).next_sibling) {
    const int32_t other = PageOf(child, group, 0);
    if (other < 0 || other == page || Holder(layout, other, depth) >= 0) continue;
    const int64_t entry = PageAt(node, group, 0);
    LosePage(group, node, entry);
    pages_[static_cast<size_t>(entry)] = other;
    Holder(layout, other, depth) = node;
    layout.pool->Hold(other,
                      static_cast<int32_t>((depth % layout.nodes_per_page + 1) * kPrefixTokens));
    return true;
  }
  return false;
}

void PrefixTree::Forget(size_t group, int32_t page) {
  const GroupLayout& layout = groups_[group];
  // The last node first: what follows on a node may have replaced the page.
  for (int64_t place = layout.nodes_per_page - 1; place >= 0; --place) {
    const int32_t node = Holder(layout, page, place);
    if (node < 0 || Replace(group, node, page)) continue;
    if (!layout.drops_rows) {
      Remove(node);
      continue;
    }
    int64_t entry = PageAt(node, group, 0);
    while (pages_[static_cast<size_t>(entry)] != page) ++entry;
    LosePage(group, node, entry);
    Prune(node);
  }
}

void PrefixTree::SetState(int32_t node, int32_t state) {
  At(node).state = state;
  if (state < 0) Prune(node);
}

bool PrefixTree::IsNothing(int32_t node) const {
  const Node& b = At(node);
  const auto pages = pages_.begin() + node * pages_per_node_;
  return b.first_child < 0 && b.state < 0 &&
         std::all_of(pages, pages + pages_per_node_, [](int32_t page) { return page < 0; });
}

void PrefixTree::Prune(int32_t node) {
  while (node >= 0 && IsNothing(node)) {
    const int32_t parent = At(node).parent;
    RemoveLeaf(node);
    node = parent;
  }
}

void PrefixTree::Remove(int32_t node) {
  for (int32_t leaf = node;;) {
    while (At(leaf).first_child >= 0) leaf = At(leaf).first_child;
    const int32_t parent = At(leaf).parent;
    RemoveLeaf(leaf);
    if (leaf == node) return;
    leaf = parent;
  }
}

void PrefixTree::RemoveLeaf(int32_t node) {
  Node& b = At(node);
  TN_CHECK(b.depth >= 0 && b.first_child < 0, "a node on which nothing follows");
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int64_t first = PageAt(node, g, 0);
    for (int32_t i = 0; i < groups_[g].pages_per_node; ++i) LosePage(g, node, first + i);
  }
  int32_t* in_bucket = &buckets_[b.hash & (buckets_.size() - 1)];
  while (*in_bucket != node) in_bucket = &At(*in_bucket).next_in_bucket;
  *in_bucket = b.next_in_bucket;
  (b.previous_sibling < 0 ? FirstChild(b.parent) : At(b.previous_sibling).next_sibling) =
      b.next_sibling;
  if (b.next_sibling >= 0) At(b.next_sibling).previous_sibling = b.previous_sibling;
  ++b.generation;
  b.depth = b.state = -1;
  b.next_in_bucket = first_unused_;
  first_unused_ = node;
  --used_;
}

int32_t PrefixTree::OldestLeaf() const {
  const auto older = [](const Node& a, const Node& b) {
    const bool a_leaf = a.depth >= 0 && a.first_child < 0;
    const bool b_leaf = b.depth >= 0 && b.first_child < 0;
    return a_leaf != b_leaf ? a_leaf : a.last_use < b.last_use;
  };
  return static_cast<int32_t>(std::min_element(nodes_.begin(), nodes_.end(), older) -
                              nodes_.begin());
}

Status PrefixTree::Check() const {
  std::vector<std::vector<int32_t>> holds;
  for (const GroupLayout& g : groups_) holds.emplace_back(static_cast<size_t>(g.pool->pages()));
  int64_t used = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& b = nodes_[i];
    if (b.depth < 0) continue;
    ++used;
    const auto node = static_cast<int32_t>(i);
    const int32_t parents_depth = b.parent < 0 ? -1 : At(b.parent).depth;
    if (b.depth != parents_depth + 1 || ChildOf(b.parent, b.key, b.tokens, b.hash) != node)
      return InternalError(fmt::format("prefix node {}: lost, or deeper than its parent", node));
    for (size_t g = 0; g < groups_.size(); ++g) {
      const GroupLayout& layout = groups_[g];
      for (int32_t p = 0; p < layout.pages_per_node; ++p) {
        const int32_t page = PageOf(node, g, p * layout.page_tokens);
        if (page >= 0) ++holds[g][static_cast<size_t>(page)];
        if (page < 0 && !layout.drops_rows)
          return InternalError(fmt::format("prefix node {}: no page in group {}", node, g));
      }
    }
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (size_t page = 0; page < holds[g].size(); ++page) {
      const int32_t counted = groups_[g].pool->holds(static_cast<int32_t>(page));
      if (holds[g][page] != counted) {
        return InternalError(
            fmt::format("group {} of the prefix tree, page {}: {} nodes have it, "
                        "counted {}",
                        g, page, holds[g][page], counted));
      }
    }
  }
  if (used == used_) return {};
  return InternalError(fmt::format("{} prefix nodes, counted {}", used, used_));
}

}  // namespace tenon
