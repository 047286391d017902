// Attention kernels: one query row of one key/value head at a time, over keys that lie in pages or
// densely. Everything (paged, latent, cross, encoder) is a KeyValueSource. Plain functions over raw
// pointers, no STL. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tenon/numeric/dtype.h"

namespace tenon {

// Where key and value rows are. Row j of head h: paged (pages != null) at base + pages[j /
// page_tokens] * page_bytes + j % page_tokens * slot_stride + h * head_stride, dense at base + j *
// slot_stride + h * head_stride.
struct KeyValueSource {
  const int32_t* pages = nullptr;  // this sequence's page table
  int64_t page_bytes = 0;
  int32_t page_tokens = 1;
  DType dtype = DType::kF32;  // f32 or bf16
  const std::byte* k = nullptr;
  int64_t k_slot_stride = 0, k_head_stride = 0;  // bytes
  const std::byte* v = nullptr;
  int64_t v_slot_stride = 0, v_head_stride = 0;  // bytes
  // The key's second part, dense fp32 and shared by all heads (MLA's rotary part); width 0: none.
  const float* k2 = nullptr;
  int64_t k2_slot_stride = 0;  // floats
  int64_t k2_width = 0;
};

// T5's bucketed bias: table [buckets, heads] or null.
struct BiasTable {
  const float* table = nullptr;
  int64_t heads = 0;
  int32_t buckets = 0;
  int32_t max_distance = 0;
  bool bidirectional = false;
};

struct AttendArgs {
  KeyValueSource source;
  int64_t kv_head = 0;
  int64_t group = 1;       // query heads of this kv head
  int64_t first_head = 0;  // index of the first of them, for per-head numbers
  int64_t k_width = 0;     // of the first key part
  int64_t v_width = 0;
  float scale = 0;
  float softcap = 0;             // 0: none
  const float* sinks = nullptr;  // [heads] or null
  const float* alibi = nullptr;  // [heads] or null
  BiasTable bias;
  int64_t begin = 0, end = 0;  // visible rows
  int64_t position = 0;        // the query's own row, for distances
  const float* q = nullptr;    // [group, k_width + k2_width]
  int64_t q_head_stride = 0;   // floats
  float* out = nullptr;        // [group, v_width], normalised; zero when nothing is visible
  int64_t out_head_stride = 0;
  float* stats = nullptr;  // [group, 2] row maximum and row sum, or null
  int64_t stats_head_stride = 2;
};

struct AttentionKernels {
  // scratch: AttendScratchFloats(args' widths, group) floats.
  void (*vanilla)(const AttendArgs& args,
                  float* scratch) = nullptr;  // two passes in double: the oracle
  void (*online)(const AttendArgs& args,
                 float* scratch) = nullptr;  // one pass with a running maximum
  // dst = src rounded to dtype, n numbers.
  void (*store)(DType dtype, const float* src, std::byte* dst, int64_t n) = nullptr;
  // (out, stats) of a and b, disjoint keys, into out; n numbers of one head. out may be a.
  void (*merge)(const float* a, const float* a_stats, const float* b, const float* b_stats,
                float* out, float* out_stats, int64_t n) = nullptr;
};

inline constexpr int64_t kAttendTile = 32;  // keys whose scores are computed together
inline int64_t AttendScratchFloats(int64_t k_width, int64_t v_width, int64_t group) {
  return k_width + v_width + group * (kAttendTile + 2) + 2 * v_width + 16;
}

AttentionKernels ReferenceAttentionKernels();

}  // namespace tenon
