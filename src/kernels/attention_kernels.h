// Attention kernels: some query rows of one key/value head against keys that lie in pages or
// densely. Everything (paged, latent, cross, encoder, expanded) is a KeyValueSource plus
// ScoreRules. Plain functions over raw pointers, single-threaded, no STL; splitting work is the
// backends'. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tenon/numeric/dtype.h"

namespace tenon {

// Where key and value rows are. Codes of row j of head h, K or V: in pages (pages != null) at base
// + pages[j / page_tokens] * page_bytes + j % page_tokens * slot_stride + h * head_stride, densely
// at base + j * slot_stride + h * head_stride; its scales likewise. Strides in bytes.
struct KeyValueSource {
  const int32_t* pages = nullptr;  // this sequence's page table
  int64_t page_bytes = 0;
  int32_t page_tokens = 1;
  DType dtype = DType::kF32;  // f32, bf16, f16, f8_e4m3, i8 or f4_e2m1
  const std::byte* k = nullptr;
  int64_t k_slot_stride = 0, k_head_stride = 0;
  const std::byte* v = nullptr;
  int64_t v_slot_stride = 0, v_head_stride = 0;
  // i8: one fp32 for a row; f4_e2m1: one e4m3 for 16 codes. Null of the others.
  const std::byte* k_scales = nullptr;
  int64_t k_scale_slot_stride = 0, k_scale_head_stride = 0;
  const std::byte* v_scales = nullptr;
  int64_t v_scale_slot_stride = 0, v_scale_head_stride = 0;
  // f8_e4m3 and f4_e2m1: what all numbers are multiplied by.
  float k_scale = 1;
  float v_scale = 1;
  // The key's second part, dense fp32 and shared by all heads (MLA's rotary part); width 0: none.
  const float* k2 = nullptr;
  int64_t k2_slot_stride = 0;  // floats
  int64_t k2_width = 0;
  int64_t position = 0;  // in the sequence, of row 0
};

// Which keys a query sees and what happens to a dot product before the softmax, in this order:
// scale, softcap, alibi, bias. Static per layer.
struct ScoreRules {
  float scale = 0;
  float softcap = 0;  // s -> softcap * tanh(s / softcap); 0: none
  // A query at position p sees keys at [p - window + 1, p] of the same p / chunk; when not causal
  // also as far ahead. 0: no such limit.
  bool causal = false;
  int64_t window = 0;
  int64_t chunk = 0;
  const float* sinks = nullptr;  // [heads]: a further logit that has no value; null: none
  const float* alibi = nullptr;  // [heads]: score -= slope * distance; null: none
  const float* bias = nullptr;   // [buckets, heads]; null: none
  int64_t heads = 0;
  // Bucket of a key this many rows before and after the query; [max_distance + 1], the last entry
  // for all that are farther.
  const int32_t* buckets_before = nullptr;
  const int32_t* buckets_after = nullptr;
  int64_t max_distance = 0;
};

struct AttendArgs {
  KeyValueSource source;
  const ScoreRules* rules = nullptr;
  int64_t kv_head = 0;
  int64_t group = 1;       // query heads of this kv head
  int64_t first_head = 0;  // index of the first of them, for per-head numbers
  int64_t k_width = 0;     // of the first key part
  int64_t v_width = 0;
  int64_t rows = 1;                    // query rows
  int64_t position = 0;                // of the first one in the sequence
  int64_t key_begin = 0, key_end = 0;  // rows of the source; the rules narrow them per query row
  const float* q = nullptr;            // [rows, group, k_width + k2_width]
  int64_t q_row_stride = 0, q_head_stride = 0;  // floats
  // In place of causality: query row i sees the source's row j if bit (mask_row + i) * mask_columns
  // + source.position + j is set, the lowest bit of a byte first. Null: no mask.
  const uint8_t* mask = nullptr;
  int64_t mask_row = 0, mask_columns = 0;
};

// Where normalised results go. Zero where nothing is visible.
struct AttendOut {
  float* out = nullptr;                     // [rows, group, v_width]
  int64_t row_stride = 0, head_stride = 0;  // floats
  float* stats = nullptr;                   // [rows, group, 2]: row maximum and sum, or null
  int64_t stats_row_stride = 0, stats_head_stride = 0;
};

// A row of one head. KeyValueSource says what the parts mean.
struct StoredRow {
  DType dtype = DType::kF32;
  std::byte* codes = nullptr;
  std::byte* scales = nullptr;
  float scale = 1;
};

// Softmax sums over some of the keys, not normalised: per (row, head) StateFloats numbers: the sum
// of p * v [v_width], the maximum, the sum of p = exp(score - maximum); then what fills the last
// line. Sinks not included.
struct AttendState {
  float* state = nullptr;
  int64_t row_stride = 0, head_stride = 0;  // floats
};
constexpr int64_t StateFloats(int64_t v_width) { return (v_width + 2 + 15) / 16 * 16; }

// One head's output and its row maximum and sum.
struct NormalisedPart {
  const float* out = nullptr;
  const float* stats = nullptr;
};

struct AttentionKernels {
  // Two passes in double, sinks included: the oracle. scratch: VanillaScratchFloats.
  void (*vanilla)(const AttendArgs& args, const AttendOut& out, float* scratch) = nullptr;
  // One pass with a running maximum over tiles of keys; each key row is read once for all rows and
  // heads. A row's result depends neither on the other rows nor on the page size. scratch:
  // OnlineScratchFloats.
  void (*online)(const AttendArgs& args, const AttendState& out, float* scratch) = nullptr;
  // The same for many queries, of which there are at most kAttendBlockQueries: q, k, v and the
  // weights rounded to bf16, fp32 sums. Without a second key part or a mask; values are finite. The
  // states lie head_stride apart, rows too, and there is room for kAttendBlockStates of them: those
  // that are no query's hold anything afterwards. Null: none. scratch: BlocksScratchBytes, 64-byte
  // aligned.
  void (*blocks)(const AttendArgs& args, const AttendState& out, std::byte* scratch) = nullptr;
  // into = the state over both parts' keys (disjoint). One head.
  void (*fold)(float* into, const float* part, int64_t v_width) = nullptr;
  // Joins the head's sink (null: none) and normalises: out [v_width], stats [2] or null. One head.
  void (*finish)(const float* state, const float* sink, int64_t v_width, float* out,
                 float* stats) = nullptr;
  // The attention over both parts' keys (disjoint), normalised as they are: out [n] and stats [2],
  // which may be a's. One head.
  void (*merge)(const NormalisedPart& a, const NormalisedPart& b, float* out, float* stats,
                int64_t n) = nullptr;
  // n numbers to and from a row, rounded to nearest even; f4_e2m1: whole groups of 16. i8: the
  // scale is the largest magnitude / 127. f4_e2m1: the largest of the group / 6, rounded, so that
  // codes are relative to what is stored. f8_e4m3 and f4_e2m1 hold what exceeds their range as the
  // largest number. A row or group with a NaN (i8: or an infinity) is NaN, of f8_e4m3 the number.
  void (*store)(const float* src, const StoredRow& row, int64_t n) = nullptr;
  void (*load)(const StoredRow& row, float* dst, int64_t n) = nullptr;
};

inline constexpr int64_t kAttendTile = 32;    // keys whose scores are computed together
inline constexpr int64_t kAttendQueries = 4;  // (row, head) pairs that share a tile's loads

// A row of keys or values, and v_width sums in double.
constexpr int64_t VanillaScratchFloats(int64_t k_width, int64_t v_width) {
  return k_width + 3 * v_width + 1;
}
// A tile of keys, of values and of scores.
constexpr int64_t OnlineScratchFloats(int64_t k_width, int64_t v_width) {
  return kAttendTile * (k_width + v_width + kAttendQueries);
}

inline constexpr int64_t kAttendBlockQueries = 256;  // (row, head) pairs
inline constexpr int64_t kAttendBlockStates = 258;   // whole blocks of 32 tokens, or of 6
inline constexpr int64_t kAttendBlockKeys = 128;
inline constexpr int64_t kAttendBlockTokens = 32;  // of the largest block
// Scores of a block; before them its queries, read in whole vectors.
constexpr int64_t BlocksScoreFloats(int64_t k_width) {
  const int64_t scores = kAttendBlockTokens * kAttendBlockKeys;
  const int64_t queries = kAttendBlockTokens * k_width + 16;
  return scores > queries ? scores : queries;
}
// Queries (whole blocks) and keys as bf16 and what that takes away, weights of a block, values,
// scores.
constexpr int64_t BlocksScratchBytes(int64_t k_width, int64_t v_width) {
  constexpr int64_t kQueries = kAttendBlockQueries + kAttendBlockTokens;
  const int64_t k_cols = (k_width + 31) / 32 * 32;
  const int64_t v_cols = (v_width + 63) / 64 * 64;
  return 2 * (2 * kQueries * k_cols + kAttendBlockTokens * kAttendBlockKeys +
              kAttendBlockKeys * (2 * k_cols + v_cols)) +
         4 * BlocksScoreFloats(k_width) + 5 * 64;
}

AttentionKernels ReferenceAttentionKernels();

}  // namespace tenon
