#include "tenon/attention/backends/flashinfer_plan.h"

#include <algorithm>

#include "tenon/attention/backends/native_plan.h"
#include "tenon/tensor/buffer.h"

namespace tenon::backends {
namespace {

// Work that outweighs this part of the step is worth splitting: fewer units would leave threads
// without any.
constexpr int64_t kSplitBelow = 16;
// What a key costs by itself, in rows that attend it.
constexpr int64_t kKeyCost = 4;

// Chunks are a power of two of keys that cuts them into at most this many.
constexpr int64_t kMaxChunks = 64;
constexpr int64_t kMinChunk = 128;

int64_t CostOf(int64_t rows, int64_t keys) { return 2 * rows + keys * (rows + kKeyCost); }

}  // namespace

int64_t FlashInferPlan::ChunkFor(int64_t keys, std::optional<int64_t> window) {
  if (window) keys = std::min(keys, *window + kTileRows);
  int64_t chunk = kMinChunk;
  while (chunk * kMaxChunks < keys) chunk *= 2;
  return chunk;
}

int64_t FlashInferPlan::CountOf(int64_t begin, int64_t end, int64_t chunk) {
  return CeilDiv(end, chunk) - begin / chunk;
}

void FlashInferPlan::AddTiles(const StepRequest& request, int32_t index) {
  const bool cross = spec_.kind == CacheKind::kCross;
  const int64_t keys = pages_.LengthOf(index);
  const bool causal = !cross && request.mask == nullptr;
  const int64_t chunk = ChunkFor(keys, cross ? std::nullopt : spec_.window);
  for (int64_t row = request.begin; row < request.end; row += kTileRows) {
    Tile tile;
    tile.block = {index, row, std::min<int64_t>(request.end - row, kTileRows)};
    tile.chunk = chunk;
    const int64_t first = keys - (request.end - row);  // the key that is the first row itself
    tile.key_end = causal ? first + tile.block.rows : keys;
    if (spec_.window && !cross) tile.key_begin = std::max<int64_t>(0, first + 1 - *spec_.window);
    tiles_.push_back(tile);
  }
}

// Runs of an item: blocks whose rows are neighbours, at most kTileRows of them.
void FlashInferPlan::AddItem(Item item, std::span<const RowBlock> blocks) {
  item.first_run = static_cast<int32_t>(runs_.size());
  for (const RowBlock& block : blocks) {
    RowBlock* last = item.run_count == 0 ? nullptr : &runs_.back();
    if (last != nullptr && last->row + last->rows == block.row &&
        last->rows + block.rows <= kTileRows) {
      last->rows += block.rows;
    } else {
      runs_.push_back(block);
      ++item.run_count;
    }
    item.rows += block.rows;
  }
  item.cost = CostOf(item.rows, item.key_end - item.key_begin);
  items_.push_back(item);
}

// One item per chunk of keys, each with slots of its own.
void FlashInferPlan::AddParts(Item item, std::span<const RowBlock> blocks) {
  int64_t rows = 0;
  for (const RowBlock& block : blocks) rows += block.rows;
  const int64_t begin = item.key_begin;
  const int64_t end = item.key_end;
  for (int64_t at = begin / item.chunk * item.chunk; at < end; at += item.chunk) {
    item.key_begin = std::max(begin, at);
    item.key_end = std::min(at + item.chunk, end);
    AddItem(item, blocks);
    item.slot += rows;
  }
}

void FlashInferPlan::FindShared(const StepLayout& layout) {
  candidates_.clear();
  const bool may = cascade_ && spec_.kind == CacheKind::kPagedRows && !spec_.window;
  for (size_t i = 0; may && i < layout.requests.size(); ++i) {
    const StepRequest& r = layout.requests[i];
    const int64_t rows = r.end - r.begin;
    if (rows == 0 || rows > kMaxCascadeRows || r.mask != nullptr) continue;
    candidates_.push_back({static_cast<int32_t>(i), r.kv_len - rows,
                           tiles_[static_cast<size_t>(first_tile_[i])].chunk});
  }
  shared_.Find(pages_, candidates_);
  for (const SharedPrefixes::Group& group : shared_.groups()) AddShared(layout, group);
}

// The members' tiles keep their own keys, all of which go to slots. Without slots for that, nothing
// is shared.
void FlashInferPlan::AddShared(const StepLayout& layout, const SharedPrefixes::Group& group) {
  blocks_.clear();
  int64_t rows = 0;
  int64_t own_slots = 0;
  for (const int32_t member : shared_.members(group)) {
    const StepRequest& r = layout.requests[static_cast<size_t>(member)];
    const Tile& tile = tiles_[static_cast<size_t>(first_tile_[static_cast<size_t>(member)])];
    blocks_.push_back({member, r.begin, r.end - r.begin});
    rows += blocks_.back().rows;
    own_slots += blocks_.back().rows * CountOf(group.keys, tile.key_end, tile.chunk);
  }
  const int64_t chunks = group.keys / group.chunk;
  const int64_t left = free_slots_ - own_slots;
  if (left < rows) return;
  const int64_t parts = rows * chunks <= left / 2 ? chunks : 1;
  Item item;
  item.request = blocks_[0].request;
  item.key_end = group.keys;
  item.chunk = group.chunk;
  item.slot = next_slot_;
  item.shared = true;
  int64_t slot = item.slot;
  next_slot_ += rows * parts;
  free_slots_ = left - rows * parts;
  if (parts > 1) {
    AddParts(item, blocks_);
  } else {
    AddItem(item, blocks_);
  }
  for (const RowBlock& block : blocks_) {
    Tile& tile = tiles_[static_cast<size_t>(first_tile_[static_cast<size_t>(block.request)])];
    tile.key_begin = group.keys;
    tile.shared = {slot, rows, parts};
    slot += block.rows;
  }
}

void FlashInferPlan::AddItems() {
  int64_t total = 0;
  for (const Item& item : items_) total += item.cost;
  for (const Tile& tile : tiles_) total += CostOf(tile.block.rows, tile.key_end - tile.key_begin);
  for (const Tile& tile : tiles_) {
    const RowBlock& block = tile.block;
    Item item;
    item.request = block.request;
    item.key_begin = tile.key_begin;
    item.key_end = tile.key_end;
    item.chunk = tile.chunk;
    const int64_t slots = tile.parts() * block.rows;
    const bool shares = tile.shared.count > 0;
    const bool splits = tile.parts() > 1 && slots <= free_slots_ &&
                        CostOf(block.rows, tile.key_end - tile.key_begin) * kSplitBelow > total;
    if (!shares && !splits) {
      AddItem(item, {&block, 1});
      continue;
    }
    if (!shares) free_slots_ -= slots;  // the others' have been set aside
    item.slot = next_slot_;
    joins_.push_back({block.row, block.rows, tile.shared, {item.slot, block.rows, tile.parts()}});
    next_slot_ += slots;
    AddParts(item, {&block, 1});
  }
  TN_CHECK(next_slot_ <= SlotsFor(spec_.layout), "partial states fit their slots");
}

void FlashInferPlan::Balance() {
  const auto count = static_cast<int32_t>(items_.size());
  by_cost_.clear();
  for (int32_t i = 0; i < count; ++i) by_cost_.push_back(i);
  const auto cost = [&](int32_t i) { return items_[static_cast<size_t>(i)].cost; };
  std::sort(by_cost_.begin(), by_cost_.end(),
            [&](int32_t a, int32_t b) { return cost(a) != cost(b) ? cost(a) > cost(b) : a < b; });
  // Each to the share that has the least so far: a heap with that share on top.
  struct Load {
    int64_t cost;
    int32_t share;
  };
  const auto heavier = [](const Load& a, const Load& b) {
    return a.cost != b.cost ? a.cost > b.cost : a.share > b.share;
  };
  std::array<Load, kShares> heap;
  for (int32_t s = 0; s < kShares; ++s) heap[static_cast<size_t>(s)] = {0, s};
  owner_.assign(items_.size(), 0);
  share_begin_.fill(0);
  for (const int32_t i : by_cost_) {
    std::pop_heap(heap.begin(), heap.end(), heavier);
    Load& least = heap.back();
    owner_[static_cast<size_t>(i)] = least.share;
    least.cost += cost(i);
    ++share_begin_[static_cast<size_t>(least.share) + 1];
    std::push_heap(heap.begin(), heap.end(), heavier);
  }
  for (size_t s = 0; s < kShares; ++s) share_begin_[s + 1] += share_begin_[s];
  order_.assign(items_.size(), 0);
  std::array<int32_t, kShares + 1> next = share_begin_;
  for (const int32_t i : by_cost_) {
    const auto share = static_cast<size_t>(owner_[static_cast<size_t>(i)]);
    order_[static_cast<size_t>(next[share]++)] = i;
  }
}

int64_t FlashInferPlan::CostOfShare(int64_t i) const {
  int64_t cost = 0;
  for (const int32_t item : share(i)) cost += items_[static_cast<size_t>(item)].cost;
  return cost;
}

void FlashInferPlan::Prepare(const StepLayout& layout) {
  tiles_.clear();
  first_tile_.clear();
  items_.clear();
  runs_.clear();
  joins_.clear();
  lengths_.clear();
  const bool cross = spec_.kind == CacheKind::kCross;
  if (cross || spec_.kind == CacheKind::kPagedRows) {
    for (const StepRequest& r : layout.requests) {
      lengths_.push_back(cross ? r.cross_len : r.kv_len);
    }
    pages_.Build(layout.groups[group_], lengths_);
    for (size_t i = 0; i < layout.requests.size(); ++i) {
      first_tile_.push_back(static_cast<int32_t>(tiles_.size()));
      AddTiles(layout.requests[i], static_cast<int32_t>(i));
    }
    free_slots_ = SlotsFor(spec_.layout);
    next_slot_ = 0;
    FindShared(layout);
    AddItems();
  }
  Balance();
}

}  // namespace tenon::backends
