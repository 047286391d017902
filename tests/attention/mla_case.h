// One MLA layer driven as the module drives it: absorbed queries on the cached latents, or keys and
// values expanded from them, beside the brute force over expanded keys.
#pragma once

#include <optional>

#include "attention/harness.h"

namespace tenon::test {

struct MlaWeights {
  std::vector<float> k;  // [heads, n, r]
  std::vector<float> v;  // [heads, v, r]
};

// One sequence: latents of all rows, queries in their expanded form.
struct MlaSequence {
  std::vector<float> latent;  // [rows, r + p]
  std::vector<float> q;       // [rows, heads, n + p]
};

inline size_t At(int64_t i) { return static_cast<size_t>(i); }

// rows [rows, r + p] -> [rows, heads, n + v]: the module's kv_b projection.
inline void Expand(const MlaGeometry& m, int64_t heads, const MlaWeights& w, const float* latent,
                   float* expanded) {
  const int64_t r = m.kv_lora_rank;
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < m.qk_nope_head_dim + m.v_head_dim; ++i) {
      const float* row = i < m.qk_nope_head_dim
                             ? w.k.data() + (h * m.qk_nope_head_dim + i) * r
                             : w.v.data() + (h * m.v_head_dim + i - m.qk_nope_head_dim) * r;
      double sum = 0;
      for (int64_t c = 0; c < r; ++c)
        sum += static_cast<double>(row[c]) * static_cast<double>(latent[c]);
      *expanded++ = static_cast<float>(sum);
    }
  }
}

struct ExpandArgs {
  Operand x, y;
  const MlaWeights* weights = nullptr;
  MlaGeometry mla;
  int64_t heads = 0;
  int64_t x_row = 0;
};
inline void RunExpand(const ExpandArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const int64_t width = a.heads * (a.mla.qk_nope_head_dim + a.mla.v_head_dim);
  for (int64_t i = begin; i < end; ++i) {
    Expand(a.mla, a.heads, *a.weights, a.x.For<float>(context.thread) + i * a.x_row,
           a.y.For<float>(context.thread) + i * width);
  }
}

class MlaCase {
 public:
  MlaCase(const AttentionSpec& spec, std::vector<TestRequest> requests, unsigned seed)
      : spec_(spec), requests_(std::move(requests)) {
    const MlaGeometry& m = *spec.mla;
    std::mt19937 random(seed);
    weights_.k = RandomFloats(random, spec.heads * m.qk_nope_head_dim * m.kv_lora_rank);
    weights_.v = RandomFloats(random, spec.heads * m.v_head_dim * m.kv_lora_rank);
    for (float& x : weights_.k) x *= 0.2f;
    for (float& x : weights_.v) x *= 0.2f;
    for (const TestRequest& r : requests_) {
      const int64_t rows = r.before + r.rows;
      data_.push_back({RandomFloats(random, rows * spec.CachedWidth()),
                       RandomFloats(random, rows * spec.heads * spec.head_dim)});
    }
  }

  // Ordinary attention over expanded keys. Rows that come from the cache are rounded as it rounds.
  std::vector<double> Expected(bool own_rows_from_cache) const {
    const MlaGeometry& m = *spec_.mla;
    AttentionSpec plain = spec_;
    plain.mla.reset();
    std::vector<SequenceData> expanded;
    std::vector<float> row(At(spec_.heads * (m.qk_nope_head_dim + m.v_head_dim)));
    for (size_t i = 0; i < requests_.size(); ++i) {
      SequenceData d{.q = data_[i].q, .k = {}, .v = {}};
      for (int64_t t = 0; t < requests_[i].before + requests_[i].rows; ++t) {
        std::vector<float> latent(data_[i].latent.begin() + t * spec_.CachedWidth(),
                                  data_[i].latent.begin() + (t + 1) * spec_.CachedWidth());
        if (own_rows_from_cache || t < requests_[i].before) {
          const std::vector<double> stored =
              StoredRows(spec_.kv_dtype, latent, spec_.CachedWidth(), spec_.k_scale);
          std::transform(stored.begin(), stored.end(), latent.begin(),
                         [](double x) { return static_cast<float>(x); });
        }
        Expand(m, spec_.heads, weights_, latent.data(), row.data());
        for (int64_t h = 0; h < spec_.heads; ++h) {
          const float* head = row.data() + h * (m.qk_nope_head_dim + m.v_head_dim);
          d.k.insert(d.k.end(), head, head + m.qk_nope_head_dim);
          d.k.insert(d.k.end(), latent.begin() + m.kv_lora_rank, latent.end());
          d.v.insert(d.v.end(), head + m.qk_nope_head_dim,
                     head + m.qk_nope_head_dim + m.v_head_dim);
        }
      }
      expanded.push_back(std::move(d));
    }
    return BruteForce(plain, DType::kF32, requests_, expanded);
  }

  // Fills the caches with the context rows, then points the layout at the step.
  void Start(const AttentionBackend& backend, unsigned seed) {
    int64_t tokens = 0;
    for (const TestRequest& r : requests_) tokens += r.before + r.rows;
    sequences_.emplace(CacheSpecOf(spec_, backend), static_cast<int64_t>(requests_.size()), tokens,
                       seed);
    sequences_->Admit(requests_);
    layer_ = backend.CreateMlaLayer(spec_);
    call_ = sequences_->Call(backend);
    sequences_->SetContext(requests_);
    const std::vector<float> context = Rows(&MlaSequence::latent, spec_.CachedWidth(), true);
    if (!context.empty()) {
      TapeRunner runner(1);
      const Value x =
          Input(runner.tape(), &context, {sequences_->layout().num_tokens, spec_.CachedWidth()});
      layer_->Append(runner.tape(), x, call_);
      runner.Run(x);
    }
    sequences_->SetRequests(requests_);
    sequences_->Prepare(backend);
  }

  // [num_tokens, heads, v].
  std::vector<float> RunLatent(const AttentionBackend& backend, int threads) {
    Start(backend, static_cast<unsigned>(threads));
    const MlaGeometry& m = *spec_.mla;
    const int64_t n = sequences_->layout().num_tokens;
    const std::vector<float> latent = Rows(&MlaSequence::latent, spec_.CachedWidth(), false);
    const std::vector<float> q = Rows(&MlaSequence::q, spec_.heads * spec_.head_dim, false);
    // q' = [q_nope W_k, q_pe].
    std::vector<float> absorbed;
    for (int64_t i = 0; i < n * spec_.heads; ++i) {
      const float* head = q.data() + i * spec_.head_dim;
      for (int64_t c = 0; c < m.kv_lora_rank; ++c) {
        double sum = 0;
        for (int64_t j = 0; j < m.qk_nope_head_dim; ++j) {
          sum +=
              static_cast<double>(head[j]) *
              static_cast<double>(
                  weights_.k[At((i % spec_.heads * m.qk_nope_head_dim + j) * m.kv_lora_rank + c)]);
        }
        absorbed.push_back(static_cast<float>(sum));
      }
      absorbed.insert(absorbed.end(), head + m.qk_nope_head_dim, head + spec_.head_dim);
    }
    TapeRunner runner(threads);
    layer_->Append(runner.tape(), Input(runner.tape(), &latent, {n, spec_.CachedWidth()}), call_);
    const Value q_in = Input(runner.tape(), &absorbed, {n, spec_.heads, spec_.CachedWidth()});
    const Value out = layer_->RunLatent(runner.tape(), q_in, call_);
    EXPECT_EQ(out.shape(), Shape({n, spec_.heads, m.kv_lora_rank}));
    const std::vector<float> u = runner.Run(out);
    std::vector<float> result;
    for (int64_t i = 0; i < n * spec_.heads; ++i) {
      for (int64_t j = 0; j < m.v_head_dim; ++j) {
        double sum = 0;
        for (int64_t c = 0; c < m.kv_lora_rank; ++c) {
          sum += static_cast<double>(u[At(i * m.kv_lora_rank + c)]) *
                 static_cast<double>(
                     weights_.v[At((i % spec_.heads * m.v_head_dim + j) * m.kv_lora_rank + c)]);
        }
        result.push_back(static_cast<float>(sum));
      }
    }
    return result;
  }

  // The module's expanded prefill: own rows, then the context in chunks.
  std::vector<float> RunExpanded(const AttentionBackend& backend, int64_t chunk_rows, int threads) {
    Start(backend, 9);
    const int64_t n = sequences_->layout().num_tokens;
    const std::vector<float> latent = Rows(&MlaSequence::latent, spec_.CachedWidth(), false);
    const std::vector<float> q = Rows(&MlaSequence::q, spec_.heads * spec_.head_dim, false);
    TapeRunner runner(threads);
    Tape& tape = runner.tape();
    const Value own = Input(tape, &latent, {n, spec_.CachedWidth()});
    const Value q_in = Input(tape, &q, {n, spec_.heads, spec_.head_dim});
    layer_->Append(tape, own, call_);
    MlaLayer::Partial sum = Attend(tape, q_in, own, -1, 0);
    for (int64_t chunk = 0; chunk * chunk_rows < requests_[0].before; ++chunk) {
      const Value rows = layer_->Gather(tape, chunk, chunk_rows, call_);
      EXPECT_EQ(rows.shape(), Shape({chunk_rows, spec_.CachedWidth()}));
      sum = layer_->Merge(tape, sum, Attend(tape, q_in, rows, chunk, chunk_rows));
    }
    return runner.Run(sum.out);
  }

 private:
  std::vector<float> Rows(std::vector<float> MlaSequence::*member, int64_t width,
                          bool context) const {
    std::vector<float> rows;
    for (size_t i = 0; i < requests_.size(); ++i) {
      const int64_t first = context ? 0 : requests_[i].before;
      const int64_t last = first + (context ? requests_[i].before : requests_[i].rows);
      const std::vector<float>& all = data_[i].*member;
      rows.insert(rows.end(), all.begin() + first * width, all.begin() + last * width);
    }
    return rows;
  }

  MlaLayer::Partial Attend(Tape& tape, const Value& q, const Value& latent, int64_t chunk,
                           int64_t chunk_rows) {
    const MlaGeometry& m = *spec_.mla;
    const int64_t width = m.qk_nope_head_dim + m.v_head_dim;
    const Value expanded = tape.NewValue(DType::kF32, {latent.dim(0), spec_.heads, width});
    RecordBuilder<ExpandArgs> record(tape, "expand", "test");
    record.args().weights = &weights_;
    record.args().mla = m;
    record.args().heads = spec_.heads;
    record.args().x_row = latent.stride_bytes(0) / 4;
    record.Read(&ExpandArgs::x, latent).Write(&ExpandArgs::y, expanded);
    record.Commit<RunExpand>({.items = latent.dim(0)});
    return layer_->RunExpanded(
        tape,
        {.q = q,
         .k_nope = expanded.Slice(2, 0, m.qk_nope_head_dim),
         .k_rope = latent.Slice(1, m.kv_lora_rank, m.kv_lora_rank + m.qk_rope_head_dim),
         .v = expanded.Slice(2, m.qk_nope_head_dim, width),
         .chunk = chunk,
         .chunk_rows = chunk_rows},
        call_);
  }

  AttentionSpec spec_;
  std::vector<TestRequest> requests_;
  MlaWeights weights_;
  std::vector<MlaSequence> data_;
  std::optional<Sequences> sequences_;
  std::unique_ptr<MlaLayer> layer_;
  AttentionCall call_;
};

}  // namespace tenon::test
