// Attention of one sequence, as the engine runs it: a cache with pages, a prepared plan, a tape
// that appends the step's rows and attends. Decode walks enough layers that their rows are in no
// cache.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <memory>

#include "cases.h"
#include "tape_run.h"
#include "tenon/attention/capability.h"
#include "tenon/cache/cache_manager.h"
#include "tenon/ops/probe.h"

namespace tenon::bench {
namespace {

struct AttentionShape {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  DType kv_dtype = DType::kBF16;
  int64_t context = 0;   // rows in the cache after the step
  bool prefill = false;  // all of them are the step's own; else one is
};

class AttentionRun {
 public:
  AttentionRun(const Setup& setup, const AttentionShape& shape)
      : setup_(setup),
        shape_(shape),
        table_(BuiltinBackends(*setup.kernels)),
        backend_(table_.Find("NATIVE")),
        run_(*setup.kernels, *setup.team) {
    spec_.heads = shape.heads;
    spec_.kv_heads = shape.kv_heads;
    spec_.head_dim = spec_.v_head_dim = shape.head_dim;
    spec_.scale = 0.125f;
    spec_.kv_dtype = shape.kv_dtype;
    row_bytes_ = spec_.CachedWidth() * RowBytes(shape.kv_dtype, 1);
    spec_.page_tokens = PageTokensFor(row_bytes_);
    AllocateCache(shape.prefill ? 1 : std::max<int64_t>(1, setup.pool->size() / LayerBytes()));
    Record();
  }

  const char* kernel() { return run_.KernelOf("attention"); }
  int64_t layers() const { return static_cast<int64_t>(caches_.size()); }
  int64_t LayerBytes() const { return shape_.context * row_bytes_; }
  // Causal: row i sees i + 1 keys, each of which costs a product with q and one with its weight.
  double LayerOperations() const {
    const double n = static_cast<double>(shape_.context);
    const double pairs = shape_.prefill ? n * (n + 1) / 2 : n;
    return 4.0 * static_cast<double>(shape_.head_dim * shape_.heads) * pairs;
  }
  void Step() { run_.Run(); }
  double SecondsToReadAll() const {
    double seconds = 0;
    for (const LayerCache& cache : caches_) {
      seconds += SecondsToRead(*setup_.kernels, *setup_.team, cache.base, LayerBytes());
    }
    return seconds;
  }

 private:
  void AllocateCache(int64_t layers) {
    cache_spec_ = {.kind = CacheKind::kPagedRows,
                   .row_bytes = row_bytes_,
                   .dtype = shape_.kv_dtype,
                   .layout = backend_->layout(),
                   .page_tokens = spec_.page_tokens};
    caches_.resize(test::At(layers));
    std::vector<LayerCache*> addresses;
    for (LayerCache& cache : caches_) addresses.push_back(&cache);
    const std::vector<CacheSpec> specs(test::At(layers), cache_spec_);
    auto manager =
        CacheManager::Create(specs, addresses, {.tokens = shape_.context, .max_sequences = 1});
    TN_CHECK(manager.ok(), manager.message().c_str());
    manager_ = *std::move(manager);
    const auto pool_bytes = test::At(manager_->plan().groups[0].pool_bytes);
    // Small numbers in bf16 and fp32, and memory of its own for every page.
    for (const LayerCache& cache : caches_) std::memset(cache.base, 0x3C, pool_bytes);
    const int32_t sequence = *manager_->Admit();
    TN_CHECK(manager_->Append(sequence, shape_.context).ok(), "the cache has room");
    pages_ = {manager_->PagesOf(sequence, 0).data(), static_cast<int32_t>(manager_->max_pages(0)),
              caches_[0].page_tokens};
  }

  void Record() {
    const int64_t rows = shape_.prefill ? shape_.context : 1;
    request_ = {.phase = shape_.prefill ? RequestPhase::kPrefill : RequestPhase::kDecode,
                .end = static_cast<int32_t>(rows),
                .kv_len = static_cast<int32_t>(shape_.context)};
    layout_.num_tokens = rows;
    layout_.requests = {&request_, 1};
    layout_.groups = {&pages_, 1};
    plan_ = backend_->CreatePlan(0, cache_spec_);
    backend_->Prepare(layout_, *plan_);
    layer_ = backend_->CreateLayer(spec_);
    const QkvView qkv{run_.Input({rows, spec_.heads, spec_.head_dim}),
                      run_.Input({rows, spec_.kv_heads, spec_.head_dim}),
                      run_.Input({rows, spec_.kv_heads, spec_.v_head_dim})};
    for (const LayerCache& cache : caches_) {
      layer_->Run(run_.tape(), qkv, {&layout_, plan_.get(), &cache});
    }
    run_.Seal();
  }

  const Setup& setup_;
  const AttentionShape shape_;
  BackendTable table_;
  const AttentionBackend* backend_;
  TapeRun run_;
  AttentionSpec spec_;
  CacheSpec cache_spec_;
  int64_t row_bytes_ = 0;
  std::deque<LayerCache> caches_;  // by layer
  std::unique_ptr<CacheManager> manager_;
  GroupPages pages_;
  StepRequest request_;
  StepLayout layout_;
  std::unique_ptr<StepPlan> plan_;
  std::unique_ptr<AttentionLayer> layer_;
};

Case MakeCase(const Setup& setup, const AttentionShape& shape) {
  const auto run = std::make_shared<AttentionRun>(setup, shape);
  Case work;
  work.kernel = run->kernel();
  work.unit = "layer";
  work.units = run->layers();
  const double layers = static_cast<double>(run->layers());
  work.pass = [run] { run->Step(); };
  if (shape.prefill) {
    work.operations = run->LayerOperations() * layers;
  } else {
    work.bytes = static_cast<double>(run->LayerBytes()) * layers;
    work.read = [run] { return run->SecondsToReadAll(); };
  }
  return work;
}

void Add(std::vector<CaseSpec>& cases, const AttentionShape& shape) {
  cases.push_back({shape.prefill ? "prefill" : "decode",
                   fmt::format("{}/{} heads of {}, {}, {} rows", shape.heads, shape.kv_heads,
                               shape.head_dim, NameOf(shape.kv_dtype), shape.context),
                   [shape](const Setup& setup) { return MakeCase(setup, shape); }});
}

}  // namespace

void AddAttentionCases(std::vector<CaseSpec>& cases) {
  struct Heads {
    int64_t heads, kv_heads, head_dim;
  };
  // SmolLM2-135M, Llama-3.2-1B, Llama-3.1-8B.
  for (const Heads& h : {Heads{9, 3, 64}, Heads{32, 8, 64}, Heads{32, 8, 128}}) {
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      for (const int64_t context : {512, 4096}) {
        Add(cases, {h.heads, h.kv_heads, h.head_dim, dtype, context, false});
      }
    }
    for (const int64_t context : {512, 2048}) {
      Add(cases, {h.heads, h.kv_heads, h.head_dim, DType::kBF16, context, true});
    }
  }
}

}  // namespace tenon::bench
