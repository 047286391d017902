// Attention of many queries in bf16: scores and weighted values are products of packed blocks of
// tokens with panels, as in the matmuls of many tokens (matmul_kernels.h). Product says how an
// instruction set packs and multiplies. For the sources of instruction sets that have bf16.
// Thread-safe.
#pragma once

#include "tenon/kernels/attention_rules.h"
#include "tenon/kernels/cpu/product.h"
#include "tenon/kernels/cpu/stored_rows.h"
#include "tenon/kernels/cpu/transpose.h"

#if defined(__AVX512BF16__)

namespace tenon::TN_ISA {
namespace {

constexpr int64_t kBlockKeys = kAttendBlockKeys;
constexpr float kHidden = -__builtin_inff();
static_assert(kAttendBlockStates >= kAttendBlockQueries);

// Product:
//   kTokens                          tokens of a block
//   BlockBytes(cols)
//   Pack(x, x_stride, tokens, cols, block)
//   Panel(cols)                      the layout of a panel of so many columns
//   Multiply(block, cols, panel, panel_cols, out): all kTokens of the block, the first columns of a
//                                    panel that has panel_cols
//   MultiplySum<count>(terms, cols, out): the sum of several products
//   a constructor and a destructor around all of it
// The parts of the scratch memory.
struct BlockScratch {
  std::byte* queries = nullptr;   // packed, rounded to bf16; then what the rounding left
  std::byte* weights = nullptr;   // packed, of a block of queries
  std::byte* keys = nullptr;      // panels, likewise
  std::byte* values = nullptr;    // panels
  float* scores = nullptr;        // of a block of queries: [kTokens, kBlockKeys]
  int64_t query_bytes = 0;        // of the packed queries
  int64_t key_panel_bytes = 0;    // of 64 keys
  int64_t key_bytes = 0;          // of all key panels
  int64_t value_panel_bytes = 0;  // of 64 columns
};

constexpr int64_t PanelCols(int64_t cols) { return (cols + 31) / 32 * 32; }

template <typename Product>
BlockScratch ScratchOf(const AttendArgs& a, std::byte* scratch) {
  constexpr int64_t kBlocks = (kAttendBlockQueries + Product::kTokens - 1) / Product::kTokens;
  BlockScratch s;
  s.key_panel_bytes = kPanelRows * 2 * PanelCols(a.k_width);
  s.value_panel_bytes = kPanelRows * 2 * kBlockKeys;
  const auto take = [&](int64_t bytes) {
    std::byte* part = scratch;
    scratch += (bytes + 63) / 64 * 64;
    return part;
  };
  s.query_bytes = kBlocks * Product::BlockBytes(a.k_width);
  s.queries = take(2 * s.query_bytes);
  s.key_bytes = kBlockKeys / kPanelRows * s.key_panel_bytes;
  s.weights = take(Product::BlockBytes(kBlockKeys));
  s.keys = take(2 * s.key_bytes);
  s.values = take((a.v_width + kPanelRows - 1) / kPanelRows * s.value_panel_bytes);
  s.scores = reinterpret_cast<float*>(take(4 * BlocksScoreFloats(a.k_width)));
  return s;
}

// Calls use(block index, first query, queries) for all blocks.
template <typename Product, typename Use>
TN_INLINE void ForBlocks(int64_t queries, Use use) {
  for (int64_t i = 0; i < queries; i += Product::kTokens) {
    use(i / Product::kTokens, i, queries - i < Product::kTokens ? queries - i : Product::kTokens);
  }
}

// What rounding to bf16 takes away.
TN_INLINE F32 Lost(F32 v) {
  return v - FromBf16(reinterpret_cast<Words16>(_mm512_cvtneps_pbh(reinterpret_cast<__m512>(v))));
}

template <typename Product>
void PackQueries(const AttendArgs& a, const BlockScratch& s) {
  const int64_t queries = a.rows * a.group;
  ForBlocks<Product>(queries, [&](int64_t block, int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {  // the scores are not needed yet
      const int64_t row = (first + i) / a.group;
      const int64_t head = (first + i) % a.group;
      __builtin_memcpy(s.scores + i * a.k_width,
                       a.q + row * a.q_row_stride + head * a.q_head_stride,
                       static_cast<size_t>(a.k_width) * sizeof(float));
    }
    std::byte* packed = s.queries + block * Product::BlockBytes(a.k_width);
    Product::Pack(s.scores, a.k_width, count, a.k_width, packed);
    const int64_t n = count * a.k_width;
    for (int64_t i = 0; i < n; i += kLanes) Store(s.scores + i, Lost(Load(s.scores + i)));
    Product::Pack(s.scores, a.k_width, count, a.k_width, packed + s.query_bytes);
  });
}

TN_INLINE F32 Pairs(F32 low, F32 high) {
  return reinterpret_cast<F32>(
      _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(high), reinterpret_cast<__m512>(low)));
}

// Numbers [c, c + 32) of a stored row as bf16, of which the first n > 0 exist; or what that takes
// away.
template <typename Rows, bool kLost = false>
TN_INLINE F32 StoredPairs(const RowView& row, int64_t c, int64_t n) {
  if constexpr (std::is_same_v<Rows, RowsBf16> && !kLost) {
    const std::byte* p = row.codes + 2 * c;
    if (n >= 32) return LoadAs<F32>(p);
    return reinterpret_cast<F32>(_mm512_maskz_loadu_epi16((uint32_t{1} << n) - 1, p));
  }
  F32 low = n >= kLanes ? Rows::At(row, c) : Rows::First(row, c, n);
  F32 high = n >= 32      ? Rows::At(row, c + kLanes)
             : n > kLanes ? Rows::First(row, c + kLanes, n - kLanes)
                          : F32{};
  if constexpr (kLost) {
    low = Lost(low);
    high = Lost(high);
  }
  return Pairs(low, high);
}

// Do bf16 numbers miss something of the keys?
TN_INLINE bool RoundsKeys(const KeyValueSource& source) {
  if (source.dtype == DType::kBF16) return false;
  const bool is_narrow = source.dtype == DType::kF8E4M3 || source.dtype == DType::kF4E2M1;
  return !is_narrow || source.k_scale != 1;
}

// Keys [first, first + 64) of the source as the rows of a panel; those outside `keys` repeat one of
// it: their scores are not used.
template <typename Rows, bool kLost>
void ExpandKeys(const AttendArgs& a, KeyRange keys, int64_t first, PanelLayout layout,
                std::byte* panel) {
  auto* out = reinterpret_cast<float*>(panel);  // pairs, as bit patterns
  for (int64_t v = 0; v < kPanelRows; v += kLanes) {
    RowView rows[kLanes];
    for (int64_t r = 0; r < kLanes; ++r) {
      int64_t j = first + v + r;
      j = j < keys.begin ? keys.begin : j;
      j = j < keys.end ? j : keys.end - 1;
      rows[r] = KeyAt(a, j);
    }
    for (int64_t c = 0; c < a.k_width; c += 32) {
      F32 block[kLanes];
      for (int64_t r = 0; r < kLanes; ++r) {
        block[r] = StoredPairs<Rows, kLost>(rows[r], c, a.k_width - c);
      }
      Transpose(block);
      float* to = out + c / 2 * layout.pair + v / kLanes * layout.vector;
      for (int64_t p = 0; p < kLanes; ++p) Store(to + p * layout.pair, block[p]);
    }
  }
}

// Words of two rows of 32 numbers each, one after the other: pairs of columns 0-15, then 16-31.
TN_INLINE void Interleave(F32 even, F32 odd, F32* pairs) {
  const auto table = [](int first) {
    return _mm512_set_epi16(first + 47, first + 15, first + 46, first + 14, first + 45, first + 13,
                            first + 44, first + 12, first + 43, first + 11, first + 42, first + 10,
                            first + 41, first + 9, first + 40, first + 8, first + 39, first + 7,
                            first + 38, first + 6, first + 37, first + 5, first + 36, first + 4,
                            first + 35, first + 3, first + 34, first + 2, first + 33, first + 1,
                            first + 32, first);
  };
  const auto a = reinterpret_cast<__m512i>(even);
  const auto b = reinterpret_cast<__m512i>(odd);
  pairs[0] = reinterpret_cast<F32>(_mm512_permutex2var_epi16(a, table(0), b));
  pairs[1] = reinterpret_cast<F32>(_mm512_permutex2var_epi16(a, table(16), b));
}

// Values of keys [first, first + cols) as panels of 64 of their columns: pairs of keys. Keys
// outside `keys` count as zero.
template <typename Rows>
void ExpandValues(const AttendArgs& a, KeyRange keys, int64_t first, int64_t cols,
                  PanelLayout layout, const BlockScratch& s) {
  for (int64_t j = first; j < first + cols; j += 2) {
    RowView rows[2];
    for (int64_t i = 0; i < 2; ++i) {
      const bool exists = j + i >= keys.begin && j + i < keys.end;
      rows[i] = exists ? ValueAt(a, j + i) : RowView{};
    }
    for (int64_t c = 0; c < a.v_width; c += 32) {
      const auto load = [&](const RowView& row) {
        return row.codes == nullptr ? F32{} : StoredPairs<Rows>(row, c, a.v_width - c);
      };
      F32 pairs[2];
      Interleave(load(rows[0]), load(rows[1]), pairs);
      auto* out = reinterpret_cast<float*>(s.values + c / kPanelRows * s.value_panel_bytes) +
                  (j - first) / 2 * layout.pair + c % kPanelRows / kLanes * layout.vector;
      Store(out, pairs[0]);
      Store(out + layout.vector, pairs[1]);
    }
  }
}

// 2^t for t <= 0 to 2e-6 of itself, which bf16 does not see: a polynomial on [-1/2, 1/2] times a
// power of two. NaN stays.
TN_INLINE __m512 PowerOfTwo(__m512 t) {
  t = _mm512_max_ps(_mm512_set1_ps(-200.0f), t);  // the second operand where it is NaN
  const __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 r = _mm512_sub_ps(t, n);
  const auto add = [&](__m512 p, float c) { return _mm512_fmadd_ps(p, r, _mm512_set1_ps(c)); };
  __m512 p = add(_mm512_set1_ps(1.339887440e-3f), 9.618437357e-3f);
  p = add(add(add(p, 5.550332548e-2f), 2.402264791e-1f), 6.931471825e-1f);
  return _mm512_scalef_ps(add(p, 1.0f), n);
}

// The lanes of vector i that lie in [begin, end).
TN_INLINE __mmask16 LanesIn(int64_t i, int64_t begin, int64_t end) {
  const auto below = [&](int64_t limit) -> uint32_t {
    const int64_t n = limit - i;
    return n >= kLanes ? 0xFFFF : n <= 0 ? 0 : (1u << n) - 1;
  };
  return static_cast<__mmask16>(below(end) & ~below(begin));
}

// Calls use(i, lanes that lie in [begin, end)) for the vectors of which some do; all lanes are a
// constant. Of begin < end.
template <typename Use>
TN_INLINE void ForLanesIn(int64_t begin, int64_t end, Use use) {
  constexpr __mmask16 kAll = 0xFFFF;
  int64_t i = begin / kLanes * kLanes;
  if (i < begin) {
    use(i, LanesIn(i, begin, end));
    i += kLanes;
  }
  for (; i + kLanes <= end; i += kLanes) use(i, kAll);
  if (i < end) use(i, LanesIn(i, begin, end));
}
TN_INLINE void ClearOutside(int64_t begin, int64_t end, int64_t cols, float* scores) {
  for (int64_t i = 0; i + kLanes <= begin; i += kLanes) Store(scores + i, F32{});
  for (int64_t i = (end + kLanes - 1) / kLanes * kLanes; i < cols; i += kLanes) {
    Store(scores + i, F32{});
  }
}

// Scores to weights relative to a maximum: 2^(score * factor - offset).
struct Exponents {
  TN_INLINE Exponents(float scale, float highest)
      : factor(_mm512_set1_ps(scale * kLog2E)), offset(_mm512_set1_ps(highest * kLog2E)) {}
  TN_INLINE __m512 WeightOf(__m512 score) const {
    return PowerOfTwo(_mm512_fmsub_ps(score, factor, offset));
  }
  static constexpr float kLog2E = 1.44269504088896341f;
  __m512 factor, offset;
};

// The state's maximum is `highest` from now on: its sums shrink accordingly; `sum` is added.
TN_INLINE void AddToState(float highest, __m512 sum, int64_t v_width, float* state) {
  float* maximum = state + v_width;
  if (highest != maximum[0]) {
    const float keep = Exp(All(maximum[0] - highest))[0];
    maximum[0] = highest;
    maximum[1] *= keep;
    int64_t c = 0;
    for (; c + kLanes <= v_width; c += kLanes) Store(state + c, Load(state + c) * keep);
    for (; c < v_width; ++c) state[c] *= keep;
  }
  maximum[1] += _mm512_reduce_add_ps(sum);
}

// A query and the keys [begin, end) of a block that it sees.
struct Seen {
  int64_t row = 0, head = 0;
  int64_t begin = 0, end = 0;
};

// Weights of a query that sees all keys of a block: nothing is masked, scores are read once. False,
// and nothing has happened: all scores are -inf so far, or no numbers.
TN_INLINE bool WeighWhole(float scale, int64_t v_width, float* scores, float* state) {
  constexpr int kVectors = kBlockKeys / kLanes;
  __m512 v[kVectors];
  for (int i = 0; i < kVectors; ++i) v[i] = _mm512_load_ps(scores + i * kLanes);
  __m512 top[2] = {v[0], v[1]};
  for (int i = 2; i < kVectors; ++i) top[i % 2] = _mm512_max_ps(top[i % 2], v[i]);
  const float of_block = _mm512_reduce_max_ps(_mm512_max_ps(top[0], top[1])) * scale;
  const float before = state[v_width];
  const float highest = of_block > before ? of_block : before;
  if (highest == kHidden) return false;
  const Exponents exponents(scale, highest);
  __m512 sum[2] = {};
  for (int i = 0; i < kVectors; ++i) {
    const __m512 weight = exponents.WeightOf(v[i]);
    _mm512_store_ps(scores + i * kLanes, weight);
    sum[i % 2] = _mm512_add_ps(sum[i % 2], weight);
  }
  AddToState(highest, _mm512_add_ps(sum[0], sum[1]), v_width, state);
  return true;
}

// Weights of any query; those of keys in [0, cols) that it does not see are zero.
TN_INLINE void WeighSome(float scale, const Seen& seen, int64_t cols, int64_t v_width,
                         float* scores, float* state) {
  const int64_t begin = seen.begin;
  const int64_t end = seen.end;
  if (begin >= end) return ClearOutside(cols, cols, cols, scores);
  ClearOutside(begin, end, cols, scores);
  __m512 top = _mm512_set1_ps(kHidden);
  ForLanesIn(
      begin, end, [&](int64_t i, __mmask16 shown) __attribute__((always_inline)) {
        top = _mm512_mask_max_ps(top, shown, top, _mm512_load_ps(scores + i));
      });
  float* maximum = state + v_width;
  const float of_block = _mm512_reduce_max_ps(top) * scale;
  const float highest = of_block > maximum[0] ? of_block : maximum[0];
  if (highest == kHidden) {  // nothing to be seen so far, or numbers that are none
    ForLanesIn(begin, end, [&](int64_t i, __mmask16 shown) {
      const __m512 score = _mm512_load_ps(scores + i);
      if (_mm512_mask_cmp_ps_mask(shown, score, score, _CMP_UNORD_Q) != 0) {
        maximum[1] = __builtin_nanf("");
      }
      _mm512_store_ps(scores + i, _mm512_setzero_ps());
    });
    return;
  }
  const Exponents exponents(scale, highest);
  __m512 sum = _mm512_setzero_ps();
  ForLanesIn(
      begin, end, [&](int64_t i, __mmask16 shown) __attribute__((always_inline)) {
        const __m512 score = _mm512_load_ps(scores + i);
        const __m512 weight = _mm512_maskz_mov_ps(shown, exponents.WeightOf(score));
        _mm512_store_ps(scores + i, weight);
        sum = _mm512_add_ps(sum, weight);
      });
  AddToState(highest, sum, v_width, state);
}

// Scores of keys [first, first + cols) to weights relative to the query's new maximum.
TN_INLINE void Weigh(const AttendArgs& a, const Seen& seen, int64_t first, int64_t cols,
                     float* scores, float* state) {
  const ScoreRules& rules = *a.rules;
  const bool plain =
      rules.softcap == 0 && rules.alibi == nullptr && rules.bias == nullptr && rules.scale > 0;
  if (!plain) {
    for (int64_t j = seen.begin; j < seen.end; ++j) {
      scores[j] = ScoreOf(a, scores[j], seen.row, seen.head, first + j);
    }
  }
  const float scale = plain ? rules.scale : 1.0f;
  const bool whole = seen.begin == 0 && seen.end == kBlockKeys;
  if (whole && WeighWhole(scale, a.v_width, scores, state)) return;
  WeighSome(scale, seen, cols, a.v_width, scores, state);
}

// Keys that a block of `count` queries from `query` on sees, of `keys`.
TN_INLINE KeyRange SeenBy(const AttendArgs& a, KeyRange keys, int64_t query, int64_t count) {
  // Later rows see later keys: the first and the last row bound what all of them see.
  const KeyRange first = VisibleKeys(a, query / a.group);
  const KeyRange last = VisibleKeys(a, (query + count - 1) / a.group);
  return {first.begin > keys.begin ? first.begin : keys.begin,
          last.end < keys.end ? last.end : keys.end};
}

// What a block of queries does with keys [first, first + kBlockKeys): their panels are in scratch.
// Scores and weights never leave L1.
template <typename Product>
TN_INLINE void AddToBlock(const AttendArgs& a, const AttendState& target, const BlockScratch& s,
                          KeyRange keys, int64_t first, int64_t query, int64_t count) {
  const KeyRange seen = SeenBy(a, keys, query, count);
  if (seen.begin >= seen.end) return;
  const bool rounds = RoundsKeys(a.source);
  const std::byte* q = s.queries + query / Product::kTokens * Product::BlockBytes(a.k_width);
  for (int64_t c = (seen.begin - first) / kPanelRows * kPanelRows; c < seen.end - first;
       c += kPanelRows) {
    const std::byte* panel = s.keys + c / kPanelRows * s.key_panel_bytes;
    const ProductOut out = {s.scores + c, kBlockKeys, Product::kTokens, kPanelRows};
    const ProductTerm terms[] = {{q + s.query_bytes, panel}, {q, panel}, {q, panel + s.key_bytes}};
    if (rounds) {
      Product::template MultiplySum<3>(terms, a.k_width, out);
    } else {
      Product::template MultiplySum<2>(terms, a.k_width, out);
    }
  }
  const int64_t cols = PanelCols(seen.end - first);
  Seen at = {query / a.group, query % a.group, 0, 0};
  for (int64_t i = 0; i < count; ++i) {
    if (i == 0 || at.head == 0) {
      const KeyRange own = VisibleKeys(a, at.row);
      at.begin = (own.begin > keys.begin ? own.begin : keys.begin) - first;
      at.end = (own.end < keys.end ? own.end : keys.end) - first;
    }
    Weigh(a, at, first, cols, s.scores + i * kBlockKeys,
          target.state + (query + i) * target.head_stride);
    if (++at.head == a.group) {
      at.head = 0;
      ++at.row;
    }
  }
  Product::Pack(s.scores, kBlockKeys, count, cols, s.weights);
  for (int64_t c = 0; c < a.v_width; c += kPanelRows) {
    Product::Multiply(
        s.weights, cols, s.values + c / kPanelRows * s.value_panel_bytes, kBlockKeys,
        {target.state + query * target.head_stride + c, target.head_stride, Product::kTokens,
         a.v_width - c < kPanelRows ? a.v_width - c : kPanelRows, nullptr, true});
  }
}

// Panels of keys [first, first + kBlockKeys), of which `keys` exist, and of their values.
template <typename Product, typename Rows>
void ExpandBlock(const AttendArgs& a, const BlockScratch& s, KeyRange keys, int64_t first) {
  const PanelLayout layout = Product::Panel(a.k_width);
  for (int64_t c = 0; c < keys.end - first; c += kPanelRows) {
    std::byte* panel = s.keys + c / kPanelRows * s.key_panel_bytes;
    ExpandKeys<Rows, false>(a, keys, first + c, layout, panel);
    if (RoundsKeys(a.source)) {
      ExpandKeys<Rows, true>(a, keys, first + c, layout, panel + s.key_bytes);
    }
  }
  ExpandValues<Rows>(a, keys, first, PanelCols(keys.end - first), Product::Panel(kBlockKeys), s);
}

template <typename Product>
void AddBlockOfKeys(const AttendArgs& a, const AttendState& target, const BlockScratch& s,
                    KeyRange keys, int64_t first) {
  WithRows(a.source.dtype,
           [&](auto rows) { ExpandBlock<Product, decltype(rows)>(a, s, keys, first); });
  ForBlocks<Product>(a.rows * a.group, [&](int64_t /*block*/, int64_t query, int64_t count) {
    AddToBlock<Product>(a, target, s, keys, first, query, count);
  });
}

template <typename Product>
void AttendBlocks(const AttendArgs& a, const AttendState& target, std::byte* scratch) {
  [[maybe_unused]] const Product product;  // holds what the instruction set needs meanwhile
  const BlockScratch s = ScratchOf<Product>(a, scratch);
  PackQueries<Product>(a, s);
  const KeyRange all = ClearStates(a, target);
  // Blocks start at multiples of their size and grow by whole vectors, so that a row's sums do not
  // depend on the other rows.
  for (int64_t first = all.begin / kBlockKeys * kBlockKeys; first < all.end; first += kBlockKeys) {
    const KeyRange keys = {first > all.begin ? first : all.begin,
                           first + kBlockKeys < all.end ? first + kBlockKeys : all.end};
    AddBlockOfKeys<Product>(a, target, s, keys, first);
  }
}

}  // namespace
}  // namespace tenon::TN_ISA

#endif
