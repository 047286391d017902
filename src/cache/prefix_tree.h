// PrefixTree: which cached pages hold the rows of which tokens. A block is kPrefixBlock tokens
// after all the tokens of its parents; it names, per paged group, the page with its rows, and maybe
// a kept state. Blocks are found by hash and compared token by token, so a collision costs time,
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

inline constexpr int64_t kPrefixBlock = 32;  // tokens

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
    // Rows that fall out of sight are dropped, and a prefix may lack them. Without them a block of
    // another group is nothing.
    bool drops_rows = false;
  };
  PrefixTree(int64_t blocks, std::span<const Group> groups);

  // What the tree allocates; `page_tokens` and `pages` of each group.
  struct GroupSizes {
    int64_t pages = 0;
    int32_t page_tokens = 0;
  };
  static int64_t BytesFor(int64_t blocks, std::span<const GroupSizes> groups);
  int64_t bytes() const;

  // A block, or what was one: evicting makes it dead.
  struct Ref {
    int32_t block = -1;
    uint32_t generation = 0;
  };
  Ref RefOf(int32_t block) const { return {block, blocks_[static_cast<size_t>(block)].generation}; }
  bool Lives(const Ref& ref) const {
    return ref.block >= 0 && At(ref.block).generation == ref.generation;
  }

  // The blocks that begin like `tokens`, from the first on, and of the one after them as many
  // tokens as agree. Valid until the next call.
  struct Match {
    std::span<const int32_t> blocks;  // the partly agreeing one included
    int64_t tokens = 0;
  };
  Match Find(std::span<const int32_t> tokens, const PrefixKey& key);
  // The page with row `row` of a sequence whose block `block` has that row; -1: none.
  int32_t PageOf(int32_t block, size_t group, int64_t row) const {
    return pages_[static_cast<size_t>(PageAt(block, group, row))];
  }

  // The block of `tokens` [kPrefixBlock] after `parent` (-1: the first), made if need be, with the
  // pages of `tables` (per group, a sequence's) where it has none. -1: there is no room for it, or
  // a page that is full of other tokens.
  int32_t Publish(int32_t parent, const PrefixKey& key, std::span<const int32_t> tokens,
                  std::span<const std::span<const int32_t>> tables);
  // Lets go of a page, so that it is unused if no sequence has it: with it go blocks that are
  // nothing without it, and all that follow on them.
  void Forget(size_t group, int32_t page);

  // An index that its owner keeps for a living block, -1: none.
  int32_t state(int32_t block) const { return At(block).state; }
  // Without a state a block may be nothing, and go.
  void SetState(int32_t block, int32_t state);
  int64_t depth(int32_t block) const { return At(block).depth; }

  int64_t size() const { return used_; }
  // Links, hashes and holds consistent. kInternal says what is wrong.
  Status Check() const;

 private:
  struct Block {
    std::array<int32_t, kPrefixBlock> tokens;
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
    int32_t pages_per_block = 1;
    int32_t blocks_per_page = 1;
    int64_t first_page = 0;    // of a block's entries in pages_
    int64_t first_holder = 0;  // in holders_
  };

  static size_t BucketsFor(int64_t blocks);
  static uint64_t Hash(int32_t parent, const PrefixKey& key, std::span<const int32_t> tokens);
  Block& At(int32_t block) { return blocks_[static_cast<size_t>(block)]; }
  const Block& At(int32_t block) const { return blocks_[static_cast<size_t>(block)]; }
  int32_t& FirstChild(int32_t parent) { return parent < 0 ? first_root_ : At(parent).first_child; }
  int64_t PageAt(int32_t block, size_t group, int64_t row) const {
    const GroupLayout& g = groups_[group];
    return block * pages_per_block_ + g.first_page + row % kPrefixBlock / g.page_tokens;
  }
  // Whose rows are in the page at the place of this block.
  int32_t& Holder(const GroupLayout& g, int32_t page, int64_t depth) {
    return holders_[static_cast<size_t>(g.first_holder + int64_t{page} * g.blocks_per_page +
                                        depth % g.blocks_per_page)];
  }
  int32_t ChildOf(int32_t parent, const PrefixKey& key, std::span<const int32_t> tokens,
                  uint64_t hash) const;
  bool HasRoom(int64_t depth, std::span<const std::span<const int32_t>> tables);
  int32_t Add(int32_t parent, const PrefixKey& key, std::span<const int32_t> tokens, uint64_t hash);
  void TakePages(int32_t block, std::span<const std::span<const int32_t>> tables);
  void LosePage(size_t group, int32_t block, int64_t entry);
  bool Replace(size_t group, int32_t block, int32_t page);
  bool IsNothing(int32_t block) const;
  void Prune(int32_t block);
  void Remove(int32_t block);
  void RemoveLeaf(int32_t block);
  int32_t OldestLeaf() const;

  std::vector<GroupLayout> groups_;
  int64_t pages_per_block_ = 0;
  std::vector<Block> blocks_;
  std::vector<int32_t> pages_;    // [blocks, pages_per_block]
  std::vector<int32_t> buckets_;  // heads of lists by hash
  std::vector<int32_t> holders_;  // per group [pages, blocks_per_page]: the block, -1: none
  std::vector<int32_t> path_;     // [blocks]: of the last Match
  int32_t first_root_ = -1;
  int32_t first_unused_ = -1;
  int64_t used_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace tenon
