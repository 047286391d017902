// Attention written down once more from its definition, in double over plain arrays: what every
// backend is compared with. Shares no code with them. Single-threaded.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tenon/attention/attention_spec.h"
#include "tenon/attention/step_layout.h"

namespace tenon::test {

struct TestRequest {
  RequestPhase phase = RequestPhase::kPrefill;
  int64_t before = 0;  // cached rows before the step
  int64_t rows = 1;    // of the step
  int64_t cross = 0;   // encoder rows
  // In place of causality: bit row * keys + key, the lowest of a byte first. Empty: none.
  std::vector<uint8_t> mask = {};
  int parent = -1;     // an earlier request of the step, from which this one was forked
  int64_t shared = 0;  // rows that both began with, at most `before` of either

  // Rows in whole pages of the parent: the last page may have been copied before it was written.
  int64_t InParentsPages(int64_t page_tokens) const { return shared / page_tokens * page_tokens; }

  int64_t Keys(AttentionKind kind) const {
    return kind == AttentionKind::kCross ? cross : before + rows;
  }
};

// All rows of one sequence, those before the step first.
struct SequenceData {
  std::vector<float> q;  // [rows, heads, k_width]
  std::vector<float> k;  // [rows or cross rows, kv_heads, k_width]
  std::vector<float> v;  // [rows or cross rows, kv_heads, v_width]
};

inline std::vector<float> RandomFloats(std::mt19937& random, int64_t n) {
  std::vector<float> x(static_cast<size_t>(n));  // uniform, of variance 1
  for (float& value : x) value = (static_cast<float>(random()) * 0x1p-32f - 0.5f) * 3.4641f;
  return x;
}

// x with `bits` of mantissa, ties to even, in steps of at least `step`, at most `largest`.
inline double Rounded(double x, int bits, double step, double largest) {
  if (x == 0) return x;
  int exponent = 0;
  std::frexp(x, &exponent);  // |x| in [2^(exponent - 1), 2^exponent)
  const double unit = std::max(std::ldexp(1.0, exponent - bits), step);
  return std::clamp(std::nearbyint(x / unit) * unit, -largest, largest);
}

// The e2m1 number nearest to x, the one of even mantissa where two are.
inline double RoundedE2M1(double x) {
  constexpr double kNumbers[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  int best = 0;
  for (int i = 1; i < 8; ++i) {
    const double closer =
        std::abs(std::abs(x) - kNumbers[best]) - std::abs(std::abs(x) - kNumbers[i]);
    if (closer > 0 || (closer == 0 && i % 2 == 0)) best = i;
  }
  return std::copysign(kNumbers[best], x);
}

// What the cache makes of a row of `width` numbers: scales are fp32 quotients, as are the numbers
// that become codes. `tensor_scale`: AttentionSpec::k_scale or v_scale.
inline void StoreRow(DType dtype, float tensor_scale, const float* x, int64_t width,
                     double* stored) {
  const auto largest = [&](int64_t begin, int64_t end) {
    float top = 0;
    for (int64_t i = begin; i < end; ++i) top = std::max(top, std::abs(x[i]));
    return top;
  };
  const auto over = [](float a, float b) { return b == 0 ? 0.0 : static_cast<double>(a / b); };
  for (int64_t i = 0; i < width; ++i) {
    const auto number = static_cast<double>(x[i]);
    switch (dtype) {
      case DType::kBF16:
        stored[i] = Rounded(number, 8, 0, INFINITY);
        break;
      case DType::kF16:
        stored[i] = Rounded(number, 11, 0x1p-24, INFINITY);
        break;
      case DType::kF8E4M3:
        stored[i] =
            Rounded(over(x[i], tensor_scale), 4, 0x1p-9, 448) * static_cast<double>(tensor_scale);
        break;
      case DType::kI8: {
        const float scale = largest(0, width) / 127.0f;
        stored[i] = std::nearbyint(over(x[i], scale)) * static_cast<double>(scale);
        break;
      }
      case DType::kF4E2M1: {
        const float top = largest(i / 16 * 16, i / 16 * 16 + 16) / 6.0f / tensor_scale;
        const double scale =
            Rounded(static_cast<double>(top), 4, 0x1p-9, 448) * static_cast<double>(tensor_scale);
        stored[i] = RoundedE2M1(over(x[i], static_cast<float>(scale))) * scale;
        break;
      }
      default:
        stored[i] = number;
    }
  }
}

// T5's buckets, as modeling_t5.py computes them for one key.
inline int T5Bucket(int64_t relative_position, const RelativeBias& b) {
  int num_buckets = b.buckets;
  int relative_buckets = 0;
  if (b.bidirectional) {
    num_buckets /= 2;
    relative_buckets += relative_position > 0 ? num_buckets : 0;
    relative_position = std::abs(relative_position);
  } else {
    relative_position = -std::min<int64_t>(relative_position, 0);
  }
  const int max_exact = num_buckets / 2;
  if (relative_position < max_exact) return relative_buckets + static_cast<int>(relative_position);
  const float scaled =
      std::log(static_cast<float>(relative_position) / static_cast<float>(max_exact)) /
      static_cast<float>(std::log(static_cast<double>(b.max_distance) / max_exact)) *
      static_cast<float>(num_buckets - max_exact);
  return relative_buckets + std::min(max_exact + static_cast<int>(scaled), num_buckets - 1);
}

inline bool Sees(const AttentionSpec& spec, const TestRequest& r, int64_t query, int64_t key) {
  if (!r.mask.empty()) {
    const int64_t bit = (query - r.before) * r.Keys(spec.kind) + key;
    if (((r.mask[static_cast<size_t>(bit / 8)] >> (bit % 8)) & 1) == 0) return false;
  }
  if (spec.kind == AttentionKind::kCross) return true;
  if (spec.kind == AttentionKind::kDecoder && key > query && r.mask.empty()) return false;
  if (spec.window && std::abs(query - key) >= *spec.window) return false;
  return !spec.chunk || query / *spec.chunk == key / *spec.chunk;
}

inline double Score(const AttentionSpec& spec, double dot, int64_t head, int64_t query,
                    int64_t key) {
  double score = dot * static_cast<double>(spec.scale);
  if (spec.softcap > 0) {
    const auto cap = static_cast<double>(spec.softcap);
    score = cap * std::tanh(score / cap);
  }
  if (spec.alibi_slopes != nullptr) {
    score -= static_cast<double>((*spec.alibi_slopes)[head]) *
             static_cast<double>(std::abs(query - key));
  }
  if (spec.relative_bias) {
    const int bucket = T5Bucket(key - query, *spec.relative_bias);
    score += static_cast<double>((*spec.relative_bias->table)[bucket * spec.heads + head]);
  }
  return score;
}

// A mask for each request: one key in two, some rows without any.
inline void AddMasks(AttentionKind kind, unsigned seed, std::vector<TestRequest>& requests) {
  std::mt19937 random(seed);
  for (TestRequest& r : requests) {
    const int64_t keys = r.Keys(kind);
    r.mask.assign(static_cast<size_t>((r.rows * keys + 7) / 8), 0);
    for (int64_t bit = 0; bit < r.rows * keys; ++bit) {
      const bool blind = r.rows > 2 && bit / keys == 1;
      if (!blind && random() % 2 == 0)
        r.mask[static_cast<size_t>(bit / 8)] |= static_cast<uint8_t>(1 << bit % 8);
    }
  }
}

inline std::vector<double> StoredRows(DType dtype, const std::vector<float>& rows, int64_t width,
                                      float tensor_scale = 1) {
  std::vector<double> stored(rows.size());
  for (size_t i = 0; i < rows.size(); i += static_cast<size_t>(width))
    StoreRow(dtype, tensor_scale, rows.data() + i, width, stored.data() + i);
  return stored;
}

// out [step rows of all sequences, heads, v_head_dim].
inline std::vector<double> BruteForce(const AttentionSpec& spec, DType stored,
                                      const std::vector<TestRequest>& requests,
                                      const std::vector<SequenceData>& data) {
  std::vector<double> out;
  const int64_t d = spec.head_dim;
  const int64_t dv = spec.v_head_dim;
  std::vector<double> sums(static_cast<size_t>(dv));
  for (size_t i = 0; i < requests.size(); ++i) {
    const TestRequest& r = requests[i];
    const std::vector<double> k = StoredRows(stored, data[i].k, d, spec.k_scale);
    const std::vector<double> v = StoredRows(stored, data[i].v, dv, spec.v_scale);
    const int64_t keys = r.Keys(spec.kind);
    for (int64_t query = r.before; query < r.before + r.rows; ++query) {
      for (int64_t h = 0; h < spec.heads; ++h) {
        const int64_t kv = h / (spec.heads / spec.kv_heads);
        const float* q = data[i].q.data() + (query * spec.heads + h) * d;
        double total = spec.sinks == nullptr ? 0 : std::exp(static_cast<double>((*spec.sinks)[h]));
        std::fill(sums.begin(), sums.end(), 0);
        for (int64_t key = 0; key < keys; ++key) {
          if (!Sees(spec, r, query, key)) continue;
          const double* k_row = k.data() + (key * spec.kv_heads + kv) * d;
          const double* v_row = v.data() + (key * spec.kv_heads + kv) * dv;
          double dot = 0;
          for (int64_t c = 0; c < d; ++c) dot += static_cast<double>(q[c]) * k_row[c];
          const double p = std::exp(Score(spec, dot, h, query, key));  // scores are small in tests
          total += p;
          for (int64_t c = 0; c < dv; ++c) sums[static_cast<size_t>(c)] += p * v_row[c];
        }
        for (const double sum : sums) out.push_back(total > 0 ? sum / total : 0);
      }
    }
  }
  return out;
}

}  // namespace tenon::test
