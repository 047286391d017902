// Runs one attention layer as the engine does: a cache manager with scattered pages, a layout, a
// prepared plan, a recorded tape, a team. Everything a test compares comes out as plain arrays.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>

#include "attention/brute_force.h"
#include "support/isa.h"
#include "tenon/attention/selector.h"
#include "tenon/cache/cache_manager.h"
#include "tenon/ops/kernel_choice.h"
#include "tenon/tensor/buffer.h"

namespace tenon::test {

inline const KernelTable& Kernels() { return KernelsFor(test::TestIsa()); }
inline std::shared_ptr<const AttentionBackend> BackendNamed(std::string_view name) {
  for (const auto& backend : BuiltinBackends(Kernels()).backends) {
    if (backend->name() == name) return backend;
  }
  return nullptr;
}

// Does some row of the backend serve the spec in every phase? The coverage test holds the rows to
// that.
inline bool Serves(const AttentionBackend& backend, const AttentionSpec& spec) {
  MachineProfile machine;
  machine.isa = Isa::kAvx512Bf16Vnni;
  return SelectBackend({std::string(backend.name()), {}}, spec, machine, BuiltinBackends(Kernels()))
             .backend != nullptr;
}

// Host numbers into a value.
struct InputArgs {
  Operand y;
  const std::vector<float>* source = nullptr;  // read when the tape runs
};
inline void RunInput(const InputArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i)
    a.y.For<float>(context.thread)[i] = (*a.source)[static_cast<size_t>(i)];
}
inline Value Input(Tape& tape, const std::vector<float>* source, const Shape& shape) {
  const Value y = tape.NewValue(DType::kF32, shape);
  RecordBuilder<InputArgs> record(tape, "input", "test");
  record.args().source = source;
  record.Write(&InputArgs::y, y);
  record.Commit<RunInput>({.items = shape.elements(), .grain = 64});
  return y;
}

// A tape with its memory.
class TapeRunner {
 public:
  explicit TapeRunner(int threads) : team_(threads), tape_(Kernels()) {}
  Tape& tape() { return tape_; }
  std::vector<float> Run(const Value& value) {
    if (!tape_.sealed()) {
      tape_.Keep(value, "out");
      tape_.Seal(team_.threads());
      arena_ = *Buffer::AllocateZeroed(tape_.arena_bytes(), "test");
      scratch_ = *Buffer::Allocate(tape_.scratch_bytes(), "test");
      tape_.Bind(arena_.data(), scratch_.data());
      // Whatever is not written must not be read, nor come out.
      std::memset(arena_.data(), 0xFF, static_cast<size_t>(arena_.size()));
      std::memset(scratch_.data(), 0xFF, static_cast<size_t>(scratch_.size()));
    }
    tape_.Run(team_);
    const TensorView view = tape_.ViewOf(value);
    return {view.as<float>(), view.as<float>() + view.shape().elements()};
  }

 private:
  ThreadTeam team_;
  Tape tape_;
  Buffer arena_;
  Buffer scratch_;
};

// The cache of one layer, sequences with scattered pages, and the step's layout.
class Sequences {
 public:
  // The layer's group is not the first: another one comes before it.
  Sequences(const CacheSpec& spec, int64_t max_sequences, int64_t tokens, unsigned seed)
      : random_(seed), spec_(spec) {
    CacheSpec other;
    other.kind = CacheKind::kPagedRows;
    other.row_bytes = 1;
    other.page_tokens = spec.page_tokens == 16 ? 32 : 16;
    // Admit takes pages before their rows are written: the manager must not give any back.
    // SetRequests does what it would have done.
    CacheSpec whole = spec;
    whole.window = whole.chunk = {};
    const std::vector<CacheSpec> specs = {other, whole};
    const std::vector<LayerCache*> caches = {&other_cache_, &cache_};
    auto manager = CacheManager::Create(
        specs, caches, {.tokens = tokens, .cross_tokens = tokens, .max_sequences = max_sequences});
    TN_CHECK(manager.ok(), manager.ok() ? "" : manager.message().c_str());
    manager_ = *std::move(manager);
    // Rows that nobody wrote hold NaN: reading one shows.
    std::memset(cache_.base, 0xFF, static_cast<size_t>(manager_->plan().groups[1].pool_bytes));
    layout_.groups = groups_;
  }

  // Sequences of these sizes after the step; pages are taken in small random bites.
  void Admit(const std::vector<TestRequest>& requests) {
    std::vector<int64_t> missing;
    for (const TestRequest& r : requests) {
      missing.push_back(r.before + r.rows);
      if (r.parent >= 0) {
        const auto parent = static_cast<size_t>(r.parent);
        TN_CHECK(manager_->Append(ids_[parent], missing[parent]).ok(), "the cache is large enough");
        missing[parent] = 0;
        ids_.push_back(*manager_->Fork(ids_[parent]));
        TN_CHECK(manager_->Keep(ids_.back(), r.shared).ok(), "rows may go");
        missing.back() -= r.shared;
      } else {
        ids_.push_back(*manager_->Admit());
      }
      if (r.cross > 0) TN_CHECK(manager_->SetCross(ids_.back(), r.cross).ok(), "fits");
    }
    for (;;) {
      std::vector<size_t> open;
      for (size_t i = 0; i < missing.size(); ++i) {
        if (missing[i] > 0) open.push_back(i);
      }
      if (open.empty()) break;
      const size_t i = open[random_() % open.size()];
      const int64_t bite = std::min<int64_t>(missing[i], 1 + random_() % 24);
      TN_CHECK(manager_->Append(ids_[i], bite).ok(), "the test's cache is large enough");
      missing[i] -= bite;
    }
  }

  // Points the layout at a step: `rows[i]` rows of sequence i, which then has kv_len[i] rows.
  struct Part {
    RequestPhase phase = RequestPhase::kPrefill;
    int64_t rows = 0;
    int64_t kv_len = 0;
    int64_t cross_len = 0;
    const uint8_t* mask = nullptr;
  };
  void SetStep(const std::vector<Part>& parts) {
    requests_.clear();
    int32_t begin = 0;
    for (const Part& p : parts) {
      const auto end = static_cast<int32_t>(begin + p.rows);
      requests_.push_back({p.phase, begin, end, static_cast<int32_t>(p.kv_len),
                           static_cast<int32_t>(p.cross_len), p.mask});
      begin = end;
    }
    layout_.num_tokens = begin;
    layout_.requests = requests_;
    const auto stride = manager_->max_pages(1);
    tables_.assign(ids_.size() * static_cast<size_t>(stride), -1);
    manager_->CopyPages(1, ids_, stride, tables_.data());
    groups_[1] = {tables_.data(), static_cast<int32_t>(stride), cache_.page_tokens};
  }
  // The same for requests before (their context only) and during the step.
  void SetContext(const std::vector<TestRequest>& requests) {
    std::vector<Part> parts;
    for (const TestRequest& r : requests)
      parts.push_back({RequestPhase::kPrefill, r.before - r.InParentsPages(cache_.page_tokens),
                       r.before, r.cross});
    SetStep(parts);
  }
  void SetRequests(const std::vector<TestRequest>& requests) {
    std::vector<Part> parts;
    for (const TestRequest& r : requests)
      parts.push_back(
          {r.phase, r.rows, r.before + r.rows, r.cross, r.mask.empty() ? nullptr : r.mask.data()});
    SetStep(parts);
    for (size_t i = 0; i < requests.size(); ++i) ForgetRows(i, spec_.FirstSeen(requests[i].before));
  }

  const StepLayout& layout() const { return layout_; }
  StepLayout& mutable_layout() { return layout_; }
  const LayerCache& cache() const { return cache_; }
  AttentionCall Call(const AttentionBackend& backend) {
    if (plan_ == nullptr) plan_ = backend.CreatePlan(1, spec_);
    return {&layout_, plan_.get(), &cache_};
  }
  void Prepare(const AttentionBackend& backend) { backend.Prepare(layout_, *plan_); }

 private:
  // NaN in the pages of sequence i before row `row`, which no query sees any more.
  void ForgetRows(size_t i, int64_t row) {
    if (!spec_.DropsRows()) return;
    const auto pages = manager_->PagesOf(ids_[i], 1);
    for (size_t j = 0; j < static_cast<size_t>(row / cache_.page_tokens); ++j) {
      std::memset(cache_.base + pages[j] * cache_.page_bytes, 0xFF,
                  static_cast<size_t>(cache_.page_bytes));
    }
  }

  std::mt19937 random_;
  CacheSpec spec_;
  LayerCache other_cache_;
  LayerCache cache_;
  std::unique_ptr<CacheManager> manager_;
  std::vector<int32_t> ids_;
  std::vector<StepRequest> requests_;
  std::vector<int32_t> tables_;
  std::array<GroupPages, 2> groups_;
  StepLayout layout_;
  std::unique_ptr<StepPlan> plan_;
};

inline CacheSpec CacheSpecOf(const AttentionSpec& spec, const AttentionBackend& backend) {
  CacheSpec cache;
  cache.kind = spec.kind == AttentionKind::kCross ? CacheKind::kCross : CacheKind::kPagedRows;
  cache.dtype = spec.kv_dtype;
  cache.layout = spec.mla ? KvLayout::kRow : spec.kv_layout.value_or(backend.layout());
  cache.row_bytes = spec.Cached(cache.layout).RowBytes();
  cache.window = spec.window;
  cache.chunk = spec.chunk;
  cache.page_tokens = spec.page_tokens;
  return cache;
}

// Rows [first, last) of each sequence's array, one after the other.
inline std::vector<float> Collect(const std::vector<TestRequest>& requests,
                                  const std::vector<SequenceData>& data,
                                  std::vector<float> SequenceData::*member, int64_t width,
                                  bool context, int64_t page_tokens = 16) {
  std::vector<float> rows;
  for (size_t i = 0; i < requests.size(); ++i) {
    const int64_t first = context ? requests[i].InParentsPages(page_tokens) : requests[i].before;
    const int64_t last = context ? requests[i].before : requests[i].before + requests[i].rows;
    const std::vector<float>& all = data[i].*member;
    rows.insert(rows.end(), all.begin() + first * width, all.begin() + last * width);
  }
  return rows;
}

struct RunOptions {
  int threads = 1;
  unsigned seed = 1;
  int64_t padding = 0;  // rows of the step past the last request
  // By which the step's q and k are still to be rotated: [rows, 2 * half]. Empty: they are not.
  std::vector<float> angles = {};
  RopePairing pairing = RopePairing::kHalf;
};

// Random rows for every sequence.
inline std::vector<SequenceData> MakeData(const AttentionSpec& spec,
                                          const std::vector<TestRequest>& requests, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<SequenceData> data;
  for (const TestRequest& r : requests) {
    const int64_t rows = r.before + r.rows;
    const int64_t keys = spec.kind == AttentionKind::kCross ? r.cross : rows;
    data.push_back({RandomFloats(random, rows * spec.heads * spec.head_dim),
                    RandomFloats(random, keys * spec.kv_heads * spec.head_dim),
                    RandomFloats(random, keys * spec.kv_heads * spec.v_head_dim)});
    if (r.parent < 0) continue;
    const SequenceData& parent = data[static_cast<size_t>(r.parent)];
    std::copy_n(parent.k.begin(), r.shared * spec.kv_heads * spec.head_dim, data.back().k.begin());
    std::copy_n(parent.v.begin(), r.shared * spec.kv_heads * spec.v_head_dim,
                data.back().v.begin());
  }
  return data;
}

// Interleaves q, k and v rows into one fused array [rows, q | k | v].
inline std::vector<float> Fuse(const std::vector<const std::vector<float>*>& parts,
                               const std::vector<int64_t>& widths) {
  const size_t rows = parts[0]->size() / static_cast<size_t>(widths[0]);
  std::vector<float> fused;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t p = 0; p < parts.size(); ++p) {
      const auto begin = parts[p]->begin() + static_cast<std::ptrdiff_t>(row) * widths[p];
      fused.insert(fused.end(), begin, begin + widths[p]);
    }
  }
  return fused;
}

// One decoder or encoder layer's step: contexts are appended first, then the step's rows are
// appended and attended. [num_tokens + padding, heads, v_head_dim].
inline std::vector<float> RunLayer(const AttentionBackend& backend, const AttentionSpec& spec,
                                   const std::vector<TestRequest>& requests,
                                   const std::vector<SequenceData>& data,
                                   const RunOptions& options = {}) {
  const int64_t qw = spec.heads * spec.head_dim;
  const int64_t kw = spec.kv_heads * spec.head_dim;
  const int64_t vw = spec.kv_heads * spec.v_head_dim;
  int64_t tokens = 0;
  for (const TestRequest& r : requests) tokens += r.before + r.rows;
  Sequences sequences(CacheSpecOf(spec, backend), static_cast<int64_t>(requests.size()), tokens,
                      options.seed);
  sequences.Admit(requests);
  const auto layer = backend.CreateLayer(spec);
  const bool encoder = spec.kind == AttentionKind::kEncoder;
  AttentionCall call = sequences.Call(backend);
  if (encoder) call = {&sequences.layout(), nullptr, nullptr};

  std::vector<float> k = Collect(requests, data, &SequenceData::k, kw, true, spec.page_tokens);
  std::vector<float> v = Collect(requests, data, &SequenceData::v, vw, true, spec.page_tokens);
  if (!k.empty()) {
    sequences.SetContext(requests);
    TapeRunner runner(options.threads);
    const int64_t n = sequences.layout().num_tokens;
    const Value k_in = Input(runner.tape(), &k, {n, spec.kv_heads, spec.head_dim});
    const Value v_in = Input(runner.tape(), &v, {n, spec.kv_heads, spec.v_head_dim});
    EXPECT_TRUE(layer->Run(runner.tape(), {{}, k_in, v_in}, call).empty());
    runner.Run(k_in);
  }
  sequences.SetRequests(requests);
  if (!encoder) sequences.Prepare(backend);
  k = Collect(requests, data, &SequenceData::k, kw, false);
  v = Collect(requests, data, &SequenceData::v, vw, false);
  const std::vector<float> q = Collect(requests, data, &SequenceData::q, qw, false);
  std::vector<float> fused = Fuse({&q, &k, &v}, {qw, kw, vw});
  fused.resize(fused.size() + static_cast<size_t>(options.padding * (qw + kw + vw)), NAN);
  const int64_t n = sequences.layout().num_tokens + options.padding;
  sequences.mutable_layout().num_tokens = n;
  TapeRunner runner(options.threads);
  const Value all = Input(runner.tape(), &fused, {n, qw + kw + vw});
  QkvView view{all.Slice(1, 0, qw).SplitLast(spec.heads, spec.head_dim),
               all.Slice(1, qw, qw + kw).SplitLast(spec.kv_heads, spec.head_dim),
               all.Slice(1, qw + kw, qw + kw + vw).SplitLast(spec.kv_heads, spec.v_head_dim)};
  std::vector<float> angles = options.angles;
  if (!angles.empty()) {
    const int64_t rotary_dim = static_cast<int64_t>(angles.size()) / (n - options.padding);
    angles.resize(static_cast<size_t>(n * rotary_dim), NAN);
    view.angles = Input(runner.tape(), &angles, {n, rotary_dim});
    view.pairing = options.pairing;
  }
  const Value out = layer->Run(runner.tape(), view, call);
  EXPECT_EQ(out.shape(), Shape({n, spec.heads * spec.v_head_dim}));
  return runner.Run(out);
}

// A cross layer: one tape appends the encoder's rows, another attends them.
inline std::vector<float> RunCross(const AttentionBackend& backend, const AttentionSpec& spec,
                                   const std::vector<TestRequest>& requests,
                                   const std::vector<SequenceData>& data,
                                   const RunOptions& options = {}) {
  std::vector<float> k;
  std::vector<float> v;
  std::vector<Sequences::Part> encode;
  int64_t tokens = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    encode.push_back({RequestPhase::kPrefill, requests[i].cross, 0, requests[i].cross});
    tokens += requests[i].cross + requests[i].before + requests[i].rows;
    k.insert(k.end(), data[i].k.begin(), data[i].k.end());
    v.insert(v.end(), data[i].v.begin(), data[i].v.end());
  }
  Sequences sequences(CacheSpecOf(spec, backend), static_cast<int64_t>(requests.size()), tokens,
                      options.seed);
  sequences.Admit(requests);
  const auto layer = backend.CreateLayer(spec);
  const AttentionCall call = sequences.Call(backend);
  sequences.SetStep(encode);
  {
    TapeRunner runner(options.threads);
    const int64_t n = sequences.layout().num_tokens;
    const Value k_in = Input(runner.tape(), &k, {n, spec.kv_heads, spec.head_dim});
    const Value v_in = Input(runner.tape(), &v, {n, spec.kv_heads, spec.v_head_dim});
    EXPECT_TRUE(layer->Run(runner.tape(), {{}, k_in, v_in}, call).empty());
    runner.Run(v_in);
  }
  sequences.SetRequests(requests);
  sequences.Prepare(backend);
  const auto q = Collect(requests, data, &SequenceData::q, spec.heads * spec.head_dim, false);
  TapeRunner runner(options.threads);
  const Value q_in =
      Input(runner.tape(), &q, {sequences.layout().num_tokens, spec.heads, spec.head_dim});
  return runner.Run(layer->Run(runner.tape(), {q_in, {}, {}}, call));
}

// The largest difference; infinite when the sizes differ or something is not a number.
inline double Distance(const std::vector<float>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    if (!(difference <= worst)) worst = std::isnan(difference) ? INFINITY : difference;
  }
  return worst;
}

// VANILLA rounds once, to float; NATIVE adds floats, where allowed products of bf16: weights and
// values of up to 1 are off by 2^-9 of themselves, scores by about that of a random walk.
inline double ToleranceOf(const AttentionBackend& backend, const AttentionSpec& spec) {
  if (backend.name() == "VANILLA") return 1e-6;
  if (spec.compute == Compute::kFp32) return 1e-5;
  return 5e-3 *
         (1 + static_cast<double>(spec.scale) * std::sqrt(static_cast<double>(spec.head_dim)));
}

// The kernels that a layer's step takes.
inline std::vector<std::string> KernelsOf(const AttentionBackend& backend,
                                          const AttentionSpec& spec,
                                          const std::vector<TestRequest>& requests) {
  int64_t tokens = 0;
  for (const TestRequest& r : requests) tokens += r.before + r.rows;
  Sequences sequences(CacheSpecOf(spec, backend), static_cast<int64_t>(requests.size()), tokens, 1);
  sequences.Admit(requests);
  sequences.SetRequests(requests);
  const auto layer = backend.CreateLayer(spec);
  Tape tape(Kernels());
  const int64_t n = sequences.layout().num_tokens;
  const std::vector<float> none;
  const QkvView view{Input(tape, &none, {n, spec.heads, spec.head_dim}),
                     Input(tape, &none, {n, spec.kv_heads, spec.head_dim}),
                     Input(tape, &none, {n, spec.kv_heads, spec.v_head_dim})};
  layer->Run(tape, view, sequences.Call(backend));
  std::vector<std::string> names;
  for (const Tape::Record& record : tape.records()) names.emplace_back(record.kernel);
  return names;
}

}  // namespace tenon::test
