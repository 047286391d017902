#include "tenon/attention/backends/paged_layer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tenon/tensor/buffer.h"

namespace tenon::backends {
namespace {

int64_t FloatStride(const Value& value, int dim) {
  TN_CHECK(value.dtype() == DType::kF32, "attention works on fp32 activations");
  return value.stride_bytes(dim) / static_cast<int64_t>(sizeof(float));
}

KvPageFormat PageFormatOf(const LayerFacts& facts, int64_t page_tokens) {
  return KvPageFormatOf(facts.spec().Cached(facts.layout()), page_tokens);
}

const int32_t* PagesOf(const LayerArgs& layer, int32_t request) {
  const GroupPages& pages = layer.layout->groups[static_cast<size_t>(layer.cache->group)];
  TN_DCHECK(pages.page_tokens == layer.cache->page_tokens, "page tables of the layer's own group");
  return pages.pages + static_cast<int64_t>(request) * pages.max_pages;
}

int64_t CachedRowsOf(const LayerFacts& facts, const StepRequest& r) {
  return facts.spec().kind == AttentionKind::kCross ? r.cross_len : r.kv_len;
}

// Page and slot of the cached row that row t of the step becomes.
struct Place {
  std::byte* page = nullptr;
  int64_t slot = 0;
};

Place PlaceOf(const LayerArgs& layer, int32_t request, int64_t t) {
  const StepRequest& r = layer.layout->requests[static_cast<size_t>(request)];
  const int64_t row = CachedRowsOf(*layer.facts, r) - (r.end - t);
  const int32_t page = PagesOf(layer, request)[row / layer.cache->page_tokens];
  return {layer.cache->base + page * layer.cache->page_bytes, row % layer.cache->page_tokens};
}

// The row of one head at a place, to be written or read.
StoredRow RowIn(const KvPartFormat& part, const Place& at, int64_t head) {
  StoredRow row;
  row.codes = at.page + part.codes + at.slot * part.slot + head * part.head;
  if (part.scale_slot > 0)
    row.scales = at.page + part.scales + at.slot * part.scale_slot + head * part.scale_head;
  return row;
}
StoredRow KeyIn(const LayerFacts& facts, const KvPageFormat& page, const Place& at, int64_t head) {
  StoredRow row = RowIn(page.k, at, head);
  row.dtype = facts.spec().kv_dtype;
  row.scale = facts.spec().k_scale;
  return row;
}
StoredRow ValueIn(const LayerFacts& facts, const KvPageFormat& page, const Place& at,
                  int64_t head) {
  StoredRow row = RowIn(page.v, at, head);
  row.dtype = facts.spec().kv_dtype;
  row.scale = facts.spec().v_scale;
  return row;
}

struct AppendArgs {
  Operand q, k, v;    // q: only to be rotated
  Rotation rotation;  // of q and k
  LayerArgs layer;
  int64_t q_row = 0, q_head = 0, k_row = 0, k_head = 0, v_row = 0, v_head = 0;  // floats
};

void RunAppend(const AppendArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const int64_t kv_heads = a.layer.facts->heads().kv_heads;
  for (int64_t t = begin; t < end; ++t) {
    if (RequestOfRow(*a.layer.layout, t) < 0) return;
    const float* k = a.k.For<float>(context.thread) + t * a.k_row;
    const float* v = a.v.For<float>(context.thread) + t * a.v_row;
    for (int64_t head = 0; head < kv_heads; ++head) {
      StoreNewRow(a.layer, t, head, {k + head * a.k_head, v + head * a.v_head});
    }
  }
}

// Scratch: a row of k.
void RunRopeAppend(const AppendArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const HeadGeometry& h = a.layer.facts->heads();
  auto* rotated = reinterpret_cast<float*>(context.scratch);
  for (int64_t t = begin; t < end; ++t) {
    if (RequestOfRow(*a.layer.layout, t) < 0) return;
    float* q = a.q.For<float>(context.thread) + t * a.q_row;
    for (int64_t head = 0; head < h.heads; ++head, q += a.q_head) {
      a.rotation.Run(context.thread, t, q, q, h.k_width);
    }
    const float* k = a.k.For<float>(context.thread) + t * a.k_row;
    const float* v = a.v.For<float>(context.thread) + t * a.v_row;
    for (int64_t head = 0; head < h.kv_heads; ++head) {
      a.rotation.Run(context.thread, t, k + head * a.k_head, rotated, h.k_width);
      StoreNewRow(a.layer, t, head, {rotated, v + head * a.v_head});
    }
  }
}

struct LatentArgs {
  Operand latent;
  LayerArgs layer;
  int64_t row_stride = 0;   // floats
  int64_t chunk_begin = 0;  // gather: first cached row
};

void RunAppendLatent(const LatentArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const LayerFacts& facts = *a.layer.facts;
  const KvPageFormat format = PageFormatOf(facts, a.layer.cache->page_tokens);
  for (int64_t t = begin; t < end; ++t) {
    const int32_t request = RequestOfRow(*a.layer.layout, t);
    if (request < 0) return;
    facts.kernels().store(a.latent.For<float>(context.thread) + t * a.row_stride,
                          KeyIn(facts, format, PlaceOf(a.layer, request, t), 0),
                          facts.heads().k_width);
  }
}

void RunGatherLatent(const LatentArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const LayerFacts& facts = *a.layer.facts;
  const int64_t width = facts.heads().k_width;
  const KvPageFormat format = PageFormatOf(facts, a.layer.cache->page_tokens);
  const StepRequest& r = a.layer.layout->requests[0];
  const int64_t context_rows = r.kv_len - (r.end - r.begin);
  const int32_t* pages = PagesOf(a.layer, 0);
  for (int64_t i = begin; i < end; ++i) {
    float* out = a.latent.For<float>(context.thread) + i * width;
    const int64_t row = a.chunk_begin + i;
    if (row >= context_rows) {
      std::memset(out, 0, static_cast<size_t>(width) * sizeof(float));
      continue;
    }
    const int64_t page = pages[row / a.layer.cache->page_tokens];
    const Place place{a.layer.cache->base + page * a.layer.cache->page_bytes,
                      row % a.layer.cache->page_tokens};
    facts.kernels().load(KeyIn(facts, format, place, 0), out, width);
  }
}

struct MergeArgs {
  Operand a, a_stats, b, b_stats, out, out_stats;
  const AttentionKernels* kernels = nullptr;
  int64_t width = 0;
};

void RunMerge(const MergeArgs& m, const RunContext& context, int64_t begin, int64_t end) {
  const auto at = [&](const Operand& operand, int64_t offset) {
    return operand.For<float>(context.thread) + offset;
  };
  for (int64_t i = begin; i < end; ++i) {
    m.kernels->merge({at(m.a, i * m.width), at(m.a_stats, i * 2)},
                     {at(m.b, i * m.width), at(m.b_stats, i * 2)}, at(m.out, i * m.width),
                     at(m.out_stats, i * 2), m.width);
  }
}

void SetPagedSource(const LayerArgs& layer, int32_t request, KeyValueSource& source) {
  const KvPageFormat format = PageFormatOf(*layer.facts, layer.cache->page_tokens);
  const AttentionSpec& spec = layer.facts->spec();
  source.pages = PagesOf(layer, request);
  source.page_bytes = layer.cache->page_bytes;
  source.page_tokens = layer.cache->page_tokens;
  source.dtype = spec.kv_dtype;
  source.k = layer.cache->base + format.k.codes;
  source.k_slot_stride = format.k.slot;
  source.k_head_stride = format.k.head;
  source.v = layer.cache->base + format.v.codes;
  source.v_slot_stride = format.v.slot;
  source.v_head_stride = format.v.head;
  source.k_scale = spec.k_scale;
  source.v_scale = spec.mla ? spec.k_scale : spec.v_scale;  // a latent's value is part of its key
  if (format.k.scale_slot == 0) return;
  source.k_scales = layer.cache->base + format.k.scales;
  source.k_scale_slot_stride = format.k.scale_slot;
  source.k_scale_head_stride = format.k.scale_head;
  source.v_scales = layer.cache->base + format.v.scales;
  source.v_scale_slot_stride = format.v.scale_slot;
  source.v_scale_head_stride = format.v.scale_head;
}

// Dense rows from `first_row` of the values.
void SetDenseSource(const AttendRecord& a, const RunContext& context, int64_t first_row,
                    KeyValueSource& source) {
  constexpr int64_t kFloat = sizeof(float);
  source.k =
      reinterpret_cast<const std::byte*>(a.k.For<float>(context.thread) + first_row * a.k_row);
  source.k_slot_stride = a.k_row * kFloat;
  source.k_head_stride = a.k_head * kFloat;
  source.v =
      reinterpret_cast<const std::byte*>(a.v.For<float>(context.thread) + first_row * a.v_row);
  source.v_slot_stride = a.v_row * kFloat;
  source.v_head_stride = a.v_head * kFloat;
  source.k2_width = a.k2_width;
  if (a.k2_width == 0) return;
  source.k2 = a.k2.For<float>(context.thread) + first_row * a.k2_row;
  source.k2_slot_stride = a.k2_row;
}

}  // namespace

HeadGeometry GeometryOf(const AttentionSpec& spec) {
  return {spec.heads, spec.kv_heads, spec.head_dim, spec.v_head_dim};
}

HeadGeometry LatentGeometryOf(const AttentionSpec& spec) {
  return {spec.heads, 1, spec.CachedWidth(), spec.mla->kv_lora_rank};
}

HeadGeometry ExpandedGeometryOf(const AttentionSpec& spec) {
  return {spec.heads, spec.heads, spec.mla->qk_nope_head_dim, spec.mla->v_head_dim};
}

LayerFacts::LayerFacts(const AttentionSpec& spec, KvLayout layout, const HeadGeometry& heads,
                       const AttentionKernels& kernels)
    : spec_(spec), layout_(layout), heads_(heads), kernels_(kernels) {
  if (!spec.relative_bias) return;
  for (int64_t distance = 0; distance <= spec.relative_bias->max_distance; ++distance) {
    buckets_before_.push_back(BucketOf(*spec.relative_bias, -distance));
    buckets_after_.push_back(BucketOf(*spec.relative_bias, distance));
  }
}

ScoreRules LayerFacts::Rules() const {
  ScoreRules rules;
  rules.scale = spec_.scale;
  rules.softcap = spec_.softcap;
  rules.causal = spec_.kind == AttentionKind::kDecoder;
  rules.window = spec_.window.value_or(0);
  rules.chunk = spec_.chunk.value_or(0);
  rules.sinks = spec_.sinks == nullptr ? nullptr : *spec_.sinks;
  rules.alibi = spec_.alibi_slopes == nullptr ? nullptr : *spec_.alibi_slopes;
  rules.heads = spec_.heads;
  if (!spec_.relative_bias) return rules;
  rules.bias = *spec_.relative_bias->table;
  rules.buckets_before = buckets_before_.data();
  rules.buckets_after = buckets_after_.data();
  rules.max_distance = spec_.relative_bias->max_distance;
  return rules;
}

int64_t CoveredRows(const StepLayout& layout) {
  return layout.requests.empty() ? 0 : layout.requests.back().end;
}

int32_t RequestOfRow(const StepLayout& layout, int64_t row) {
  for (size_t i = 0; i < layout.requests.size(); ++i) {
    if (row < layout.requests[i].end) return static_cast<int32_t>(i);
  }
  return -1;
}

void StoreNewRow(const LayerArgs& layer, int64_t t, int64_t kv_head, const NewRow& row) {
  const LayerFacts& facts = *layer.facts;
  const KvPageFormat format = PageFormatOf(facts, layer.cache->page_tokens);
  const Place place = PlaceOf(layer, RequestOfRow(*layer.layout, t), t);
  facts.kernels().store(row.k, KeyIn(facts, format, place, kv_head), facts.heads().k_width);
  facts.kernels().store(row.v, ValueIn(facts, format, place, kv_head), facts.heads().v_width);
}

QkvView Rotated(Tape& tape, const QkvView& qkv) {
  if (qkv.angles.empty()) return qkv;
  return {tenon::Rotated(tape, qkv.q, qkv.angles, qkv.pairing),
          tenon::Rotated(tape, qkv.k, qkv.angles, qkv.pairing),
          qkv.v,
          {}};
}

void RecordAppend(Tape& tape, const LayerArgs& layer, const QkvView& qkv) {
  const HeadGeometry& h = layer.facts->heads();
  // Private rows are rotated by everyone, in place too.
  const bool own = !qkv.angles.empty() && tape.IsPrivate(qkv.q);
  const auto& [q, k, v, angles, pairing] = own ? Rotated(tape, qkv) : qkv;
  TN_CHECK(k.shape() == Shape({k.dim(0), h.kv_heads, h.k_width}) &&
               v.shape() == Shape({k.dim(0), h.kv_heads, h.v_width}),
           "k and v are [num_tokens, kv_heads, head_dim]");
  const bool rotates = !angles.empty();
  RecordBuilder<AppendArgs> record(tape, rotates ? "rope_append" : "kv_append",
                                   rotates ? "reference/rope_append" : "reference/kv_append");
  AppendArgs& args = record.args();
  args.layer = layer;
  args.k_row = FloatStride(k, 0);
  args.k_head = FloatStride(k, 1);
  args.v_row = FloatStride(v, 0);
  args.v_head = FloatStride(v, 1);
  record.Read(&AppendArgs::k, k).Read(&AppendArgs::v, v).WriteResource(layer.cache);
  Work work{.items = k.dim(0), .grain = RowGrain(k.dim(0))};
  if (!rotates) return record.Commit<RunAppend>(work);
  args.q_row = FloatStride(q, 0);
  args.q_head = FloatStride(q, 1);
  args.rotation = RotationBy(tape, angles, pairing);
  record.Update(&AppendArgs::q, q).ReadInto(args.rotation.angles, angles);
  work.scratch_bytes = RoundUp(h.k_width * static_cast<int64_t>(sizeof(float)), Buffer::kAlignment);
  record.Commit<RunRopeAppend>(work);
}

void RecordAppendLatent(Tape& tape, const LayerArgs& layer, const Value& latent) {
  TN_CHECK(latent.dim(-1) == layer.facts->heads().k_width, "latents are [num_tokens, r + p]");
  RecordBuilder<LatentArgs> record(tape, "mla_append", "reference/mla_append");
  record.args().layer = layer;
  record.args().row_stride = FloatStride(latent, 0);
  record.Read(&LatentArgs::latent, latent).WriteResource(layer.cache);
  record.Commit<RunAppendLatent>({.items = latent.dim(0), .grain = RowGrain(latent.dim(0))});
}

Value RecordGatherLatent(Tape& tape, const LayerArgs& layer, int64_t chunk, int64_t chunk_rows) {
  const Value rows = tape.NewValue(DType::kF32, {chunk_rows, layer.facts->heads().k_width});
  RecordBuilder<LatentArgs> record(tape, "mla_gather", "reference/mla_gather");
  record.args().layer = layer;
  record.args().chunk_begin = chunk * chunk_rows;
  record.Write(&LatentArgs::latent, rows).ReadResource(layer.cache);
  record.Commit<RunGatherLatent>({.items = chunk_rows, .grain = 16});
  return rows;
}

MlaLayer::Partial RecordMerge(Tape& tape, const AttentionKernels& kernels,
                              const MlaLayer::Partial& a, const MlaLayer::Partial& b) {
  TN_CHECK(a.out.shape() == b.out.shape(), "partials of the same queries");
  const MlaLayer::Partial sum{tape.NewValue(DType::kF32, a.out.shape()),
                              tape.NewValue(DType::kF32, a.stats.shape())};
  RecordBuilder<MergeArgs> record(tape, "attention_merge", "reference/attention_merge");
  record.args().kernels = &kernels;
  record.args().width = a.out.dim(2);
  record.Read(&MergeArgs::a, a.out).Read(&MergeArgs::a_stats, a.stats);
  record.Read(&MergeArgs::b, b.out).Read(&MergeArgs::b_stats, b.stats);
  record.Write(&MergeArgs::out, sum.out).Write(&MergeArgs::out_stats, sum.stats);
  record.Commit<RunMerge>({.items = a.out.dim(0) * a.out.dim(1), .grain = 8});
  return sum;
}

AttendInput ExpandedInput(const MlaLayer::Expanded& rows) {
  return {.q = rows.q,
          .k = rows.k_nope,
          .v = rows.v,
          .k2 = rows.k_rope,
          .source = rows.chunk < 0 ? KeySource::kOwnRows : KeySource::kGathered,
          .chunk = rows.chunk,
          .chunk_rows = rows.chunk_rows};
}

void FillAttend(const Tape& tape, const AttendInput& input, const LayerArgs& layer,
                RecordBuilder<AttendRecord>& record) {
  const HeadGeometry& h = layer.facts->heads();
  AttendRecord& a = record.args();
  a.layer = layer;
  a.source = input.source;
  a.num_tokens = input.q.dim(0);
  a.k2_width = input.k2.empty() ? 0 : input.k2.dim(-1);
  TN_CHECK(input.q.shape() == Shape({a.num_tokens, h.heads, h.k_width + a.k2_width}),
           "q is [num_tokens, heads, head_dim]");
  a.q_row = FloatStride(input.q, 0);
  a.q_head = FloatStride(input.q, 1);
  record.Read(&AttendRecord::q, input.q);
  a.appends = input.source == KeySource::kPaged && !input.k.empty();
  TN_CHECK(a.appends || input.angles.empty(), "what is rotated is appended");
  if (!input.angles.empty()) {
    a.rotation = RotationBy(tape, input.angles, input.pairing);
    record.ReadInto(a.rotation.angles, input.angles);
  }
  if (a.appends) {
    record.WriteResource(layer.cache);
  } else if (input.source == KeySource::kPaged) {
    record.ReadResource(layer.cache);
    return;
  }
  TN_CHECK(input.k.shape() == Shape({input.k.dim(0), h.kv_heads, h.k_width}) &&
               input.v.shape() == Shape({input.k.dim(0), h.kv_heads, h.v_width}),
           "k and v are [rows, kv_heads, head_dim]");
  a.chunk_begin = input.chunk * input.chunk_rows;
  a.chunk_rows = input.chunk_rows;
  a.k_row = FloatStride(input.k, 0);
  a.k_head = FloatStride(input.k, 1);
  a.v_row = FloatStride(input.v, 0);
  a.v_head = FloatStride(input.v, 1);
  record.Read(&AttendRecord::k, input.k).Read(&AttendRecord::v, input.v);
  if (a.k2_width == 0) return;
  a.k2_row = FloatStride(input.k2, 0);
  record.Read(&AttendRecord::k2, input.k2);
}

MlaLayer::Partial NewPartial(Tape& tape, const LayerFacts& facts, int64_t num_tokens,
                             bool with_stats) {
  const HeadGeometry& h = facts.heads();
  MlaLayer::Partial partial{tape.NewValue(DType::kF32, {num_tokens, h.heads, h.v_width}), {}};
  if (with_stats) partial.stats = tape.NewValue(DType::kF32, {num_tokens, h.heads, 2});
  return partial;
}

AttendArgs ArgsOf(const AttendRecord& a, const RunContext& context, const ScoreRules& rules,
                  const RowBlock& block, int64_t kv_head) {
  const LayerFacts& facts = *a.layer.facts;
  const StepRequest& r = a.layer.layout->requests[static_cast<size_t>(block.request)];
  const int64_t rows = r.end - r.begin;
  // Rows before this step's. Positions of a cross layer mean nothing, an encoder's start at 0.
  const int64_t before = facts.spec().kind == AttentionKind::kDecoder ? r.kv_len - rows : 0;
  AttendArgs args;
  args.rules = &rules;
  args.kv_head = kv_head;
  args.group = facts.heads().group();
  args.first_head = kv_head * args.group;
  args.k_width = facts.heads().k_width;
  args.v_width = facts.heads().v_width;
  args.rows = block.rows;
  args.position = before + block.row - r.begin;
  args.q = a.q.For<float>(context.thread) + block.row * a.q_row + args.first_head * a.q_head;
  args.q_row_stride = a.q_row;
  args.q_head_stride = a.q_head;
  TN_CHECK(r.mask == nullptr || facts.spec().custom_mask,
           "masks are brought to layers that were selected for them");
  args.mask = r.mask;
  args.mask_row = block.row - r.begin;
  args.mask_columns = facts.spec().kind == AttentionKind::kCross ? r.cross_len : before + rows;
  switch (a.source) {
    case KeySource::kPaged:
      SetPagedSource(a.layer, block.request, args.source);
      args.key_end = CachedRowsOf(facts, r);
      break;
    case KeySource::kOwnRows:
      SetDenseSource(a, context, r.begin, args.source);
      args.source.position = before;
      args.key_end = rows;
      break;
    case KeySource::kGathered:
      SetDenseSource(a, context, 0, args.source);
      args.source.position = a.chunk_begin;
      if (block.request == 0)
        args.key_end = std::clamp<int64_t>(before - a.chunk_begin, 0, a.chunk_rows);
      break;
  }
  return args;
}

AttendOut OutOf(const AttendRecord& a, const RunContext& context, const AttendArgs& args,
                int64_t row) {
  const int64_t heads = a.layer.facts->heads().heads;
  const int64_t at = row * heads + args.first_head;
  AttendOut out;
  out.out = a.out.For<float>(context.thread) + at * args.v_width;
  out.row_stride = heads * args.v_width;
  out.head_stride = args.v_width;
  if (a.stats.base == nullptr) return out;
  out.stats = a.stats.For<float>(context.thread) + at * 2;
  out.stats_row_stride = heads * 2;
  out.stats_head_stride = 2;
  return out;
}

void ClearRows(const AttendRecord& a, const RunContext& context, int64_t begin, int64_t end) {
  const HeadGeometry& h = a.layer.facts->heads();
  if (begin >= end) return;
  std::memset(a.out.For<float>(context.thread) + begin * h.heads * h.v_width, 0,
              static_cast<size_t>((end - begin) * h.heads * h.v_width) * sizeof(float));
  if (a.stats.base == nullptr) return;
  for (int64_t i = begin * h.heads; i < end * h.heads; ++i) {
    float* stats = a.stats.For<float>(context.thread) + i * 2;
    stats[0] = -std::numeric_limits<float>::infinity();
    stats[1] = 0;
  }
}

}  // namespace tenon::backends
