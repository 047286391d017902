#include "tenon/attention/backends/paged_layer.h"

#include <algorithm>
#include <cstring>

#include "tenon/numeric/codecs.h"
#include "tenon/tensor/buffer.h"

namespace tenon::backends {
namespace {

int64_t FloatStride(const Value& value, int dim) { return value.stride_bytes(dim) / 4; }

struct AppendArgs {
  Operand k, v;
  LayerArgs layer;
  int64_t k_row = 0, k_head = 0, v_row = 0, v_head = 0;  // floats
};

// Page address of cached row j of a request.
std::byte* PageOf(const LayerArgs& layer, int32_t request, int64_t j) {
  const GroupPages& pages = layer.plan->PagesOf(*layer.layout);
  const int32_t page =
      pages.pages[static_cast<int64_t>(request) * pages.max_pages + j / layer.cache->page_tokens];
  return layer.cache->base + page * layer.cache->page_bytes;
}

// The cached row that row t of the step becomes.
int64_t CachedRowOf(const LayerArgs& layer, int32_t request, int64_t t) {
  const StepRequest& r = layer.layout->requests[static_cast<size_t>(request)];
  const int64_t index = t - r.begin;
  if (layer.spec->kind == AttentionKind::kCross) return index;
  return r.kv_len - (r.end - r.begin) + index;
}

void RunAppend(const AppendArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const AttentionSpec& spec = *a.layer.spec;
  const int64_t page_tokens = a.layer.cache->page_tokens;
  const PageGeometry g = GeometryOf(spec, a.layer.kv_layout, page_tokens);
  const auto store = a.layer.kernels->attention.store;
  for (int64_t t = begin; t < end; ++t) {
    const int32_t request = RequestOfRow(*a.layer.layout, t);
    const int64_t j = CachedRowOf(a.layer, request, t);
    std::byte* page = PageOf(a.layer, request, j);
    const int64_t slot = j % page_tokens;
    const float* k = a.k.For<float>(context.thread) + t * a.k_row;
    const float* v = a.v.For<float>(context.thread) + t * a.v_row;
    for (int64_t h = 0; h < spec.kv_heads; ++h) {
      store(spec.kv_dtype, k + h * a.k_head, page + slot * g.k_slot + h * g.k_head, spec.head_dim);
      store(spec.kv_dtype, v + h * a.v_head, page + g.v_offset + slot * g.v_slot + h * g.v_head,
            spec.v_head_dim);
    }
  }
}

struct LatentArgs {
  Operand latent;
  LayerArgs layer;
  int64_t row_stride = 0;  // floats
  int64_t width = 0;
  int64_t chunk_begin = 0;  // gather: first cached row
};

void RunAppendLatent(const LatentArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const int64_t row_bytes = RowBytes(a.layer.spec->kv_dtype, a.width);
  for (int64_t t = begin; t < end; ++t) {
    const int32_t request = RequestOfRow(*a.layer.layout, t);
    const int64_t j = CachedRowOf(a.layer, request, t);
    std::byte* row = PageOf(a.layer, request, j) + j % a.layer.cache->page_tokens * row_bytes;
    a.layer.kernels->attention.store(a.layer.spec->kv_dtype,
                                     a.latent.For<float>(context.thread) + t * a.row_stride, row,
                                     a.width);
  }
}

void RunGatherLatent(const LatentArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const StepRequest& r = a.layer.layout->requests[0];
  const int64_t cached = r.kv_len - (r.end - r.begin);
  const int64_t row_bytes = RowBytes(a.layer.spec->kv_dtype, a.width);
  for (int64_t i = begin; i < end; ++i) {
    float* out = a.latent.For<float>(context.thread) + i * a.width;
    const int64_t j = a.chunk_begin + i;
    if (j >= cached) {
      std::memset(out, 0, static_cast<size_t>(a.width) * sizeof(float));
      continue;
    }
    const std::byte* row = PageOf(a.layer, 0, j) + j % a.layer.cache->page_tokens * row_bytes;
    if (a.layer.spec->kv_dtype == DType::kF32) {
      std::memcpy(out, row, static_cast<size_t>(row_bytes));
    } else {
      const auto* bits = reinterpret_cast<const uint16_t*>(row);
      for (int64_t c = 0; c < a.width; ++c) out[c] = Bf16ToFloat(bits[c]);
    }
  }
}

struct MergeArgs {
  Operand a, a_stats, b, b_stats, out, out_stats;
  const KernelTable* kernels = nullptr;
  int64_t width = 0;
};

void RunMerge(const MergeArgs& m, const RunContext& context, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    m.kernels->attention.merge(
        m.a.For<float>(context.thread) + i * m.width, m.a_stats.For<float>(context.thread) + i * 2,
        m.b.For<float>(context.thread) + i * m.width, m.b_stats.For<float>(context.thread) + i * 2,
        m.out.For<float>(context.thread) + i * m.width,
        m.out_stats.For<float>(context.thread) + i * 2, m.width);
  }
}

struct AttendRecordArgs {
  Operand q, k, v, k2, out, stats;
  LayerArgs layer;
  void (*attend)(const AttendArgs& args, float* scratch) = nullptr;
  int64_t q_row = 0, q_head = 0;                         // floats
  int64_t k_row = 0, k_head = 0, v_row = 0, v_head = 0;  // floats, dense sources
  int64_t k2_row = 0;
  int32_t chunk = -1;  // expanded MLA: a gathered chunk
  int64_t chunk_rows = 0;
};

// k and v of this step (encoder) or expanded rows (MLA).
void SetDenseSource(const AttendRecordArgs& a, const RunContext& context, int64_t first_row,
                    AttendArgs& args) {
  args.source.pages = nullptr;
  args.source.dtype = DType::kF32;
  args.source.k =
      reinterpret_cast<const std::byte*>(a.k.For<float>(context.thread) + first_row * a.k_row);
  args.source.k_slot_stride = a.k_row * 4;
  args.source.k_head_stride = a.k_head * 4;
  args.source.v =
      reinterpret_cast<const std::byte*>(a.v.For<float>(context.thread) + first_row * a.v_row);
  args.source.v_slot_stride = a.v_row * 4;
  args.source.v_head_stride = a.v_head * 4;
}

void RunAttend(const AttendRecordArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const AttentionSpec& spec = *a.layer.spec;
  const StepLayout& layout = *a.layer.layout;
  const int64_t group = spec.heads / spec.kv_heads;
  AttendArgs args;
  SetSpec(spec, args);
  args.group = group;
  args.k_width = spec.head_dim;
  args.v_width = spec.v_head_dim;
  args.q_head_stride = a.q_head;
  args.out_head_stride = spec.v_head_dim;
  for (int64_t item = begin; item < end; ++item) {
    const int64_t t = item / spec.kv_heads;
    args.kv_head = item % spec.kv_heads;
    args.first_head = args.kv_head * group;
    const int32_t request = RequestOfRow(layout, t);
    const StepRequest& r = layout.requests[static_cast<size_t>(request)];
    const int64_t rows = r.end - r.begin;
    if (spec.kind == AttentionKind::kEncoder) {
      SetDenseSource(a, context, r.begin, args);
      SetVisibleRange(spec, t - r.begin, rows, args);
    } else {
      SetPagedSource(a.layer, request, args);
      const bool cross = spec.kind == AttentionKind::kCross;
      SetVisibleRange(spec, cross ? 0 : r.kv_len - rows + (t - r.begin),
                      cross ? r.cross_len : r.kv_len, args);
    }
    args.q = a.q.For<float>(context.thread) + t * a.q_row + args.first_head * a.q_head;
    args.out =
        a.out.For<float>(context.thread) + (t * spec.heads + args.first_head) * spec.v_head_dim;
    a.attend(args, reinterpret_cast<float*>(context.scratch));
  }
}

void RunAttendLatent(const AttendRecordArgs& a, const RunContext& context, int64_t begin,
                     int64_t end) {
  const AttentionSpec& spec = *a.layer.spec;
  const StepLayout& layout = *a.layer.layout;
  const int64_t width = spec.CachedWidth();
  AttendArgs args;
  SetSpec(spec, args);
  args.group = spec.heads;
  args.k_width = width;
  args.v_width = spec.mla->kv_lora_rank;
  args.q_head_stride = a.q_head;
  args.out_head_stride = args.v_width;
  for (int64_t t = begin; t < end; ++t) {
    const int32_t request = RequestOfRow(layout, t);
    const StepRequest& r = layout.requests[static_cast<size_t>(request)];
    SetPagedSource(a.layer, request, args);
    args.source.k_slot_stride = args.source.v_slot_stride = RowBytes(spec.kv_dtype, width);
    args.source.k_head_stride = args.source.v_head_stride = 0;
    args.source.v = args.source.k;
    SetVisibleRange(spec, r.kv_len - (r.end - r.begin) + (t - r.begin), r.kv_len, args);
    args.q = a.q.For<float>(context.thread) + t * a.q_row;
    args.out = a.out.For<float>(context.thread) + t * spec.heads * args.v_width;
    a.attend(args, reinterpret_cast<float*>(context.scratch));
  }
}

void RunAttendExpanded(const AttendRecordArgs& a, const RunContext& context, int64_t begin,
                       int64_t end) {
  const AttentionSpec& spec = *a.layer.spec;
  const StepLayout& layout = *a.layer.layout;
  AttendArgs args;
  SetSpec(spec, args);
  args.group = 1;
  args.k_width = spec.mla->qk_nope_head_dim;
  args.v_width = spec.mla->v_head_dim;
  SetDenseSource(a, context, 0, args);
  args.source.k2 = a.k2.For<float>(context.thread);
  args.source.k2_slot_stride = a.k2_row;
  args.source.k2_width = spec.mla->qk_rope_head_dim;
  for (int64_t item = begin; item < end; ++item) {
    const int64_t t = item / spec.heads;
    const int64_t h = item % spec.heads;
    args.kv_head = h;
    args.first_head = h;
    const StepRequest& r = layout.requests[static_cast<size_t>(RequestOfRow(layout, t))];
    if (a.chunk < 0) {  // this step's own rows, causal
      args.begin = r.begin;
      args.end = t + 1;
    } else {
      const int64_t cached = r.kv_len - (r.end - r.begin) - a.chunk * a.chunk_rows;
      args.begin = 0;
      args.end = std::clamp<int64_t>(cached, 0, a.chunk_rows);
    }
    args.q = a.q.For<float>(context.thread) + t * a.q_row + h * a.q_head;
    args.out = a.out.For<float>(context.thread) + item * args.v_width;
    args.stats = a.stats.For<float>(context.thread) + item * 2;
    a.attend(args, reinterpret_cast<float*>(context.scratch));
  }
}

int64_t ScratchBytes(int64_t k_width, int64_t v_width, int64_t group) {
  return RoundUp(4 * AttendScratchFloats(k_width, v_width, group), Buffer::kAlignment);
}

}  // namespace

PageGeometry GeometryOf(const AttentionSpec& spec, KvLayout layout, int64_t page_tokens) {
  const int64_t k_head = RowBytes(spec.kv_dtype, spec.head_dim);
  const int64_t v_head = RowBytes(spec.kv_dtype, spec.v_head_dim);
  PageGeometry g;
  g.v_offset = page_tokens * spec.kv_heads * k_head;
  if (layout == KvLayout::kNhd) {
    g.k_slot = spec.kv_heads * k_head;
    g.k_head = k_head;
    g.v_slot = spec.kv_heads * v_head;
    g.v_head = v_head;
  } else {
    g.k_slot = k_head;
    g.k_head = page_tokens * k_head;
    g.v_slot = v_head;
    g.v_head = page_tokens * v_head;
  }
  return g;
}

int32_t RequestOfRow(const StepLayout& layout, int64_t row) {
  int32_t request = 0;
  while (row >= layout.requests[static_cast<size_t>(request)].end) ++request;
  return request;
}

void SetVisibleRange(const AttentionSpec& spec, int64_t position, int64_t kv_len,
                     AttendArgs& args) {
  args.position = position;
  args.begin = 0;
  args.end = spec.kind == AttentionKind::kDecoder ? position + 1 : kv_len;
  if (spec.window) args.begin = std::max(args.begin, position - *spec.window + 1);
  if (spec.chunk) args.begin = std::max(args.begin, position / *spec.chunk * *spec.chunk);
}

void SetSpec(const AttentionSpec& spec, AttendArgs& args) {
  args.scale = spec.scale;
  args.softcap = spec.softcap;
  args.sinks = spec.sinks == nullptr ? nullptr : *spec.sinks;
  args.alibi = spec.alibi_slopes == nullptr ? nullptr : *spec.alibi_slopes;
  if (spec.relative_bias) {
    const RelativeBias& b = *spec.relative_bias;
    args.bias = {*b.table, spec.heads, b.buckets, b.max_distance, b.bidirectional};
  }
}

void SetPagedSource(const LayerArgs& layer, int32_t request, AttendArgs& args) {
  const AttentionSpec& spec = *layer.spec;
  const GroupPages& pages = layer.plan->PagesOf(*layer.layout);
  const PageGeometry g = GeometryOf(spec, layer.kv_layout, layer.cache->page_tokens);
  args.source.pages = pages.pages + static_cast<int64_t>(request) * pages.max_pages;
  args.source.page_bytes = layer.cache->page_bytes;
  args.source.page_tokens = layer.cache->page_tokens;
  args.source.dtype = spec.kv_dtype;
  args.source.k = layer.cache->base;
  args.source.k_slot_stride = g.k_slot;
  args.source.k_head_stride = g.k_head;
  args.source.v = layer.cache->base + g.v_offset;
  args.source.v_slot_stride = g.v_slot;
  args.source.v_head_stride = g.v_head;
}

void RecordAppend(Tape& tape, const LayerArgs& layer, const Value& k, const Value& v) {
  RecordBuilder<AppendArgs> record(tape, "kv_append", "reference/kv_append");
  AppendArgs& args = record.args();
  args.layer = layer;
  args.k_row = FloatStride(k, 0);
  args.k_head = FloatStride(k, 1);
  args.v_row = FloatStride(v, 0);
  args.v_head = FloatStride(v, 1);
  record.Read(&AppendArgs::k, k).Read(&AppendArgs::v, v).WriteResource(layer.cache);
  record.Commit<RunAppend>({.items = k.dim(0), .grain = 4});
}

void RecordAppendLatent(Tape& tape, const LayerArgs& layer, const Value& latent) {
  RecordBuilder<LatentArgs> record(tape, "mla_append", "reference/mla_append");
  record.args().layer = layer;
  record.args().row_stride = FloatStride(latent, 0);
  record.args().width = latent.dim(1);
  record.Read(&LatentArgs::latent, latent).WriteResource(layer.cache);
  record.Commit<RunAppendLatent>({.items = latent.dim(0), .grain = 4});
}

Value RecordGatherLatent(Tape& tape, const LayerArgs& layer, int64_t chunk, int64_t chunk_rows) {
  const int64_t width = layer.spec->CachedWidth();
  const Value rows = tape.NewValue(DType::kF32, {chunk_rows, width});
  RecordBuilder<LatentArgs> record(tape, "mla_gather", "reference/mla_gather");
  record.args().layer = layer;
  record.args().width = width;
  record.args().chunk_begin = chunk * chunk_rows;
  record.Write(&LatentArgs::latent, rows).ReadResource(layer.cache);
  record.Commit<RunGatherLatent>({.items = chunk_rows, .grain = 16});
  return rows;
}

MlaLayer::Partial RecordMerge(Tape& tape, const KernelTable& kernels, const MlaLayer::Partial& a,
                              const MlaLayer::Partial& b) {
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

Value RecordAttend(Tape& tape, const LayerArgs& layer, const AttendKernel& kernel,
                   const QkvView& qkv) {
  const AttentionSpec& spec = *layer.spec;
  const Value out = tape.NewValue(DType::kF32, {qkv.q.dim(0), spec.heads * spec.v_head_dim});
  RecordBuilder<AttendRecordArgs> record(tape, "attention", kernel.name);
  AttendRecordArgs& args = record.args();
  args.layer = layer;
  args.attend = kernel.attend;
  args.q_row = FloatStride(qkv.q, 0);
  args.q_head = FloatStride(qkv.q, 1);
  record.Read(&AttendRecordArgs::q, qkv.q).Write(&AttendRecordArgs::out, out);
  if (spec.kind == AttentionKind::kEncoder) {
    args.k_row = FloatStride(qkv.k, 0);
    args.k_head = FloatStride(qkv.k, 1);
    args.v_row = FloatStride(qkv.v, 0);
    args.v_head = FloatStride(qkv.v, 1);
    record.Read(&AttendRecordArgs::k, qkv.k).Read(&AttendRecordArgs::v, qkv.v);
  } else {
    record.ReadResource(layer.cache);
  }
  record.Commit<RunAttend>(
      {.items = qkv.q.dim(0) * spec.kv_heads,
       .scratch_bytes = ScratchBytes(spec.head_dim, spec.v_head_dim, spec.heads / spec.kv_heads)});
  return out;
}

Value RecordAttendLatent(Tape& tape, const LayerArgs& layer, const AttendKernel& kernel,
                         const Value& q) {
  const AttentionSpec& spec = *layer.spec;
  const Value out = tape.NewValue(DType::kF32, {q.dim(0), spec.heads, spec.mla->kv_lora_rank});
  RecordBuilder<AttendRecordArgs> record(tape, "mla_latent", kernel.name);
  AttendRecordArgs& args = record.args();
  args.layer = layer;
  args.attend = kernel.attend;
  args.q_row = FloatStride(q, 0);
  args.q_head = FloatStride(q, 1);
  record.Read(&AttendRecordArgs::q, q).Write(&AttendRecordArgs::out, out).ReadResource(layer.cache);
  record.Commit<RunAttendLatent>(
      {.items = q.dim(0),
       .scratch_bytes = ScratchBytes(spec.CachedWidth(), spec.mla->kv_lora_rank, spec.heads)});
  return out;
}

MlaLayer::Partial RecordAttendExpanded(Tape& tape, const LayerArgs& layer,
                                       const AttendKernel& kernel, const MlaLayer::Expanded& rows) {
  const AttentionSpec& spec = *layer.spec;
  const int64_t num_tokens = rows.q.dim(0);
  const MlaLayer::Partial partial{
      tape.NewValue(DType::kF32, {num_tokens, spec.heads, spec.mla->v_head_dim}),
      tape.NewValue(DType::kF32, {num_tokens, spec.heads, 2})};
  RecordBuilder<AttendRecordArgs> record(tape, "mla_expanded", kernel.name);
  AttendRecordArgs& args = record.args();
  args.layer = layer;
  args.attend = kernel.attend;
  args.chunk = static_cast<int32_t>(rows.chunk);
  args.chunk_rows = rows.chunk_rows;
  args.q_row = FloatStride(rows.q, 0);
  args.q_head = FloatStride(rows.q, 1);
  args.k_row = FloatStride(rows.k_nope, 0);
  args.k_head = FloatStride(rows.k_nope, 1);
  args.v_row = FloatStride(rows.v, 0);
  args.v_head = FloatStride(rows.v, 1);
  args.k2_row = FloatStride(rows.k_rope, 0);
  record.Read(&AttendRecordArgs::q, rows.q).Read(&AttendRecordArgs::k, rows.k_nope);
  record.Read(&AttendRecordArgs::v, rows.v).Read(&AttendRecordArgs::k2, rows.k_rope);
  record.Write(&AttendRecordArgs::out, partial.out).Write(&AttendRecordArgs::stats, partial.stats);
  record.Commit<RunAttendExpanded>(
      {.items = num_tokens * spec.heads,
       .scratch_bytes = ScratchBytes(spec.mla->qk_nope_head_dim, spec.mla->v_head_dim, 1)});
  return partial;
}

}  // namespace tenon::backends
