// LOOPS: an attention backend outside tenon's tree. Plain fp32 loops over the paged cache, one
// query and head at a time: slow, and the least that a backend has to do.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tenon/attention/backend.h"
#include "tenon/registry/plugin.h"

namespace {  // all of it: other names might be tenon's own
using namespace tenon;

int64_t Floats(int64_t bytes) { return bytes / static_cast<int64_t>(sizeof(float)); }

// What both records of a layer need. Plain data: tapes copy it and read it in every step.
struct LayerArgs {
  Operand q, k, v, out;
  int64_t q_row = 0, q_head = 0, k_row = 0, k_head = 0, v_row = 0, v_head = 0;  // strides, floats
  int64_t heads = 0, kv_heads = 0, width = 0, v_width = 0;
  int64_t window = std::numeric_limits<int64_t>::max();
  float scale = 0;
  const StepLayout* layout = nullptr;
  const LayerCache* cache = nullptr;

  // The request that row t of the step belongs to; null: padding.
  const StepRequest* RequestOf(int64_t t) const {
    for (const StepRequest& r : layout->requests) {
      if (r.begin <= t && t < r.end) return &r;
    }
    return nullptr;
  }
  // Key of cached row j of a request, one kv head. A page (KvLayout::kNhd) holds the keys of all
  // its rows, then their values.
  float* Key(const StepRequest& r, int64_t j, int64_t kv_head) const {
    const int64_t row = j % cache->page_tokens;
    return Page(r, j) + (row * kv_heads + kv_head) * width;
  }
  float* ValueRow(const StepRequest& r, int64_t j, int64_t kv_head) const {
    const int64_t keys = cache->page_tokens * kv_heads * width;
    return Page(r, j) + keys + (j % cache->page_tokens * kv_heads + kv_head) * v_width;
  }

 private:
  float* Page(const StepRequest& r, int64_t j) const {
    const GroupPages& group = layout->groups[static_cast<size_t>(cache->group)];
    const int64_t request = &r - layout->requests.data();
    const int32_t page = group.pages[request * group.max_pages + j / cache->page_tokens];
    return reinterpret_cast<float*>(cache->base + page * cache->page_bytes);
  }
};

// Items: rows of the step.
void Append(const LayerArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const StepRequest* r = a.RequestOf(t);
    if (r == nullptr) continue;
    const int64_t j = r->kv_len - (r->end - t);  // this step's rows are the last
    for (int64_t head = 0; head < a.kv_heads; ++head) {
      const float* k = a.k.For<float>(context.thread) + t * a.k_row + head * a.k_head;
      const float* v = a.v.For<float>(context.thread) + t * a.v_row + head * a.v_head;
      std::copy_n(k, a.width, a.Key(*r, j, head));
      std::copy_n(v, a.v_width, a.ValueRow(*r, j, head));
    }
  }
}

// Items: (row, head).
void Attend(const LayerArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  for (int64_t item = begin; item < end; ++item) {
    const int64_t t = item / a.heads, head = item % a.heads;
    const int64_t kv_head = head / (a.heads / a.kv_heads);
    float* out = a.out.For<float>(context.thread) + item * a.v_width;
    std::fill_n(out, a.v_width, 0.0f);
    const StepRequest* r = a.RequestOf(t);
    if (r == nullptr) continue;
    const float* q = a.q.For<float>(context.thread) + t * a.q_row + head * a.q_head;
    const int64_t last = r->kv_len - (r->end - t);
    float largest = -std::numeric_limits<float>::infinity(), sum = 0;
    for (int64_t j = std::max<int64_t>(0, last - (a.window - 1)); j <= last; ++j) {
      const float* k = a.Key(*r, j, kv_head);
      float score = 0;
      for (int64_t i = 0; i < a.width; ++i) score += q[i] * k[i];
      score *= a.scale;
      // What was summed so far counts relative to the largest score so far.
      const float before = std::exp(std::min(0.0f, largest - score));
      const float weight = std::exp(std::min(0.0f, score - largest));
      largest = std::max(largest, score);
      sum = sum * before + weight;
      const float* v = a.ValueRow(*r, j, kv_head);
      for (int64_t i = 0; i < a.v_width; ++i) out[i] = out[i] * before + weight * v[i];
    }
    for (int64_t i = 0; i < a.v_width; ++i) out[i] /= sum;
  }
}

class LoopsLayer final : public AttentionLayer {
 public:
  explicit LoopsLayer(const AttentionSpec& spec) : spec_(spec) {}

  Value Run(Tape& tape, const QkvView& given, const AttentionCall& call) const override {
    QkvView qkv = given;
    if (!qkv.angles.empty()) {  // not rotated yet
      qkv.q = Rotated(tape, qkv.q, qkv.angles, qkv.pairing);
      qkv.k = Rotated(tape, qkv.k, qkv.angles, qkv.pairing);
    }
    if (!qkv.k.empty()) {
      RecordBuilder<LayerArgs> append(tape, "kv_append", "LOOPS/append");
      Fill(qkv, call, append.args());
      append.Read(&LayerArgs::k, qkv.k).Read(&LayerArgs::v, qkv.v).WriteResource(call.cache);
      append.Commit<Append>({.items = qkv.k.dim(0)});
    }
    if (qkv.q.empty()) return {};
    const int64_t rows = qkv.q.dim(0);
    const Value out = tape.NewValue(DType::kF32, {rows, spec_.heads, spec_.v_head_dim});
    RecordBuilder<LayerArgs> attend(tape, "attention", "LOOPS/attend");
    Fill(qkv, call, attend.args());
    attend.Read(&LayerArgs::q, qkv.q).Write(&LayerArgs::out, out).ReadResource(call.cache);
    attend.Commit<Attend>({.items = rows * spec_.heads});
    return out.MergeLast();
  }

 private:
  void Fill(const QkvView& qkv, const AttentionCall& call, LayerArgs& args) const {
    const auto strides = [](const Value& value, int64_t& row, int64_t& head) {
      if (value.empty()) return;
      row = Floats(value.stride_bytes(0));
      head = Floats(value.stride_bytes(1));
    };
    strides(qkv.q, args.q_row, args.q_head);
    strides(qkv.k, args.k_row, args.k_head);
    strides(qkv.v, args.v_row, args.v_head);
    args.heads = spec_.heads;
    args.kv_heads = spec_.kv_heads;
    args.width = spec_.head_dim;
    args.v_width = spec_.v_head_dim;
    if (spec_.window) args.window = *spec_.window;
    args.scale = spec_.scale;
    args.layout = call.layout;
    args.cache = call.cache;
  }
  const AttentionSpec spec_;
};

class LoopsPlan final : public StepPlan {};  // reads the layout's own page tables

class Loops final : public AttentionBackend {
 public:
  std::string_view name() const override { return "LOOPS"; }
  KvLayout layout() const override { return KvLayout::kNhd; }
  std::unique_ptr<AttentionLayer> CreateLayer(const AttentionSpec& spec) const override {
    return std::make_unique<LoopsLayer>(spec);
  }
  std::unique_ptr<MlaLayer> CreateMlaLayer(const AttentionSpec&) const override {
    return nullptr;  // never asked for: no row declares Feature::kMla
  }
  std::unique_ptr<StepPlan> CreatePlan(int, const CacheSpec&) const override {
    return std::make_unique<LoopsPlan>();
  }
  void Prepare(const StepLayout&, StepPlan&) const override {}
};

// What the kernel can do; a layer that needs anything else is refused, with the reason.
constexpr KernelRow Row(AttentionPhase phase) {
  return {.backend = "LOOPS",
          .kernel = "attend",
          .phase = phase,
          .features = FeatureSet{0} | Feature::kWindow | Feature::kUnequalHeadDims,
          .kv_dtypes = Of(DType::kF32),
          .page_tokens = Any<int32_t>(),
          .layouts = Of(KvLayout::kNhd),
          .head_dims = Any<int64_t>(),
          .computes = Any<Compute>()};
}

Status Register(Registrar& registrar) {
  registrar.AttentionBackend(std::make_shared<Loops>(),
                             {Row(AttentionPhase::kPrefill), Row(AttentionPhase::kDecode)});
  return {};
}

}  // namespace

TN_PLUGIN(Register);
