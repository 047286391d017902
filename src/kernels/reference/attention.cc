#include <cmath>
#include <cstring>

#include "tenon/kernels/attention_kernels.h"
#include "tenon/numeric/codecs.h"

namespace tenon {
namespace {

const std::byte* RowAddress(const KeyValueSource& s, const std::byte* base, int64_t slot_stride,
                            int64_t head_stride, int64_t j, int64_t head) {
  if (s.pages == nullptr) return base + j * slot_stride + head * head_stride;
  return base + s.pages[j / s.page_tokens] * s.page_bytes + j % s.page_tokens * slot_stride +
         head * head_stride;
}

// The row as floats: in place, or widened into `buffer`.
const float* Widen(DType dtype, const std::byte* row, int64_t n, float* buffer) {
  if (dtype == DType::kF32) return reinterpret_cast<const float*>(row);
  const auto* bits = reinterpret_cast<const uint16_t*>(row);
  for (int64_t i = 0; i < n; ++i) buffer[i] = Bf16ToFloat(bits[i]);
  return buffer;
}

const float* KeyRow(const AttendArgs& a, int64_t j, float* buffer) {
  const KeyValueSource& s = a.source;
  return Widen(s.dtype, RowAddress(s, s.k, s.k_slot_stride, s.k_head_stride, j, a.kv_head),
               a.k_width, buffer);
}

const float* ValueRow(const AttendArgs& a, int64_t j, float* buffer) {
  const KeyValueSource& s = a.source;
  return Widen(s.dtype, RowAddress(s, s.v, s.v_slot_stride, s.v_head_stride, j, a.kv_head),
               a.v_width, buffer);
}

// Hugging Face modeling_t5.py, T5Attention._relative_position_bucket; logarithms in fp32 as there.
int32_t BucketOf(const BiasTable& b, int64_t distance) {
  int32_t buckets = b.buckets;
  int32_t bucket = 0;
  int64_t n = 0;
  if (b.bidirectional) {
    buckets /= 2;
    if (distance > 0) bucket += buckets;
    n = distance < 0 ? -distance : distance;
  } else {
    n = distance < 0 ? -distance : 0;
  }
  const int32_t exact = buckets / 2;
  if (n < exact) return bucket + static_cast<int32_t>(n);
  const float span = static_cast<float>(
      std::log(static_cast<double>(b.max_distance) / static_cast<double>(exact)));
  const float ratio = std::log(static_cast<float>(n) / static_cast<float>(exact)) / span;
  const int32_t far = exact + static_cast<int32_t>(ratio * static_cast<float>(buckets - exact));
  return bucket + (far < buckets - 1 ? far : buckets - 1);
}

// Everything that happens to a dot product before the softmax.
template <typename Real>
Real ScoreOf(const AttendArgs& a, Real dot, int64_t g, int64_t j) {
  Real score = dot * static_cast<Real>(a.scale);
  if (a.softcap > 0)
    score = static_cast<Real>(a.softcap) * std::tanh(score / static_cast<Real>(a.softcap));
  if (a.alibi != nullptr)
    score += static_cast<Real>(a.alibi[a.first_head + g]) * static_cast<Real>(j - a.position);
  if (a.bias.table != nullptr) {
    score += static_cast<Real>(
        a.bias.table[BucketOf(a.bias, j - a.position) * a.bias.heads + a.first_head + g]);
  }
  return score;
}

double DoubleDot(const AttendArgs& a, int64_t g, int64_t j, float* buffer) {
  const float* q = a.q + g * a.q_head_stride;
  const float* k = KeyRow(a, j, buffer);
  double dot = 0;
  for (int64_t i = 0; i < a.k_width; ++i)
    dot += static_cast<double>(q[i]) * static_cast<double>(k[i]);
  const float* k2 = a.source.k2 + j * a.source.k2_slot_stride;
  for (int64_t i = 0; i < a.source.k2_width; ++i) {
    dot += static_cast<double>(q[a.k_width + i]) * static_cast<double>(k2[i]);
  }
  return dot;
}

void Vanilla(const AttendArgs& a, float* scratch) {
  float* row = scratch;  // [max(k_width, v_width)]
  auto* sums =
      reinterpret_cast<double*>(scratch + ((a.k_width + a.v_width + 1) / 2 * 2));  // [v_width]
  for (int64_t g = 0; g < a.group; ++g) {
    const bool has_sink = a.sinks != nullptr;
    double top = has_sink ? static_cast<double>(a.sinks[a.first_head + g]) : -INFINITY;
    for (int64_t j = a.begin; j < a.end; ++j) {
      const double score = ScoreOf(a, DoubleDot(a, g, j, row), g, j);
      top = score > top ? score : top;
    }
    double total = has_sink ? std::exp(static_cast<double>(a.sinks[a.first_head + g]) - top) : 0.0;
    for (int64_t i = 0; i < a.v_width; ++i) sums[i] = 0;
    for (int64_t j = a.begin; j < a.end; ++j) {
      const double p = std::exp(ScoreOf(a, DoubleDot(a, g, j, row), g, j) - top);
      total += p;
      const float* v = ValueRow(a, j, row);
      for (int64_t i = 0; i < a.v_width; ++i) sums[i] += p * static_cast<double>(v[i]);
    }
    float* out = a.out + g * a.out_head_stride;
    for (int64_t i = 0; i < a.v_width; ++i)
      out[i] = total > 0 ? static_cast<float>(sums[i] / total) : 0.0f;
    if (a.stats != nullptr) {
      a.stats[g * a.stats_head_stride] = static_cast<float>(top);
      a.stats[g * a.stats_head_stride + 1] = static_cast<float>(total);
    }
  }
}

float Dot(const float* a, const float* b, int64_t n) {
  constexpr int64_t kLanes = 8;
  float sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) sums[l] += a[i + l] * b[i + l];
  }
  for (int64_t l = 0; i < n; ++i, ++l) sums[l] += a[i] * b[i];
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

// Scores of the keys [begin, end) for every query head of the group: each key row is read once.
void TileScores(const AttendArgs& a, int64_t begin, int64_t end, float* buffer, float* scores) {
  for (int64_t j = begin; j < end; ++j) {
    const float* k = KeyRow(a, j, buffer);
    for (int64_t g = 0; g < a.group; ++g) {
      const float* q = a.q + g * a.q_head_stride;
      float dot = Dot(q, k, a.k_width);
      if (a.source.k2_width > 0) {
        dot += Dot(q + a.k_width, a.source.k2 + j * a.source.k2_slot_stride, a.source.k2_width);
      }
      scores[g * kAttendTile + j - begin] = ScoreOf(a, dot, g, j);
    }
  }
}

// Brings the running maximum up to the tile's and turns scores into probabilities against it.
void RescaleHead(float* scores, int64_t n, float* top, float* total, float* out, int64_t v_width) {
  float highest = *top;
  for (int64_t j = 0; j < n; ++j) highest = scores[j] > highest ? scores[j] : highest;
  if (highest == -INFINITY) {  // all masked so far: no weight
    for (int64_t j = 0; j < n; ++j) scores[j] = 0;
    return;
  }
  const float keep = std::exp(*top - highest);
  for (int64_t i = 0; i < v_width; ++i) out[i] *= keep;
  float sum = 0;
  for (int64_t j = 0; j < n; ++j) {
    scores[j] = std::exp(scores[j] - highest);
    sum += scores[j];
  }
  *total = *total * keep + sum;
  *top = highest;
}

void Online(const AttendArgs& a, float* scratch) {
  float* buffer = scratch;                         // [max(k_width, v_width)]
  float* scores = buffer + a.k_width + a.v_width;  // [group, kAttendTile]
  float* state = scores + a.group * kAttendTile;   // [group, 2]
  for (int64_t g = 0; g < a.group; ++g) {
    state[2 * g] = a.sinks == nullptr ? -INFINITY : a.sinks[a.first_head + g];
    state[2 * g + 1] = state[2 * g] == -INFINITY ? 0.0f : 1.0f;
    std::memset(a.out + g * a.out_head_stride, 0, static_cast<size_t>(a.v_width) * sizeof(float));
  }
  for (int64_t begin = a.begin; begin < a.end; begin += kAttendTile) {
    const int64_t end = begin + kAttendTile < a.end ? begin + kAttendTile : a.end;
    TileScores(a, begin, end, buffer, scores);
    for (int64_t g = 0; g < a.group; ++g) {
      RescaleHead(scores + g * kAttendTile, end - begin, state + 2 * g, state + 2 * g + 1,
                  a.out + g * a.out_head_stride, a.v_width);
    }
    for (int64_t j = begin; j < end; ++j) {
      const float* v = ValueRow(a, j, buffer);
      for (int64_t g = 0; g < a.group; ++g) {
        const float p = scores[g * kAttendTile + j - begin];
        float* out = a.out + g * a.out_head_stride;
        for (int64_t i = 0; i < a.v_width; ++i) out[i] += p * v[i];
      }
    }
  }
  for (int64_t g = 0; g < a.group; ++g) {
    const float total = state[2 * g + 1];
    float* out = a.out + g * a.out_head_stride;
    for (int64_t i = 0; i < a.v_width; ++i) out[i] = total > 0 ? out[i] / total : 0.0f;
    if (a.stats != nullptr) {
      a.stats[g * a.stats_head_stride] = state[2 * g];
      a.stats[g * a.stats_head_stride + 1] = total;
    }
  }
}

void Store(DType dtype, const float* src, std::byte* dst, int64_t n) {
  if (dtype == DType::kF32) {
    std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  auto* bits = reinterpret_cast<uint16_t*>(dst);
  for (int64_t i = 0; i < n; ++i) bits[i] = FloatToBf16(src[i]);
}

void Merge(const float* a, const float* a_stats, const float* b, const float* b_stats, float* out,
           float* out_stats, int64_t n) {
  const float top = a_stats[0] > b_stats[0] ? a_stats[0] : b_stats[0];
  // A part without visible keys has sum 0 and maximum -inf: its weight is 0, not NaN.
  const float wa = a_stats[1] > 0 ? std::exp(a_stats[0] - top) * a_stats[1] : 0.0f;
  const float wb = b_stats[1] > 0 ? std::exp(b_stats[0] - top) * b_stats[1] : 0.0f;
  const float total = wa + wb;
  for (int64_t i = 0; i < n; ++i) out[i] = total > 0 ? (wa * a[i] + wb * b[i]) / total : 0.0f;
  out_stats[0] = top;
  out_stats[1] = total;
}

}  // namespace

AttentionKernels ReferenceAttentionKernels() {
  AttentionKernels kernels;
  kernels.vanilla = Vanilla;
  kernels.online = Online;
  kernels.store = Store;
  kernels.merge = Merge;
  return kernels;
}

}  // namespace tenon
