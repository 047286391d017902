// PrefixTree: which cached pages hold the rows of which tokens. A node is kPrefixTokens tokens
// after all the tokens of its parents; it names, per paged group, the page with its rows, and maybe
// a kept state. Nodes are found by hash and compared token by token, so a collision costs time,
// not rows. No bytes of the cache, no choice of what to evict (page_pool.h, cache_manager.h).
// Allocates when made, then never. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tenon/base/status.h"
#include "tenon/cache/page_pool.h"

namespace tenon {

inline constexpr int64_t kPrefixTokens = 32;  // tokens

// Besides its tokens, what a row depends on; sequences of different keys share nothing.
struct PrefixKey {
  uint64_t salt = 0;    // adapter, tenant
  uint64_t regime = 0;  // of the ropes (fixed frequencies: 0)
  bool operator==(const PrefixKey&) const = default;
};

class PrefixTree {
 public:
  struct Group {
    PagePool* pool = nullptr;  // stays where it is
    // Rows that fall out of sight are given back: nodes may lack pages of this group. A node that
    // would lack one of another group is removed.
    bool drops_rows = false;
  };
  PrefixTree(int64_t nodes, std::span<const Group> groups);

  // What the tree allocates; `page_tokens` and `pages` of each group.
  struct GroupSizes {
    int64_t pages = 0;
    int32_t page_tokens = 0;
  };
  static int64_t BytesFor(int64_t nodes, std::span<const GroupSizes> groups);
  int64_t bytes() const;

  // A node, or what was one: it may have been removed.
  struct Ref {
    int32_t node = -1;
    uint32_t generation = 0;
  };
  Ref RefOf(int32_t node) const { return {node, nodes_[static_cast<size_t>(node)].generation}; }
  bool Lives(const Ref& ref) const {
    return ref.node >= 0 && At(ref.node).generation == ref.generation;
  }

  // The nodes that begin like `tokens`, from the first on, and of the one after them as many
  // tokens as agree. Valid until the next call.
  struct Match {
    std::span<const int32_t> nodes;  // the partly agreeing one included
    int64_t tokens = 0;
  };
  Match Find(std::span<const int32_t> tokens, const PrefixKey& key);
  // The page with row `row` of a sequence whose node `node` has that row; -1: none.
  int32_t PageOf(int32_t node, size_t group, int64_t row) const {
    return pages_[static_cast<size_t>(PageAt(node, group, row))];
  }

  // The node of `tokens` [kPrefixTokens] after `parent` (-1: the first), made if need be, with the
  // pages of `tables` (per group, a sequence's) where it has none. -1: there is no room for it, or
  // a page that is full of other tokens.
  int32_t Publish(int32_t parent, const PrefixKey& key, std::span<const int32_t> tokens,
                  std::span<const std::span<const int32_t>> tables);
  // Lets go of a page, so that it is unused if no sequence has it: with it go nodes that are
  // nothing without it, and all that follow on them.
  void Forget(size_t group, int32_t page);

  // An index that its owner keeps for a living node, -1: none.
  int32_t state(int32_t node) const { return At(node).state; }
  // Without a state a node may be nothing, and go.
  void SetState(int32_t node, int32_t state);
  int64_t depth(int32_t node) const { return At(node).depth; }

  int64_t size() const { return used_; }
  // Links, hashes and holds consistent. kInternal says what is wrong.
  Status Check() const;

 private:
  struct Node {
    std::array<int32_t, kPrefixTokens> tokens;
    PrefixKey key;
    uint64_t hash = 0;
    uint64_t last_use = 0;
    uint32_t generation = 0;
    int32_t depth = -1;  // -1: unused
    int32_t parent = -1;
    int32_t first_child = -1;
    int32_t next_sibling = -1, previous_sibling = -1;
    int32_t next_in_bucket = -1;  // of unused ones: the next unused
    int32_t state = -1;
  };
  struct GroupLayout {
    PagePool* pool = nullptr;
    bool drops_rows = false;
    int32_t page_tokens = 0;
    int32_t pages_per_node = 1;
    int32_t nodes_per_page = 1;
    int64_t first_page = 0;    // of a node's entries in pages_
    int64_t first_holder = 0;  // in holders_
  };

  static size_t BucketsFor(int64_t nodes);
  static uint64_t Hash(int32_t parent, const PrefixKey& key, std::span<const int32_t> tokens);
  Node& At(int32_t node) { return nodes_[static_cast<size_t>(node)]; }
  const Node& At(int32_t node) const { return nodes_[static_cast<size_t>(node)]; }
  int32_t& FirstChild(int32_t parent) { return parent < 0 ? first_root_ : At(parent).first_child; }
  int64_t PageAt(int32_t node, size_t group, int64_t row) const {
    const GroupLayout& g = groups_[group];
    return node * pages_per_node_ + g.first_page + row % kPrefixTokens / g.page_tokens;
  }
  // Whose rows are in the page at the place of this node.
  int32_t& Holder(const GroupLayout& g, int32_t page, int64_t depth) {
    return holders_[static_cast<size_t>(g.first_holder + int64_t{page} * g.nodes_per_page +
                                        depth % g.nodes_per_page)];
  }
  int32_t ChildOf(int32_t parent, const PrefixKey& key, std::span<const int32_t> tokens,
                  uint64_t hash) const;
  bool HasRoom(int64_t depth, std::span<const std::span<const int32_t>> tables);
  int32_t Add(int32_t parent, const PrefixKey& key, std::span<const int32_t> tokens, uint64_t hash);
  void TakePages(int32_t node, std::span<const std::span<const int32_t>> tables);
  void LosePage(size_t group, int32_t node, int64_t entry);
  bool Replace(size_t group, int32_t node, int32_t page);
  bool IsNothing(int32_t node) const;
  void Prune(int32_t node);
  void Remove(int32_t node);
  void RemoveLeaf(int32_t node);
  int32_t OldestLeaf() const;

  std::vector<GroupLayout> groups_;
  int64_t pages_per_node_ = 0;
  std::vector<Node> nodes_;
  std::vector<int32_t> pages_;    // [nodes, pages_per_node]
  std::vector<int32_t> buckets_;  // heads of lists by hash
  std::vector<int32_t> holders_;  // per group [pages, nodes_per_page]: the node, -1: none
  std::vector<int32_t> path_;     // [nodes]: of the last Match
  int32_t first_root_ = -1;
  int32_t first_unused_ = -1;
  int64_t used_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace tenon
