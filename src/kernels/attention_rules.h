// What every attention kernel must agree on: where a row lies, which keys a query sees, what
// happens to a dot product. Inline, so that one kernel source can be compiled per ISA. Not a kernel
// itself. Thread-safe.
#pragma once

#include <cmath>

#include "tenon/kernels/attention_kernels.h"
#include "tenon/numeric/codecs.h"

namespace tenon {

struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// A stored row of one head, to be read.
struct RowView {
  DType dtype = DType::kF32;
  const std::byte* codes = nullptr;
  const std::byte* scales = nullptr;
  float scale = 1;
};

static inline const std::byte* RowAddress(const KeyValueSource& s, const std::byte* base,
                                          int64_t slot_stride, int64_t j) {
  if (s.pages == nullptr) return base + j * slot_stride;
  return base + s.pages[j / s.page_tokens] * s.page_bytes + j % s.page_tokens * slot_stride;
}

static inline RowView KeyAt(const AttendArgs& a, int64_t j) {
  const KeyValueSource& s = a.source;
  RowView row{s.dtype, RowAddress(s, s.k, s.k_slot_stride, j) + a.kv_head * s.k_head_stride,
              nullptr, s.k_scale};
  if (s.k_scales != nullptr) {
    row.scales =
        RowAddress(s, s.k_scales, s.k_scale_slot_stride, j) + a.kv_head * s.k_scale_head_stride;
  }
  return row;
}

static inline RowView ValueAt(const AttendArgs& a, int64_t j) {
  const KeyValueSource& s = a.source;
  RowView row{s.dtype, RowAddress(s, s.v, s.v_slot_stride, j) + a.kv_head * s.v_head_stride,
              nullptr, s.v_scale};
  if (s.v_scales != nullptr) {
    row.scales =
        RowAddress(s, s.v_scales, s.v_scale_slot_stride, j) + a.kv_head * s.v_scale_head_stride;
  }
  return row;
}

// The row as floats, number by number: in place, or widened into `buffer`.
static inline const float* Widen(const RowView& row, int64_t n, float* buffer) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(row.codes);
  const auto* words = reinterpret_cast<const uint16_t*>(row.codes);
  switch (row.dtype) {
    case DType::kBF16:
      for (int64_t i = 0; i < n; ++i) buffer[i] = Bf16ToFloat(words[i]);
      return buffer;
    case DType::kF16:
      for (int64_t i = 0; i < n; ++i) buffer[i] = F16ToFloat(words[i]);
      return buffer;
    case DType::kF8E4M3:
      for (int64_t i = 0; i < n; ++i) buffer[i] = F8E4M3ToFloat(bytes[i]) * row.scale;
      return buffer;
    case DType::kI8: {
      float scale = 0;
      __builtin_memcpy(&scale, row.scales, sizeof scale);
      for (int64_t i = 0; i < n; ++i)
        buffer[i] = static_cast<float>(static_cast<int8_t>(bytes[i])) * scale;
      return buffer;
    }
    case DType::kF4E2M1:
      for (int64_t i = 0; i < n; ++i) {
        const float scale = F8E4M3ToFloat(static_cast<uint8_t>(row.scales[i / 16])) * row.scale;
        const uint32_t pair = bytes[i / 2];
        buffer[i] =
            F4E2M1ToFloat(static_cast<uint8_t>(i % 2 == 0 ? pair & 15u : pair >> 4)) * scale;
      }
      return buffer;
    default:
      return reinterpret_cast<const float*>(row.codes);
  }
}

static inline const float* KeyRow(const AttendArgs& a, int64_t j, float* buffer) {
  return Widen(KeyAt(a, j), a.k_width, buffer);
}

static inline const float* ValueRow(const AttendArgs& a, int64_t j, float* buffer) {
  return Widen(ValueAt(a, j), a.v_width, buffer);
}

// Rows of the source, within [key_begin, key_end), that query row `row` sees; may be empty.
static inline KeyRange VisibleKeys(const AttendArgs& a, int64_t row) {
  const ScoreRules& r = *a.rules;
  const int64_t p = a.position + row - a.source.position;  // the query's own row of the source
  KeyRange keys{a.key_begin, a.key_end};
  const auto raise = [&](int64_t begin) { keys.begin = begin > keys.begin ? begin : keys.begin; };
  const auto lower = [&](int64_t end) { keys.end = end < keys.end ? end : keys.end; };
  if (r.causal && a.mask == nullptr) lower(p + 1);
  if (r.window > 0) {
    raise(p - r.window + 1);
    lower(p + r.window);
  }
  if (r.chunk > 0) {
    const int64_t first = (a.position + row) / r.chunk * r.chunk - a.source.position;
    raise(first);
    lower(first + r.chunk);
  }
  return keys;
}

// Empties all states. Returns the keys that any row sees.
static inline KeyRange ClearStates(const AttendArgs& a, const AttendState& target) {
  KeyRange all{INT64_MAX, INT64_MIN};  // nothing, whatever the given limits are
  for (int64_t row = 0; row < a.rows; ++row) {
    const KeyRange keys = VisibleKeys(a, row);
    if (keys.begin < keys.end) {
      all.begin = keys.begin < all.begin ? keys.begin : all.begin;
      all.end = keys.end > all.end ? keys.end : all.end;
    }
    for (int64_t g = 0; g < a.group; ++g) {
      float* state = target.state + row * target.row_stride + g * target.head_stride;
      for (int64_t i = 0; i <= a.v_width + 1; ++i) state[i] = 0;
      state[a.v_width] = -INFINITY;
    }
  }
  return all;
}

static inline bool IsMasked(const AttendArgs& a, int64_t row, int64_t j) {
  if (a.mask == nullptr) return false;
  const int64_t bit = (a.mask_row + row) * a.mask_columns + a.source.position + j;
  return (a.mask[bit / 8] >> bit % 8 & 1) == 0;
}

// Everything between the dot product of query row `row` and key j and the softmax.
template <typename Real>
static inline Real ScoreOf(const AttendArgs& a, Real dot, int64_t row, int64_t g, int64_t j) {
  const ScoreRules& r = *a.rules;
  if (IsMasked(a, row, j)) return -static_cast<Real>(INFINITY);
  const int64_t head = a.first_head + g;
  Real score = dot * static_cast<Real>(r.scale);
  if (r.softcap > 0)
    score = static_cast<Real>(r.softcap) * std::tanh(score / static_cast<Real>(r.softcap));
  if (r.alibi == nullptr && r.bias == nullptr) return score;
  const int64_t ahead = j + a.source.position - a.position - row;  // of the query
  const int64_t distance = ahead < 0 ? -ahead : ahead;
  if (r.alibi != nullptr) score -= static_cast<Real>(r.alibi[head]) * static_cast<Real>(distance);
  if (r.bias != nullptr) {
    const int32_t* buckets = ahead > 0 ? r.buckets_after : r.buckets_before;
    const int64_t at = distance < r.max_distance ? distance : r.max_distance;
    score += static_cast<Real>(r.bias[buckets[at] * r.heads + head]);
  }
  return score;
}

}  // namespace tenon
