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

// What the cache makes of a number: bf16 keeps 8 bits of the mantissa, ties to even.
inline double Stored(DType dtype, float x) {
  if (dtype == DType::kF32 || x == 0) return static_cast<double>(x);
  int exponent = 0;
  const double mantissa = std::frexp(static_cast<double>(x), &exponent);  // [0.5, 1)
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, 8)), exponent - 8);
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

inline std::vector<double> StoredRows(DType dtype, const std::vector<float>& rows) {
  std::vector<double> stored;
  stored.reserve(rows.size());
  for (const float x : rows) stored.push_back(Stored(dtype, x));
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
    const std::vector<double> k = StoredRows(stored, data[i].k);
    const std::vector<double> v = StoredRows(stored, data[i].v);
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
