// Online attention with keys transposed tile by tile: the scores of sixteen keys are one vector, so
// that no dot product needs a reduction. Four queries (row, head) share what is loaded.
#include "tenon/kernels/attention_rules.h"
#include "tenon/kernels/cpu/cpu.h"
#include "tenon/kernels/cpu/elementwise.h"
#include "tenon/kernels/cpu/stored_rows.h"
#include "tenon/kernels/cpu/transpose.h"

namespace tenon::TN_ISA {
namespace {

constexpr int64_t kTile = kAttendTile;
constexpr int kHalves = kTile / kLanes;
constexpr int kQueries = kAttendQueries;
constexpr float kNone = -__builtin_inff();

// Where the tile lies: keys transposed, values as rows.
struct Tile {
  KeyRange keys;
  float* k_columns = nullptr;  // [k_width, kTile]
  const float* v[kTile];       // rows of values
  float* scores = nullptr;     // [kQueries, kTile]
};

// One query: a row of the step and a head of the group, with the keys of the tile that it sees.
struct Query {
  int64_t row = 0;
  int64_t head = 0;
  KeyRange seen;  // within the tile, from its first key
  const float* q = nullptr;
  float* state = nullptr;
  float* scores = nullptr;  // [kTile], while a tile is added
};

// Sixteen key rows -> columns [k_width][kTile], at lane `lane`.
template <typename Rows>
TN_INLINE void TransposeKeys(const RowView* rows, int64_t k_width, float* columns) {
  for (int64_t d = 0; d < k_width; d += kLanes) {
    F32 block[kLanes];
    const int64_t width = k_width - d < kLanes ? k_width - d : kLanes;
    for (int64_t j = 0; j < kLanes; ++j) {
      block[j] = width == kLanes ? Rows::At(rows[j], d) : Rows::First(rows[j], d, width);
    }
    Transpose(block);
    for (int64_t c = 0; c < width; ++c) Store(columns + (d + c) * kTile, block[c]);
  }
}

template <typename Rows>
TN_INLINE const float* ValueFloats(const AttendArgs& a, int64_t j, float* buffer) {
  const RowView row = ValueAt(a, j);
  if constexpr (Rows::kBits == 32) return reinterpret_cast<const float*>(row.codes);
  DecodeRowOf<Rows>(row, buffer, a.v_width);
  return buffer;
}

TN_INLINE void PrefetchRow(const RowView& row, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(row.codes + i);
  if (row.scales != nullptr) __builtin_prefetch(row.scales);
}

// Asks for what is needed while the tile's keys are transposed: its values, and the next tile's
// keys. A step has streamed all weights through the caches since these were last read.
template <typename Rows>
TN_INLINE void PrefetchAround(const AttendArgs& a, KeyRange keys, int64_t end) {
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    PrefetchRow(ValueAt(a, j), Rows::kBits * a.v_width / 8);
  }
  const int64_t next_end = keys.end + kTile < end ? keys.end + kTile : end;
  for (int64_t j = keys.end; j < next_end; ++j) {
    PrefetchRow(KeyAt(a, j), Rows::kBits * a.k_width / 8);
  }
}

template <typename Rows>
void LoadTile(const AttendArgs& a, float* v_buffer, Tile& tile) {
  RowView rows[kTile];
  for (int64_t t = 0; t < kTile; ++t) {
    // Lanes without a key repeat the first: their scores are masked.
    const int64_t j = tile.keys.begin + t < tile.keys.end ? tile.keys.begin + t : tile.keys.begin;
    rows[t] = KeyAt(a, j);
    tile.v[t] = ValueFloats<Rows>(a, j, v_buffer + t * a.v_width);
  }
  for (int h = 0; h < kHalves; ++h) {
    TransposeKeys<Rows>(rows + h * kLanes, a.k_width, tile.k_columns + h * kLanes);
  }
}

// q . k for all keys of the tile, the second part of the keys included -> tile.scores.
template <int Q>
TN_INLINE void Dots(const AttendArgs& a, const Tile& tile, const Query* queries) {
  F32 dots[2][Q][kHalves] = {};  // even and odd columns: chains short enough for few queries
  const auto add = [&](int chain, int64_t d) __attribute__((always_inline)) {
    F32 k[kHalves];
    for (int h = 0; h < kHalves; ++h) k[h] = Load(tile.k_columns + d * kTile + h * kLanes);
    for (int i = 0; i < Q; ++i) {
      const F32 q = All(queries[i].q[d]);
      for (int h = 0; h < kHalves; ++h) dots[chain][i][h] = Fma(q, k[h], dots[chain][i][h]);
    }
  };
  int64_t d = 0;
  for (; d + 2 <= a.k_width; d += 2) {
    add(0, d);
    add(1, d + 1);
  }
  if (d < a.k_width) add(0, d);
  for (int i = 0; i < Q; ++i) {
    for (int h = 0; h < kHalves; ++h) {
      Store(tile.scores + i * kTile + h * kLanes, dots[0][i][h] + dots[1][i][h]);
    }
  }
}

// Adds q2 . k2 of one query: the key's part that all heads share, dense.
void AddSecondPart(const AttendArgs& a, const Tile& tile, const Query& query, float* scores) {
  const KeyValueSource& s = a.source;
  const float* q = query.q + a.k_width;
  for (int64_t t = query.seen.begin; t < query.seen.end; ++t) {
    const float* k = s.k2 + (tile.keys.begin + t) * s.k2_slot_stride;
    F32 sum = {};
    int64_t i = 0;
    for (; i + kLanes <= s.k2_width; i += kLanes) sum = Fma(Load(q + i), Load(k + i), sum);
    if (i < s.k2_width) {
      sum = Fma(LoadFirst(q + i, s.k2_width - i), LoadFirst(k + i, s.k2_width - i), sum);
    }
    scores[t] += Sum(sum);
  }
}

// Dots -> scores, keys that the query does not see -> -inf.
TN_INLINE void Score(const AttendArgs& a, const Tile& tile, const Query& query, float* scores) {
  const ScoreRules& rules = *a.rules;
  if (a.source.k2_width > 0) AddSecondPart(a, tile, query, scores);
  const bool plain =
      rules.softcap == 0 && rules.alibi == nullptr && rules.bias == nullptr && a.mask == nullptr;
  if (!plain) {
    for (int64_t t = query.seen.begin; t < query.seen.end; ++t) {
      scores[t] = ScoreOf(a, scores[t], query.row, query.head, tile.keys.begin + t);
    }
  }
  const I32 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const float scale = plain ? rules.scale : 1.0f;
  for (int h = 0; h < kHalves; ++h) {
    const I32 at = lane + static_cast<int32_t>(h * kLanes);
    const I32 seen = (at >= static_cast<int32_t>(query.seen.begin)) &
                     (at < static_cast<int32_t>(query.seen.end));
    const F32 value = Load(scores + h * kLanes) * scale;
    Store(scores + h * kLanes, seen ? value : All(kNone));
  }
}

// The maximum of the scores and of the state; a NaN that nothing else outweighs is left in the
// state's total, for the comparison passes over it.
TN_INLINE float NewMaximum(const Query& query, int64_t v_width) {
  F32 top = All(kNone);
  for (int h = 0; h < kHalves; ++h) top = Max(Load(query.scores + h * kLanes), top);
  const float of_tile = Highest(top);
  const float before = query.state[v_width];
  const float highest = of_tile > before ? of_tile : before;
  if (highest != kNone) return highest;
  F32 unordered = {};
  for (int h = 0; h < kHalves; ++h) {
    const F32 v = Load(query.scores + h * kLanes);
    unordered += v != v ? All(1.0f) : F32{};
  }
  if (Sum(unordered) > 0) query.state[v_width + 1] = __builtin_nanf("");
  return highest;
}

// Scores -> probabilities relative to the new maximum, and the factors for the old sums; the
// states' maxima and totals are brought up to date. Nothing visible so far: they stay as they are.
template <int Q>
TN_INLINE void Weigh(const Query* queries, int64_t v_width, float* keep) {
  float highest[Q];
  alignas(64) float lowered[kLanes] = {};  // the old maximum less the new one
  for (int i = 0; i < Q; ++i) {
    highest[i] = NewMaximum(queries[i], v_width);
    if (highest[i] != kNone) lowered[i] = queries[i].state[v_width] - highest[i];
  }
  alignas(64) float factors[kLanes];
  Store(factors, Exp(Load(lowered)));
  for (int i = 0; i < Q; ++i) {
    keep[i] = factors[i];
    float* scores = queries[i].scores;
    if (highest[i] == kNone) {
      for (int h = 0; h < kHalves; ++h) Store(scores + h * kLanes, F32{});
      continue;
    }
    F32 sum = {};
    for (int h = 0; h < kHalves; ++h) {
      const F32 p = Exp(Load(scores + h * kLanes) - highest[i]);
      Store(scores + h * kLanes, p);
      sum += p;
    }
    float* maximum = queries[i].state + v_width;
    maximum[0] = highest[i];
    maximum[1] = maximum[1] * keep[i] + Sum(sum);
  }
}

// state = state * keep + p . v over the keys of `range`, for N vectors of columns from `column`.
template <int Q, int N>
TN_INLINE void AddValues(const Tile& tile, const Query* queries, const float* keep, KeyRange range,
                         int64_t column) {
  F32 sums[Q][N];
  for (int i = 0; i < Q; ++i) {
    for (int n = 0; n < N; ++n) {
      sums[i][n] = Load(queries[i].state + column + n * kLanes) * keep[i];
    }
  }
  for (int64_t t = range.begin; t < range.end; ++t) {
    F32 v[N];
    for (int n = 0; n < N; ++n) v[n] = Load(tile.v[t] + column + n * kLanes);
    for (int i = 0; i < Q; ++i) {
      const F32 p = All(queries[i].scores[t]);
      for (int n = 0; n < N; ++n) sums[i][n] = Fma(p, v[n], sums[i][n]);
    }
  }
  for (int i = 0; i < Q; ++i) {
    for (int n = 0; n < N; ++n) Store(queries[i].state + column + n * kLanes, sums[i][n]);
  }
}

// All columns of whole vectors.
template <int Q>
TN_INLINE void AddColumns(const AttendArgs& a, const Tile& tile, const Query* queries,
                          const float* keep, KeyRange range) {
  constexpr int kColumns = 4;
  int64_t column = 0;
  for (; column + kColumns * kLanes <= a.v_width; column += kColumns * kLanes) {
    AddValues<Q, kColumns>(tile, queries, keep, range, column);
  }
  for (; column + kLanes <= a.v_width; column += kLanes) {
    AddValues<Q, 1>(tile, queries, keep, range, column);
  }
}

void AddLastColumns(const AttendArgs& a, const Tile& tile, const Query& query, float keep) {
  const int64_t rest = a.v_width % kLanes;
  const int64_t column = a.v_width - rest;
  F32 sum = LoadFirst(query.state + column, rest) * keep;
  for (int64_t t = query.seen.begin; t < query.seen.end; ++t) {
    sum = Fma(All(query.scores[t]), LoadFirst(tile.v[t] + column, rest), sum);
  }
  StoreFirst(query.state + column, sum, rest);
}

// Keys that all queries see.
template <int Q>
TN_INLINE KeyRange SeenByAll(const Query* queries) {
  KeyRange all = queries[0].seen;
  for (int i = 1; i < Q; ++i) {
    const KeyRange& seen = queries[i].seen;
    all.begin = seen.begin > all.begin ? seen.begin : all.begin;
    all.end = seen.end < all.end ? seen.end : all.end;
  }
  if (all.end < all.begin) all.end = all.begin;
  return all;
}

// Each query adds its keys in their order, whatever the others see: those before what all see, that
// together, those after it.
template <int Q>
TN_INLINE void AddTile(const AttendArgs& a, const Tile& tile, Query* queries) {
  float keep[Q];
  for (int i = 0; i < Q; ++i) queries[i].scores = tile.scores + i * kTile;
  Dots<Q>(a, tile, queries);
  for (int i = 0; i < Q; ++i) {
    Score(a, tile, queries[i], queries[i].scores);
  }
  Weigh<Q>(queries, a.v_width, keep);
  for (int i = 0; i < Q && a.v_width % kLanes != 0; ++i) {
    AddLastColumns(a, tile, queries[i], keep[i]);
  }
  const KeyRange common = SeenByAll<Q>(queries);
  for (int i = 0; i < Q; ++i) {
    const KeyRange& seen = queries[i].seen;
    if (seen.begin >= common.begin) continue;
    AddColumns<1>(a, tile, queries + i, keep + i,
                  {seen.begin, common.begin < seen.end ? common.begin : seen.end});
    keep[i] = 1.0f;
  }
  AddColumns<Q>(a, tile, queries, keep, common);
  constexpr float kOnce = 1.0f;
  for (int i = 0; i < Q; ++i) {
    const KeyRange& seen = queries[i].seen;
    const int64_t begin = common.end > seen.begin ? common.end : seen.begin;
    if (begin < seen.end && begin >= common.begin) {
      AddColumns<1>(a, tile, queries + i, &kOnce, {begin, seen.end});
    }
  }
}

Query QueryOf(const AttendArgs& a, const AttendState& target, const Tile& tile, int64_t index) {
  const int64_t row = index / a.group;
  const int64_t head = index % a.group;
  KeyRange seen = VisibleKeys(a, row);
  seen.begin = seen.begin > tile.keys.begin ? seen.begin : tile.keys.begin;
  seen.end = seen.end < tile.keys.end ? seen.end : tile.keys.end;
  return {row,
          head,
          {seen.begin - tile.keys.begin, seen.end - tile.keys.begin},
          a.q + row * a.q_row_stride + head * a.q_head_stride,
          target.state + row * target.row_stride + head * target.head_stride};
}

// `count` queries together: what each gives is the same whatever the others are.
void AddTiles(const AttendArgs& a, const Tile& tile, Query* queries, int count) {
  static_assert(kQueries == 4);
  switch (count) {
    case 1:
      return AddTile<1>(a, tile, queries);
    case 2:
      return AddTile<2>(a, tile, queries);
    case 3:
      return AddTile<3>(a, tile, queries);
    case 4:
      return AddTile<4>(a, tile, queries);
    default:
      return;
  }
}

void AttendTile(const AttendArgs& a, const AttendState& target, const Tile& tile) {
  const int64_t count = a.rows * a.group;
  Query queries[kQueries];
  int waiting = 0;
  const auto flush = [&] {
    AddTiles(a, tile, queries, waiting);
    waiting = 0;
  };
  for (int64_t i = 0; i < count; ++i) {
    const Query query = QueryOf(a, target, tile, i);
    if (query.seen.begin >= query.seen.end) continue;
    if (waiting == kQueries) flush();
    queries[waiting++] = query;
  }
  flush();
}

template <typename Rows>
void OnlineOver(const AttendArgs& a, const AttendState& target, float* scratch) {
  Tile tile;
  tile.k_columns = scratch;
  float* v_buffer = scratch + kTile * a.k_width;
  tile.scores = v_buffer + kTile * a.v_width;
  const KeyRange all = ClearStates(a, target);
  // Tiles start at multiples of their size, so that a row's sums do not depend on the other rows.
  for (int64_t begin = all.begin / kTile * kTile; begin < all.end; begin += kTile) {
    tile.keys = {begin > all.begin ? begin : all.begin,
                 begin + kTile < all.end ? begin + kTile : all.end};
    PrefetchAround<Rows>(a, tile.keys, all.end);
    LoadTile<Rows>(a, v_buffer, tile);
    AttendTile(a, target, tile);
  }
}

void Online(const AttendArgs& a, const AttendState& target, float* scratch) {
  WithRows(a.source.dtype, [&](auto rows) { OnlineOver<decltype(rows)>(a, target, scratch); });
}

void StoreRow(const float* src, const StoredRow& row, int64_t n) { EncodeRow(src, row, n); }

void LoadRow(const StoredRow& row, float* dst, int64_t n) {
  const RowView view{row.dtype, row.codes, row.scales, row.scale};
  WithRows(row.dtype, [&](auto rows) { DecodeRowOf<decltype(rows)>(view, dst, n); });
}

// into = use(into, part) for n numbers, which need not be whole vectors; part may be null.
template <typename Use>
TN_INLINE void ForState(const float* from, const float* part, float* into, int64_t n, Use use) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Store(into + i, use(Load(from + i), part == nullptr ? F32{} : Load(part + i)));
  }
  if (i == n) return;
  StoreFirst(into + i,
             use(LoadFirst(from + i, n - i), part == nullptr ? F32{} : LoadFirst(part + i, n - i)),
             n - i);
}

void Fold(float* into, const float* part, int64_t v_width) {
  float* stats = into + v_width;
  const float* part_stats = part + v_width;
  // The maximum itself adds 1 to a sum: only parts without visible keys have 0.
  if (part_stats[1] == 0) return;
  if (stats[1] == 0) {
    __builtin_memcpy(into, part, static_cast<size_t>(v_width + 2) * sizeof(float));
    return;
  }
  const float top = stats[0] > part_stats[0] ? stats[0] : part_stats[0];
  const float w_into = Exp(All(stats[0] - top))[0];
  const float w_part = Exp(All(part_stats[0] - top))[0];
  ForState(into, part, into, v_width, [&](F32 a, F32 b) { return a * w_into + b * w_part; });
  stats[0] = top;
  stats[1] = w_into * stats[1] + w_part * part_stats[1];
}

void Finish(const float* state, const float* sink, int64_t v_width, float* out, float* stats) {
  float top = state[v_width];
  float total = state[v_width + 1];
  float keep = 1;
  if (sink != nullptr && *sink != -__builtin_inff()) {
    const float raised = *sink > top ? *sink : top;
    keep = Exp(All(top - raised))[0];
    total = total * keep + Exp(All(*sink - raised))[0];
    top = raised;
  }
  const float factor = total == 0 ? 0.0f : keep / total;
  // Without visible keys the sums are nothing to be scaled.
  ForState(state, nullptr, out, v_width,
           [&](F32 v, F32) { return total == 0 ? F32{} : v * factor; });
  if (stats == nullptr) return;
  stats[0] = top;
  stats[1] = total;
}

}  // namespace

void AddAttention(AttentionKernels& attention) {
  attention.online = Online;
  attention.fold = Fold;
  attention.finish = Finish;
  attention.store = StoreRow;
  attention.load = LoadRow;
}

}  // namespace tenon::TN_ISA
