#include "tenon/modules/attention.h"

#include "tenon/cache/cache_plan.h"

#include <fmt/format.h>

namespace tenon {
namespace {

// "3", then "3_0", "3_1": several attentions of one layer index (decoder self and cross) stay
// apart.
void RegisterAttention(LoadContext& context, int layer, AttentionCore* core) {
  std::string key = std::to_string(layer);
  for (int suffix = 0; context.attention_layers.contains(key); ++suffix) {
    key = fmt::format("{}_{}", layer, suffix);
  }
  context.attention_layers.emplace(key, core);
}

}  // namespace

AttentionCore::AttentionCore(const Scope& scope, const AttentionSpec& spec)
    : Module(scope), spec_(spec) {
  const ConstructionOptions& options = scope.context().options;
  const DType full = options.kv_dtype.value;
  const DType window = options.window_kv_dtype.value_or(full);
  spec_.kv_dtype = spec_.IsLocal() ? window : full;
  if (window != full && spec_.kind != AttentionKind::kEncoder)
    spec_.other_kv_dtype = spec_.IsLocal() ? full : window;
  spec_.compute = options.compute.value;
  spec_.deterministic = options.deterministic;
  if (options.page_tokens.value > 0) {
    spec_.page_tokens = static_cast<int32_t>(options.page_tokens.value);
  } else if (const KvGeometry rows = spec_.Cached(KvLayout::kNhd); rows.Exists()) {
    spec_.page_tokens = PageTokensFor(rows.RowBytes());  // else no backend will be found
  }
  RegisterAttention(scope.context(), spec.layer, this);
}

void AttentionCore::SelectAttention(LoadContext& context) {
  const Sourced<std::string>& wanted = context.options.attention_backend;
  choice_ = SelectBackend(wanted, spec_, context.machine, *context.backends,
                          {.kv_dtype = context.options.kv_dtype.origin,
                           .page_tokens = context.options.page_tokens.origin,
                           .compute = context.options.compute.origin});
  if (choice_.backend == nullptr) {
    for (const std::string& refusal : choice_.RefusalTexts())
      context.Error(path() + ": " + refusal);
    return;
  }
  backend_ = choice_.backend;
  context.Record({.field = "attention.backend",
                  .requested = wanted.value,
                  .resolved = std::string(backend_->name()),
                  .by = "attention selector",
                  .why = choice_.Why(),
                  .layer = spec_.layer});
  if (spec_.mla) {
    mla_layer_ = backend_->CreateMlaLayer(spec_);
  } else {
    layer_ = backend_->CreateLayer(spec_);
  }
  if (spec_.kind == AttentionKind::kEncoder)
    return;  // attends this step's rows: nothing to remember
  CacheSpec cache;
  cache.kind = spec_.kind == AttentionKind::kCross ? CacheKind::kCross : CacheKind::kPagedRows;
  cache.layer = spec_.layer;
  cache.dtype = spec_.kv_dtype;
  cache.layout = spec_.mla ? KvLayout::kRow : spec_.kv_layout.value_or(backend_->layout());
  cache.row_bytes = spec_.Cached(cache.layout).RowBytes();
  cache.window = spec_.window;
  cache.chunk = spec_.chunk;
  cache.page_tokens = spec_.page_tokens;
  context.caches.push_back({cache, &cache_});
}

AttentionCall AttentionCore::CallFor(Forward& pass) const {
  AttentionCall call;
  call.layout = &pass.layout();
  call.plan = pass.plans().Find(*backend_, cache_.group);
  call.cache = spec_.kind == AttentionKind::kEncoder ? nullptr : &cache_;
  return call;
}

Value AttentionCore::Run(Forward& pass, const QkvView& qkv) const {
  return layer_->Run(pass.tape(), qkv, CallFor(pass));
}

AttentionSpec LocalHeads(const Scope& scope, AttentionSpec spec) {
  const ParallelMapping& mapping = scope.context().options.mapping;
  Share heads;
  Share kv_heads;
  if (DivideEvenly(mapping, spec.heads, 0, heads) &&
      DivideEvenly(mapping, spec.kv_heads, 0, kv_heads)) {
    spec.heads = static_cast<int32_t>(heads.size);
    spec.kv_heads = static_cast<int32_t>(kv_heads.size);
  }
  return spec;
}

SelfAttention::SelfAttention(const Scope& scope, const SelfAttentionOptions& o)
    : rope_(o.rope),
      pairing_(o.pairing),
      core_(scope, LocalHeads(scope, o.spec)),
      qkv_(scope, "qkv_proj", o.hidden,
           {{o.q, o.spec.heads * o.spec.head_dim, o.qkv_bias, o.spec.heads},
            {o.k, o.spec.kv_heads * o.spec.head_dim, o.qkv_bias, o.spec.kv_heads},
            {o.v, o.spec.kv_heads * o.spec.v_head_dim, o.qkv_bias, o.spec.kv_heads}},
           LinearShare::kRows),
      o_(scope / o.o, o.spec.heads * o.spec.v_head_dim, o.hidden, o.o_bias, LinearShare::kColumns) {
  if (o.head_norm) {
    q_norm_.emplace(scope / o.q_norm, *o.head_norm);
    k_norm_.emplace(scope / o.k_norm, *o.head_norm);
  }
}

Value SelfAttention::operator()(Forward& pass, const Value& x) const {
  const AttentionSpec& spec = core_.spec();
  const Value qkv = qkv_(pass, x);
  QkvView view{qkv_.SegmentOf(qkv, 0).SplitLast(spec.heads, spec.head_dim),
               qkv_.SegmentOf(qkv, 1).SplitLast(spec.kv_heads, spec.head_dim),
               qkv_.SegmentOf(qkv, 2).SplitLast(spec.kv_heads, spec.v_head_dim)};
  if (q_norm_) {
    view.q = (*q_norm_)(pass, view.q);
    view.k = (*k_norm_)(pass, view.k);
  }
  if (rope_ != nullptr) {
    view.angles = pass.Angles(*rope_);
    view.pairing = pairing_;
  }
  return o_(pass, core_.Run(pass, view));
}

}  // namespace tenon
