#include "tenon/cache/cache_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "tenon/cache/page_pool.h"
#include "tenon/cache/prefix_tree.h"
#include "tenon/tensor/buffer.h"

namespace tenon {
namespace {

constexpr int32_t kMinPageTokens = 16;
constexpr int32_t kMaxPageTokens = 256;
// Beyond any machine, and small enough that the sums below do not wrap.
constexpr int64_t kMostRows = int64_t{1} << 60;
constexpr int64_t kMostSequences = int64_t{1} << 30;
constexpr int64_t kMostRowBytes = int64_t{1} << 40;

// Sizes come from configurations and options: their products must not wrap.
Status Multiply(int64_t a, int64_t b, int64_t& product) {
  if (!__builtin_mul_overflow(a, b, &product)) return {};
  return DoesNotFit(fmt::format("the cache: {} * {} bytes are beyond any memory", a, b));
}

Status Add(int64_t a, int64_t b, int64_t& sum) {
  if (!__builtin_add_overflow(a, b, &sum)) return {};
  return DoesNotFit(fmt::format("the cache: {} + {} bytes are beyond any memory", a, b));
}

Status CheckPageTokens(int32_t tokens) {
  const bool power = tokens > 0 && (tokens & (tokens - 1)) == 0;
  if (power && tokens >= kMinPageTokens && tokens <= kMaxPageTokens) return {};
  return UsageError(fmt::format("page_tokens = {}, allowed: a power of two of {}..{}", tokens,
                                kMinPageTokens, kMaxPageTokens));
}

// Pages of all sequences and of one.
void SetPageCounts(const CacheSizing& sizing, CacheGroupPlan& group) {
  const CacheSpec& spec = group.spec;
  const int64_t tokens = spec.kind == CacheKind::kCross ? sizing.cross_tokens : sizing.tokens;
  // Each sequence may leave its last page half empty.
  group.pages = CeilDiv(tokens, group.page_tokens) + sizing.max_sequences - 1;
  group.max_pages = group.pages;
  if (spec.kind == CacheKind::kCross) return;
  if (sizing.max_sequence_tokens > 0) {
    group.max_pages = std::min(group.pages, CeilDiv(sizing.max_sequence_tokens, group.page_tokens));
  }
  if (!spec.DropsRows() || sizing.max_step_tokens == 0) return;
  // The step's rows and the rows before them that its first query sees, wherever pages begin.
  const int64_t seen = std::min(spec.window.value_or(kMostRows), spec.chunk.value_or(kMostRows));
  const int64_t rows = seen - 1 + sizing.max_step_tokens;
  const int64_t pages = (rows + group.page_tokens - 2) / group.page_tokens + 1;
  if (pages <= (group.pages - 1) / sizing.max_sequences) group.pages = pages * sizing.max_sequences;
}

Status SizePages(const CacheSizing& sizing, CacheGroupPlan& group) {
  const CacheSpec& spec = group.spec;
  group.page_tokens = spec.page_tokens != 0     ? spec.page_tokens
                      : sizing.page_tokens != 0 ? sizing.page_tokens
                                                : PageTokensFor(spec.row_bytes);
  TN_RETURN_IF_ERROR(CheckPageTokens(group.page_tokens));
  TN_RETURN_IF_ERROR(Multiply(group.page_tokens, spec.row_bytes, group.page_bytes));
  group.page_bytes = RoundUp(group.page_bytes, Buffer::kAlignment);
  SetPageCounts(sizing, group);
  if (const int64_t most = std::max(group.pages, group.max_pages);
      most > std::numeric_limits<int32_t>::max()) {
    return DoesNotFit(
        fmt::format("the cache: {} pages of {} tokens, at most {} can be named; fix: "
                    "fewer cached tokens or larger pages",
                    most, group.page_tokens, std::numeric_limits<int32_t>::max()));
  }
  TN_RETURN_IF_ERROR(Multiply(group.pages, group.page_bytes, group.pool_bytes));
  // Entries are counted by 31 bits, sequences by 30: no product here wraps.
  const int64_t per_sequence =
      group.max_pages * PagePool::kBytesPerEntry + PagePool::kBytesPerSequence;
  TN_RETURN_IF_ERROR(Multiply(sizing.max_sequences, per_sequence, group.table_bytes));
  return Add(group.table_bytes, group.pages * PagePool::kBytesPerPage, group.table_bytes);
}

Status SizeGroup(const CacheSizing& sizing, CacheGroupPlan& group) {
  if (group.spec.kind == CacheKind::kState) {
    group.slot_bytes = RoundUp(group.spec.state_bytes, Buffer::kAlignment);
    group.slots = sizing.max_sequences + sizing.max_snapshots;
    TN_RETURN_IF_ERROR(Multiply(group.slots, group.slot_bytes, group.pool_bytes));
  } else {
    TN_RETURN_IF_ERROR(SizePages(sizing, group));
  }
  TN_RETURN_IF_ERROR(
      Multiply(static_cast<int64_t>(group.members.size()), group.pool_bytes, group.bytes));
  return Add(group.bytes, group.table_bytes, group.bytes);
}

// For tokens that are published: their number is bounded by the pages that hold their rows.
Status SizePrefixes(const CacheSizing& sizing, CachePlan& plan) {
  std::vector<PrefixTree::GroupSizes> groups;
  int64_t nodes = CeilDiv(sizing.tokens, kPrefixTokens) + sizing.max_sequences;
  for (const CacheGroupPlan& group : plan.groups) {
    if (group.spec.kind == CacheKind::kCross) return {};  // rows depend on the encoder's input, too
    if (group.spec.kind != CacheKind::kPagedRows) continue;
    groups.push_back({group.pages, group.page_tokens});
    if (!group.spec.DropsRows())
      nodes = std::min(nodes, group.pages * group.page_tokens / kPrefixTokens);
  }
  if (!sizing.prefix_reuse || plan.groups.empty()) return {};
  plan.prefix_nodes = std::min<int64_t>(nodes, std::numeric_limits<int32_t>::max());
  plan.prefix_bytes = PrefixTree::BytesFor(plan.prefix_nodes, groups);
  return Add(plan.bytes, plan.prefix_bytes, plan.bytes);
}

Status CheckSpec(std::span<const CacheSpec> specs, size_t i) {
  const CacheSpec& spec = specs[i];
  const auto error = [&](const std::string& what) {
    return UsageError(
        fmt::format("cache of layer {} ({}): {}", spec.layer, NameOf(spec.kind), what));
  };
  const auto sized = [](int64_t bytes) { return bytes > 0 && bytes <= kMostRowBytes; };
  if (IsPaged(spec.kind) && !sized(spec.row_bytes))
    return error(fmt::format("row_bytes = {}, allowed: 1..{}", spec.row_bytes, kMostRowBytes));
  if (spec.kind == CacheKind::kState && !sized(spec.state_bytes))
    return error(fmt::format("state_bytes = {}, allowed: 1..{}", spec.state_bytes, kMostRowBytes));
  for (const auto& [name, value] : {std::pair{"window", spec.window}, {"chunk", spec.chunk}}) {
    if (value && (*value < 1 || *value > kMostRows))
      return error(fmt::format("{} = {}, allowed: 1..{}", name, *value, kMostRows));
  }
  if (spec.kind != CacheKind::kSharedWith) return {};
  size_t owner = i;
  for (size_t steps = 0; specs[owner].kind == CacheKind::kSharedWith; ++steps) {
    const int next = specs[owner].shared_with;
    if (next < 0 || static_cast<size_t>(next) >= specs.size() || steps > specs.size()) {
      return error(
          fmt::format("shared_with = {} leads to no layer with rows of its own", spec.shared_with));
    }
    owner = static_cast<size_t>(next);
  }
  if (!IsPaged(specs[owner].kind)) {
    return error(fmt::format("shared_with = {} is {}, only paged rows can be shared",
                             spec.shared_with, NameOf(specs[owner].kind)));
  }
  const auto limits = [](const CacheSpec& c) {
    return fmt::format("window {}, chunk {}", c.window ? std::to_string(*c.window) : "none",
                       c.chunk ? std::to_string(*c.chunk) : "none");
  };
  if (limits(spec) != limits(specs[owner])) {
    return error(fmt::format("{}, but it reads the rows of layer {} ({}), which keeps no others",
                             limits(spec), specs[owner].layer, limits(specs[owner])));
  }
  return {};
}

Status CheckSizing(const CacheSizing& sizing) {
  const auto check = [](std::string_view name, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return Status();
    return UsageError(fmt::format("cache {} = {}, allowed: {}..{}", name, value, least, most));
  };
  TN_RETURN_IF_ERROR(check("tokens", sizing.tokens, 0, kMostRows));
  TN_RETURN_IF_ERROR(check("cross_tokens", sizing.cross_tokens, 0, kMostRows));
  TN_RETURN_IF_ERROR(check("max_sequences", sizing.max_sequences, 1, kMostSequences));
  TN_RETURN_IF_ERROR(check("max_sequence_tokens", sizing.max_sequence_tokens, 0, kMostRows));
  TN_RETURN_IF_ERROR(check("max_step_tokens", sizing.max_step_tokens, 0, kMostRows));
  return check("max_snapshots", sizing.max_snapshots, 0, kMostSequences);
}

}  // namespace

std::string_view NameOf(CacheKind kind) {
  switch (kind) {
    case CacheKind::kPagedRows:
      return "paged rows";
    case CacheKind::kState:
      return "state";
    case CacheKind::kCross:
      return "cross";
    case CacheKind::kSharedWith:
      return "shared";
    case CacheKind::kNone:
      return "none";
  }
  return "unknown";
}

std::string_view NameOf(KvLayout layout) {
  switch (layout) {
    case KvLayout::kNhd:
      return "NHD";
    case KvLayout::kHnd:
      return "HND";
    case KvLayout::kRow:
      return "row";
  }
  return "unknown";
}

int64_t CachePlan::BytesPerToken() const {
  int64_t bytes_per_token = 0;
  for (const CacheGroupPlan& group : groups) {
    if (group.spec.kind == CacheKind::kPagedRows)
      bytes_per_token += static_cast<int64_t>(group.members.size()) * group.spec.row_bytes;
  }
  return bytes_per_token;
}

bool CachePlan::HasStates() const {
  return std::any_of(groups.begin(), groups.end(),
                     [](const CacheGroupPlan& g) { return g.spec.kind == CacheKind::kState; });
}

int32_t PageTokensFor(int64_t row_bytes) {
  constexpr int64_t kTarget = int64_t{64} * 1024;
  int32_t tokens = kMinPageTokens;
  while (tokens < kMaxPageTokens && row_bytes < kTarget / tokens) tokens *= 2;
  return tokens;
}

Result<CachePlan> PlanCache(std::span<const CacheSpec> specs, const CacheSizing& sizing) {
  TN_RETURN_IF_ERROR(CheckSizing(sizing));
  CachePlan plan;
  for (size_t i = 0; i < specs.size(); ++i) {
    TN_RETURN_IF_ERROR(CheckSpec(specs, i));
    if (specs[i].kind == CacheKind::kNone || specs[i].kind == CacheKind::kSharedWith) continue;
    auto group = std::find_if(plan.groups.begin(), plan.groups.end(),
                              [&](const CacheGroupPlan& g) { return g.spec.SameGroup(specs[i]); });
    if (group == plan.groups.end())
      group = plan.groups.insert(group, CacheGroupPlan{.spec = specs[i], .members = {}});
    group->members.push_back(static_cast<int>(i));
  }
  for (CacheGroupPlan& group : plan.groups) {
    TN_RETURN_IF_ERROR(SizeGroup(sizing, group));
    TN_RETURN_IF_ERROR(Add(plan.bytes, group.bytes, plan.bytes));
  }
  TN_RETURN_IF_ERROR(SizePrefixes(sizing, plan));
  return plan;
}

size_t OwnerOf(std::span<const CacheSpec> specs, size_t i) {
  while (specs[i].kind == CacheKind::kSharedWith) i = static_cast<size_t>(specs[i].shared_with);
  return i;
}

}  // namespace tenon
