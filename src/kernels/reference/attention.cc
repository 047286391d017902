#include <algorithm>
#include <cmath>
#include <cstring>

#include "tenon/kernels/attention_rules.h"
#include "tenon/numeric/codecs.h"

namespace tenon {
namespace {

double DoubleDot(const AttendArgs& a, const float* q, int64_t j, float* buffer) {
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

struct VanillaScratch {
  double* sums = nullptr;   // [v_width]
  float* buffer = nullptr;  // [max(k_width, v_width)]
};

// One row and head.
void VanillaRow(const AttendArgs& a, int64_t row, int64_t g, const AttendOut& target,
                const VanillaScratch& scratch) {
  double* sums = scratch.sums;
  float* buffer = scratch.buffer;
  const KeyRange keys = VisibleKeys(a, row);
  const float* q = a.q + row * a.q_row_stride + g * a.q_head_stride;
  const auto score = [&](int64_t j) { return ScoreOf(a, DoubleDot(a, q, j, buffer), row, g, j); };
  const double sink =
      a.rules->sinks == nullptr ? -INFINITY : static_cast<double>(a.rules->sinks[a.first_head + g]);
  double top = sink;
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    const double s = score(j);
    top = s > top ? s : top;
  }
  double total = sink == -INFINITY ? 0.0 : std::exp(sink - top);
  for (int64_t i = 0; i < a.v_width; ++i) sums[i] = 0;
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    const double s = score(j);
    if (s == -INFINITY) continue;  // masked, perhaps as all keys are
    const double p = std::exp(s - top);
    total += p;
    const float* v = ValueRow(a, j, buffer);
    for (int64_t i = 0; i < a.v_width; ++i) sums[i] += p * static_cast<double>(v[i]);
  }
  float* out = target.out + row * target.row_stride + g * target.head_stride;
  for (int64_t i = 0; i < a.v_width; ++i)
    out[i] = total == 0 ? 0.0f : static_cast<float>(sums[i] / total);
  if (target.stats == nullptr) return;
  float* stats = target.stats + row * target.stats_row_stride + g * target.stats_head_stride;
  stats[0] = static_cast<float>(top);
  stats[1] = static_cast<float>(total);
}

void Vanilla(const AttendArgs& a, const AttendOut& out, float* scratch) {
  const VanillaScratch parts = {reinterpret_cast<double*>(scratch), scratch + 2 * a.v_width};
  for (int64_t row = 0; row < a.rows; ++row) {
    for (int64_t g = 0; g < a.group; ++g) VanillaRow(a, row, g, out, parts);
  }
}

// Lanes that the compiler can keep in vector registers; the order of additions is part of the
// result.
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

struct Tile {
  KeyRange keys;
  const float* k[kAttendTile];
  const float* v[kAttendTile];
  float* scores;  // [kAttendTile]
};

// A query row and the keys of a tile that it sees.
struct RowKeys {
  int64_t row = 0;
  KeyRange keys;
};

void LoadTile(const AttendArgs& a, float* k_buffer, float* v_buffer, Tile& tile) {
  for (int64_t j = tile.keys.begin; j < tile.keys.end; ++j) {
    const int64_t t = j - tile.keys.begin;
    tile.k[t] = KeyRow(a, j, k_buffer + t * a.k_width);
    tile.v[t] = ValueRow(a, j, v_buffer + t * a.v_width);
  }
}

// Brings one head's state up to the keys of the tile that its row sees.
void AddTile(const AttendArgs& a, const Tile& tile, const RowKeys& seen, int64_t g, float* state) {
  const int64_t row = seen.row;
  const KeyRange& keys = seen.keys;
  float* scores = tile.scores;
  const float* q = a.q + row * a.q_row_stride + g * a.q_head_stride;
  float highest = state[a.v_width];
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    float dot = Dot(q, tile.k[j - tile.keys.begin], a.k_width);
    if (a.source.k2_width > 0) {
      dot += Dot(q + a.k_width, a.source.k2 + j * a.source.k2_slot_stride, a.source.k2_width);
    }
    const float score = ScoreOf(a, dot, row, g, j);
    scores[j - keys.begin] = score;
    highest = score > highest ? score : highest;
  }
  if (highest == -INFINITY) {  // no weight so far, unless a NaN hides behind the comparison
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      if (std::isnan(scores[j - keys.begin])) state[a.v_width + 1] = NAN;
    }
    return;
  }
  const float keep = std::exp(state[a.v_width] - highest);
  if (keep != 1.0f) {
    for (int64_t i = 0; i < a.v_width; ++i) state[i] *= keep;
  }
  float sum = 0;
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    const float p = std::exp(scores[j - keys.begin] - highest);
    sum += p;
    const float* v = tile.v[j - tile.keys.begin];
    for (int64_t i = 0; i < a.v_width; ++i) state[i] += p * v[i];
  }
  state[a.v_width] = highest;
  state[a.v_width + 1] = state[a.v_width + 1] * keep + sum;
}

float* StateOf(const AttendState& target, int64_t row, int64_t g) {
  return target.state + row * target.row_stride + g * target.head_stride;
}

void Online(const AttendArgs& a, const AttendState& target, float* scratch) {
  float* k_buffer = scratch;                             // [kAttendTile, k_width]
  float* v_buffer = k_buffer + kAttendTile * a.k_width;  // [kAttendTile, v_width]
  Tile tile;
  tile.scores = v_buffer + kAttendTile * a.v_width;
  const KeyRange all = ClearStates(a, target);
  // Tiles start at multiples of their size, so that a row's sums do not depend on the other rows.
  for (int64_t begin = all.begin / kAttendTile * kAttendTile; begin < all.end;
       begin += kAttendTile) {
    tile.keys = {begin > all.begin ? begin : all.begin,
                 begin + kAttendTile < all.end ? begin + kAttendTile : all.end};
    LoadTile(a, k_buffer, v_buffer, tile);
    for (int64_t row = 0; row < a.rows; ++row) {
      KeyRange keys = VisibleKeys(a, row);
      keys.begin = keys.begin > tile.keys.begin ? keys.begin : tile.keys.begin;
      keys.end = keys.end < tile.keys.end ? keys.end : tile.keys.end;
      if (keys.begin >= keys.end) continue;
      for (int64_t g = 0; g < a.group; ++g)
        AddTile(a, tile, {row, keys}, g, StateOf(target, row, g));
    }
  }
}

void Fold(float* into, const float* part, int64_t v_width) {
  // The maximum itself adds 1 to a sum: only parts without visible keys have 0.
  if (part[v_width + 1] == 0) return;
  if (into[v_width + 1] == 0) {
    std::memcpy(into, part, static_cast<size_t>(v_width + 2) * sizeof(float));
    return;
  }
  const float top = into[v_width] > part[v_width] ? into[v_width] : part[v_width];
  const float w_into = std::exp(into[v_width] - top);
  const float w_part = std::exp(part[v_width] - top);
  for (int64_t i = 0; i < v_width; ++i) into[i] = w_into * into[i] + w_part * part[i];
  into[v_width] = top;
  into[v_width + 1] = w_into * into[v_width + 1] + w_part * part[v_width + 1];
}

void Finish(const float* state, const float* sink, int64_t v_width, float* out, float* stats) {
  float top = state[v_width];
  float total = state[v_width + 1];
  float keep = 1;
  if (sink != nullptr && *sink != -INFINITY) {
    const float raised = *sink > top ? *sink : top;
    keep = std::exp(top - raised);
    total = total * keep + std::exp(*sink - raised);
    top = raised;
  }
  for (int64_t i = 0; i < v_width; ++i) out[i] = total == 0 ? 0.0f : state[i] * keep / total;
  if (stats == nullptr) return;
  stats[0] = top;
  stats[1] = total;
}

void Merge(const NormalisedPart& a, const NormalisedPart& b, float* out, float* stats, int64_t n) {
  const float top = a.stats[0] > b.stats[0] ? a.stats[0] : b.stats[0];
  // A part without visible keys has maximum -inf and sum 0: its weight is 0, not NaN.
  const float wa = a.stats[1] == 0 ? 0.0f : std::exp(a.stats[0] - top) * a.stats[1];
  const float wb = b.stats[1] == 0 ? 0.0f : std::exp(b.stats[0] - top) * b.stats[1];
  const float total = wa + wb;
  for (int64_t i = 0; i < n; ++i)
    out[i] = total == 0 ? 0.0f : (wa * a.out[i] + wb * b.out[i]) / total;
  stats[0] = top;
  stats[1] = total;
}

// The largest magnitude; NaN if there is one.
float Magnitude(const float* x, int64_t n) {
  float top = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float m = std::abs(x[i]);
    if (!(m <= top)) top = m;
    if (std::isnan(top)) break;
  }
  return top;
}

void StoreInt8(const float* src, const StoredRow& row, int64_t n) {
  const float top = Magnitude(src, n);
  const float scale = std::isinf(top) ? NAN : top / 127.0f;
  auto* codes = reinterpret_cast<int8_t*>(row.codes);
  for (int64_t i = 0; i < n; ++i)
    codes[i] =
        scale > 0 ? static_cast<int8_t>(std::clamp(std::nearbyint(src[i] / scale), -127.0f, 127.0f))
                  : int8_t{0};
  std::memcpy(row.scales, &scale, sizeof scale);
}

// 16 numbers.
void StoreGroup(const float* src, float tensor_scale, std::byte* codes, std::byte* scale_code) {
  const uint8_t stored = FloatToF8E4M3(Magnitude(src, 16) / 6.0f / tensor_scale);
  const float scale = F8E4M3ToFloat(stored) * tensor_scale;
  for (int64_t i = 0; i < 16; i += 2) {
    const auto code = [&](float x) {
      return scale > 0 ? static_cast<uint32_t>(FloatToF4E2M1(x / scale)) : 0u;
    };
    codes[i / 2] = static_cast<std::byte>(code(src[i]) | code(src[i + 1]) << 4);
  }
  *scale_code = static_cast<std::byte>(stored);
}

void Store(const float* src, const StoredRow& row, int64_t n) {
  auto* words = reinterpret_cast<uint16_t*>(row.codes);
  switch (row.dtype) {
    case DType::kBF16:
      for (int64_t i = 0; i < n; ++i) words[i] = FloatToBf16(src[i]);
      return;
    case DType::kF16:
      for (int64_t i = 0; i < n; ++i) words[i] = FloatToF16(src[i]);
      return;
    case DType::kF8E4M3:
      for (int64_t i = 0; i < n; ++i)
        row.codes[i] = static_cast<std::byte>(FloatToF8E4M3(src[i] / row.scale));
      return;
    case DType::kI8:
      return StoreInt8(src, row, n);
    case DType::kF4E2M1:
      for (int64_t i = 0; i < n; i += 16)
        StoreGroup(src + i, row.scale, row.codes + i / 2, row.scales + i / 16);
      return;
    default:
      std::memcpy(row.codes, src, static_cast<size_t>(n) * sizeof(float));
  }
}

void Load(const StoredRow& row, float* dst, int64_t n) {
  const float* numbers = Widen({row.dtype, row.codes, row.scales, row.scale}, n, dst);
  if (numbers != dst) std::memcpy(dst, numbers, static_cast<size_t>(n) * sizeof(float));
}

}  // namespace

AttentionKernels ReferenceAttentionKernels() {
  AttentionKernels kernels;
  kernels.vanilla = Vanilla;
  kernels.online = Online;
  kernels.fold = Fold;
  kernels.finish = Finish;
  kernels.merge = Merge;
  kernels.store = Store;
  kernels.load = Load;
  return kernels;
}

}  // namespace tenon
