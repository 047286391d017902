#include <algorithm>

#include "tenon/attention/backends/builtin.h"
#include "tenon/attention/backends/native_plan.h"
#include "tenon/attention/backends/paged_layer.h"
#include "tenon/kernels/attention_rules.h"
#include "tenon/kernels/table.h"
#include "tenon/tensor/buffer.h"

namespace tenon::backends {
namespace {

constexpr const char* kPrefillName = "NATIVE/generic_prefill";
constexpr const char* kBf16PrefillName = "NATIVE/bf16_prefill";
constexpr const char* kDecodeName = "NATIVE/generic_decode";

// A record's work is handed out in this many shares, whatever the step holds: share i does tasks i,
// i + shares, …
constexpr int64_t kPrefillShares = 256;
constexpr int64_t kDecodeShares = 64;

// States held while one block is worked on (query rows * heads of the group): they and a tile of
// keys stay in the core's own caches.
constexpr int64_t kMaxStates = 128;
// How a record attends: what kernel, how many rows at a time.
struct Form {
  bool bf16 = false;  // AttentionKernels::blocks, else online
  int64_t BlockRows(const HeadGeometry& h) const {
    return bf16 ? std::max<int64_t>(1, kAttendBlockQueries / h.group())
                : std::clamp<int64_t>(kMaxStates / h.group(), 1, NativePlan::kBlockRows);
  }
  int64_t KernelBytes(const HeadGeometry& h) const {
    if (bf16) return RoundUp(BlocksScratchBytes(h.k_width, h.v_width), Buffer::kAlignment);
    return RoundUp(OnlineScratchFloats(h.k_width, h.v_width) * static_cast<int64_t>(sizeof(float)),
                   Buffer::kAlignment);
  }
  int64_t StatesFloats(const HeadGeometry& h) const {
    return (bf16 ? kAttendBlockStates : BlockRows(h) * h.group()) * StateFloats(h.v_width);
  }
  int64_t ScratchBytes(const HeadGeometry& h) const {
    const int64_t states = 2 * StatesFloats(h) * static_cast<int64_t>(sizeof(float));
    return KernelBytes(h) + RoundUp(states, Buffer::kAlignment);
  }
};

// A thread's scratch: the kernel's, then two sets of states.
struct Scratch {
  std::byte* kernel = nullptr;
  AttendState sum;
  AttendState part;
};

Scratch ScratchOf(const HeadGeometry& h, Form form, const RunContext& context) {
  Scratch s;
  s.kernel = context.scratch;
  const int64_t head = StateFloats(h.v_width);
  auto* states = reinterpret_cast<float*>(context.scratch + form.KernelBytes(h));
  s.sum = {states, h.group() * head, head};
  s.part = {states + form.StatesFloats(h), h.group() * head, head};
  return s;
}

void Attend(const AttentionKernels& kernels, Form form, const AttendArgs& args,
            const AttendState& state, std::byte* scratch) {
  if (form.bf16) {
    kernels.blocks(args, state, scratch);
  } else {
    kernels.online(args, state, reinterpret_cast<float*>(scratch));
  }
}

// All visible keys of [key_begin, key_end), segment by segment, into scratch.sum.
void SumSegments(const LayerFacts& facts, Form form, AttendArgs args, const Scratch& scratch) {
  const AttentionKernels& kernels = facts.kernels();
  const Segments segments = Segments::Of(facts.layout());
  // Later rows see later keys: the first and the last row bound what all of them see.
  const int64_t begin = VisibleKeys(args, 0).begin;
  const int64_t end = std::min(args.key_end, VisibleKeys(args, args.rows - 1).end);
  args.key_begin = begin;
  // Decode, which may be split, sums by segments; blocks of bf16 have nothing in common with it.
  args.key_end = std::max(begin, form.bf16 ? end : std::min(end, segments.EndAfter(begin)));
  Attend(kernels, form, args, scratch.sum, scratch.kernel);
  while (args.key_end < end) {
    args.key_begin = args.key_end;
    args.key_end = std::min(end, segments.EndAfter(args.key_begin));
    Attend(kernels, form, args, scratch.part, scratch.kernel);
    for (int64_t row = 0; row < args.rows; ++row) {
      for (int64_t g = 0; g < args.group; ++g) {
        const int64_t at = row * scratch.sum.row_stride + g * scratch.sum.head_stride;
        kernels.fold(scratch.sum.state + at, scratch.part.state + at, args.v_width);
      }
    }
  }
}

// Rows of one request and one kv head.
struct BlockTask {
  RowBlock block;
  int64_t kv_head = 0;
  Form form = {};
};

// Bytes that decode needs beside a form's scratch: the rotated queries of a kv head, and a key.
int64_t RotatedBytes(const HeadGeometry& h) {
  return RoundUp((h.group() + 1) * h.k_width * static_cast<int64_t>(sizeof(float)),
                 Buffer::kAlignment);
}
float* RotatedIn(const HeadGeometry& h, const RunContext& context) {
  return reinterpret_cast<float*>(context.scratch + Form{}.ScratchBytes(h));
}

// As ArgsOf, with the queries rotated if they are still to be: then the block is one row.
AttendArgs RotatedArgsOf(const AttendRecord& a, const RunContext& context, const ScoreRules& rules,
                         const RowBlock& block, int64_t kv_head) {
  AttendArgs args = ArgsOf(a, context, rules, block, kv_head);
  if (a.rotation.rotate == nullptr) return args;
  float* rotated = RotatedIn(a.layer.facts->heads(), context);
  for (int64_t g = 0; g < args.group; ++g) {
    a.rotation.Run(context.thread, block.row, args.q + g * args.q_head_stride,
                   rotated + g * args.k_width, args.k_width);
  }
  args.q = rotated;
  args.q_head_stride = args.k_width;
  return args;
}

// Attends all keys of the task.
void AttendBlock(const AttendRecord& a, const RunContext& context, const ScoreRules& rules,
                 const BlockTask& task) {
  const LayerFacts& facts = *a.layer.facts;
  const Scratch scratch = ScratchOf(facts.heads(), task.form, context);
  const AttendArgs args = RotatedArgsOf(a, context, rules, task.block, task.kv_head);
  SumSegments(facts, task.form, args, scratch);
  const AttendOut out = OutOf(a, context, args, task.block.row);
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t g = 0; g < args.group; ++g) {
      const float* sink = rules.sinks == nullptr ? nullptr : rules.sinks + args.first_head + g;
      float* stats = out.stats == nullptr
                         ? nullptr
                         : out.stats + row * out.stats_row_stride + g * out.stats_head_stride;
      facts.kernels().finish(
          scratch.sum.state + row * scratch.sum.row_stride + g * scratch.sum.head_stride, sink,
          args.v_width, out.out + row * out.row_stride + g * out.head_stride, stats);
    }
  }
}

bool IsPrefill(const StepRequest& r) { return r.phase == RequestPhase::kPrefill; }

// Does this record attend the request? Dense rows have no phases.
bool IsMine(const AttendRecord& a, const StepRequest& r) {
  return a.source != KeySource::kPaged || IsPrefill(r);
}

int64_t KeysOf(const AttendRecord& a, const StepRequest& r) {
  if (a.source == KeySource::kGathered) return a.chunk_rows;
  if (a.source == KeySource::kOwnRows) return r.end - r.begin;
  return a.layer.facts->spec().kind == AttentionKind::kCross ? r.cross_len : r.kv_len;
}

// Items: shares of the tasks (block of rows, kv head). The last blocks see the most keys, so they
// come first.
void RunBlocks(const AttendRecord& a, const RunContext& context, int64_t begin, int64_t end) {
  const LayerFacts& facts = *a.layer.facts;
  const StepLayout& layout = *a.layer.layout;
  const int64_t kv_heads = facts.heads().kv_heads;
  const Form form{a.bf16};
  const int64_t block_rows = form.BlockRows(facts.heads());
  ScoreRules rules = facts.Rules();
  if (a.source == KeySource::kGathered) rules.sinks = nullptr;  // counted with the own rows
  if (begin == 0) ClearRows(a, context, CoveredRows(layout), a.num_tokens);
  for (int64_t share = begin; share < end; ++share) {
    int64_t first = share;  // this share's first task of the request
    for (size_t i = layout.requests.size(); i-- > 0;) {
      const StepRequest& r = layout.requests[i];
      if (!IsMine(a, r)) {
        TN_CHECK(!a.whole_step, "a tape attends the phases that it was recorded for");
        continue;
      }
      const int64_t blocks = (r.end - r.begin + block_rows - 1) / block_rows;
      for (; first < blocks * kv_heads; first += a.shares) {
        RowBlock block{static_cast<int32_t>(i),
                       r.begin + (blocks - 1 - first / kv_heads) * block_rows, 0};
        block.rows = std::min(block_rows, r.end - block.row);
        AttendBlock(a, context, rules, {block, first % kv_heads, form});
      }
      first -= blocks * kv_heads;
    }
  }
}

AttendState SlotState(const AttendRecord& a, const RunContext& context, int64_t slot,
                      int64_t head) {
  const HeadGeometry& h = a.layer.facts->heads();
  const int64_t width = StateFloats(h.v_width);
  return {a.slots.For<float>(context.thread) + (slot * h.heads + head) * width, h.heads * width,
          width};
}

const NativePlan& PlanOf(const AttendRecord& a) {
  TN_CHECK(a.plan != nullptr, "decode needs a plan of its cache group");
  return static_cast<const NativePlan&>(*a.plan);
}

// The piece with a request's last key stores it first: no other piece reads it.
void AppendLastRow(const AttendRecord& a, const RunContext& context, const NativePlan::Piece& piece,
                   int64_t kv_head) {
  const StepRequest& r = a.layer.layout->requests[static_cast<size_t>(piece.request)];
  TN_CHECK(r.end - r.begin == 1, "rows are appended while attending one at a time");
  if (piece.slot >= 0 && piece.key_end < KeysOf(a, r)) return;
  const float* k = a.k.For<float>(context.thread) + piece.row * a.k_row + kv_head * a.k_head;
  const float* v = a.v.For<float>(context.thread) + piece.row * a.v_row + kv_head * a.v_head;
  if (a.rotation.rotate != nullptr) {
    const HeadGeometry& h = a.layer.facts->heads();
    float* rotated = RotatedIn(h, context) + h.group() * h.k_width;
    a.rotation.Run(context.thread, piece.row, k, rotated, h.k_width);
    k = rotated;
  }
  StoreNewRow(a.layer, piece.row, kv_head, {k, v});
}

void AttendPiece(const AttendRecord& a, const RunContext& context, const ScoreRules& rules,
                 const NativePlan::Piece& piece, int64_t kv_head) {
  const LayerFacts& facts = *a.layer.facts;
  if (a.appends) AppendLastRow(a, context, piece, kv_head);
  const int64_t block_rows = Form{}.BlockRows(facts.heads());
  for (int64_t done = 0; done < piece.rows; done += block_rows) {
    const RowBlock block{piece.request, piece.row + done, std::min(block_rows, piece.rows - done)};
    if (piece.slot < 0) {
      AttendBlock(a, context, rules, {block, kv_head});
      continue;
    }
    AttendArgs args = RotatedArgsOf(a, context, rules, block, kv_head);
    args.key_begin = piece.key_begin;
    args.key_end = std::min(args.key_end, piece.key_end);
    facts.kernels().online(args, SlotState(a, context, piece.slot + done, args.first_head),
                           reinterpret_cast<float*>(context.scratch));
  }
}

// Items: shares of the tasks (piece of the plan, kv head).
void RunPieces(const AttendRecord& a, const RunContext& context, int64_t begin, int64_t end) {
  const LayerFacts& facts = *a.layer.facts;
  const int64_t kv_heads = facts.heads().kv_heads;
  const ScoreRules rules = facts.Rules();
  const auto pieces = PlanOf(a).pieces();
  if (begin == 0 && a.whole_step) ClearRows(a, context, CoveredRows(*a.layer.layout), a.num_tokens);
  for (int64_t share = begin; share < end; ++share) {
    const int64_t tasks = static_cast<int64_t>(pieces.size()) * kv_heads;
    for (int64_t task = share; task < tasks; task += a.shares) {
      AttendPiece(a, context, rules, pieces[static_cast<size_t>(task / kv_heads)], task % kv_heads);
    }
  }
}

// Items: shares of the tasks (join of the plan, head).
void RunJoins(const AttendRecord& a, const RunContext& context, int64_t begin, int64_t end) {
  const LayerFacts& facts = *a.layer.facts;
  const HeadGeometry& h = facts.heads();
  const float* sinks = facts.Rules().sinks;
  const auto joins = PlanOf(a).joins();
  for (int64_t share = begin; share < end; ++share) {
    const int64_t tasks = static_cast<int64_t>(joins.size()) * h.heads;
    for (int64_t task = share; task < tasks; task += a.shares) {
      const NativePlan::Join& join = joins[static_cast<size_t>(task / h.heads)];
      const int64_t head = task % h.heads;
      for (int64_t i = 0; i < join.rows; ++i) {
        float* sum = SlotState(a, context, join.slot + i, head).state;
        for (int64_t part = 1; part < join.parts; ++part) {
          const int64_t slot = join.slot + part * join.rows + i;
          facts.kernels().fold(sum, SlotState(a, context, slot, head).state, h.v_width);
        }
        facts.kernels().finish(
            sum, sinks == nullptr ? nullptr : sinks + head, h.v_width,
            a.out.For<float>(context.thread) + ((join.row + i) * h.heads + head) * h.v_width,
            nullptr);
      }
    }
  }
}

// A step of one row: each thread joins its parts, or takes the row as it is, into a copy of its
// own, which saves a meeting before what reads it.
struct OwnJoinRecord {
  Operand direct, slots, out;
  LayerArgs layer;
  const StepPlan* plan = nullptr;
};
void RunOwnJoins(const OwnJoinRecord& a, const RunContext& context, int64_t /*begin*/,
                 int64_t /*end*/) {
  const LayerFacts& facts = *a.layer.facts;
  const HeadGeometry& h = facts.heads();
  const auto joins = static_cast<const NativePlan&>(*a.plan).joins();
  float* out = a.out.For<float>(context.thread);
  if (joins.empty()) {
    std::copy_n(a.direct.For<float>(context.thread), h.heads * h.v_width, out);
    return;
  }
  const NativePlan::Join& join = joins[0];
  const float* sinks = facts.Rules().sinks;
  const int64_t width = StateFloats(h.v_width);
  float* sum = reinterpret_cast<float*>(context.scratch);  // [v_width + 2]
  for (int64_t head = 0; head < h.heads; ++head) {
    const float* parts = a.slots.For<float>(context.thread) + (join.slot * h.heads + head) * width;
    std::copy_n(parts, width, sum);
    for (int64_t part = 1; part < join.parts; ++part) {
      facts.kernels().fold(sum, parts + part * h.heads * width, h.v_width);
    }
    facts.kernels().finish(sum, sinks == nullptr ? nullptr : sinks + head, h.v_width,
                           out + head * h.v_width, nullptr);
  }
}

Value RecordOwnJoins(Tape& tape, const LayerArgs& layer, const StepPlan* plan, const Value& direct,
                     const Value& slots) {
  const int64_t v_width = layer.facts->heads().v_width;
  const Value out = tape.NewPrivateValue(DType::kF32, direct.shape());
  RecordBuilder<OwnJoinRecord> record(tape, "attention", "reference/attention_join");
  record.args().layer = layer;
  record.args().plan = plan;
  record.Read(&OwnJoinRecord::direct, direct).Read(&OwnJoinRecord::slots, slots);
  record.Write(&OwnJoinRecord::out, out);
  record.Commit<RunOwnJoins>(
      {.everyone = true,
       .scratch_bytes = RoundUp(StateFloats(v_width) * static_cast<int64_t>(sizeof(float)),
                                Buffer::kAlignment)});
  return out;
}

// The phases of one step; all of them when nothing is known yet (an empty layout of the plan).
struct Phases {
  bool prefill = true;
  bool decode = true;
};

Phases PhasesOf(const StepLayout& layout) {
  if (layout.requests.empty()) return {};
  Phases phases{false, false};
  for (const StepRequest& r : layout.requests)
    (IsPrefill(r) ? phases.prefill : phases.decode) = true;
  return phases;
}

// A decode step of one row, known to be one.
bool IsOneRow(const StepLayout& layout) {
  return layout.num_tokens == 1 && layout.requests.size() == 1 && !IsPrefill(layout.requests[0]);
}

// Which record of a step this is.
struct Step {
  const char* op = "";
  bool whole = true;  // no other record attends requests of other phases
  Form form = {};
};

void RecordBlocks(Tape& tape, const AttendInput& input, const LayerArgs& layer, const Step& step,
                  const MlaLayer::Partial& target) {
  const HeadGeometry& h = layer.facts->heads();
  RecordBuilder<AttendRecord> record(tape, step.op,
                                     step.form.bf16 ? kBf16PrefillName : kPrefillName);
  FillAttend(tape, input, layer, record);
  record.args().bf16 = step.form.bf16;
  record.args().whole_step = step.whole;
  record.args().shares = std::clamp<int64_t>(input.q.dim(0) * h.kv_heads, 1, kPrefillShares);
  record.Write(&AttendRecord::out, target.out);
  if (!target.stats.empty()) record.Write(&AttendRecord::stats, target.stats);
  const int64_t shares = record.args().shares;
  record.Commit<RunBlocks>({.items = shares, .scratch_bytes = step.form.ScratchBytes(h)});
}

// Attends the cache: [num_tokens, heads, v_width]. Decode takes two records, the pieces of the plan
// and the joining of what it split, with the prefill's rows between them.
Value RecordPaged(Tape& tape, const AttendInput& input, const LayerArgs& layer,
                  const StepPlan* plan, const Step& step) {
  const HeadGeometry& h = layer.facts->heads();
  const Phases phases = PhasesOf(*layer.layout);
  const MlaLayer::Partial target = NewPartial(tape, *layer.facts, input.q.dim(0), false);
  Value slots;
  const auto decode = [&](const char* kernel) {
    RecordBuilder<AttendRecord> record(tape, step.op, kernel);
    FillAttend(tape, input, layer, record);
    record.args().plan = plan;
    record.args().whole_step = !phases.prefill;
    record.args().shares = kDecodeShares;
    record.Update(&AttendRecord::out, target.out).Update(&AttendRecord::slots, slots);
    return record;
  };
  if (phases.decode) {
    slots = tape.NewValue(DType::kF32, {NativePlan::SlotsFor(layer.facts->layout()), h.heads,
                                        StateFloats(h.v_width)});
    decode(kDecodeName)
        .Commit<RunPieces>(
            {.items = kDecodeShares, .scratch_bytes = Form{}.ScratchBytes(h) + RotatedBytes(h)});
  }
  if (IsOneRow(*layer.layout)) return RecordOwnJoins(tape, layer, plan, target.out, slots);
  if (phases.prefill)
    RecordBlocks(tape, input, layer, {step.op, !phases.decode, step.form}, target);
  if (phases.decode) decode("reference/attention_join").Commit<RunJoins>({.items = kDecodeShares});
  return target.out;
}

class NativeLayer final : public AttentionLayer {
 public:
  NativeLayer(const AttentionSpec& spec, const AttentionKernels& kernels)
      : facts_(spec, spec.kv_layout.value_or(KvLayout::kHnd), GeometryOf(spec), kernels),
        prefill_{spec.compute == Compute::kBf16 && kernels.blocks != nullptr &&
                 facts_.heads().group() <= kAttendBlockQueries} {}

  Value Run(Tape& tape, const QkvView& qkv, const AttentionCall& call) const override {
    const LayerArgs layer{&facts_, call.layout, call.cache};
    if (facts_.spec().kind == AttentionKind::kEncoder) {
      const QkvView rotated = Rotated(tape, qkv);
      const AttendInput input{
          .q = rotated.q, .k = rotated.k, .v = rotated.v, .source = KeySource::kOwnRows};
      const MlaLayer::Partial target = NewPartial(tape, facts_, qkv.q.dim(0), false);
      RecordBlocks(tape, input, layer, {"attention", true, prefill_}, target);
      return target.out.MergeLast();
    }
    AttendInput input{.q = qkv.q};
    // One new row is stored by the piece of work that reads it, which saves a meeting.
    const bool appends = !qkv.k.empty() && !qkv.q.empty() && IsOneRow(*call.layout);
    if (appends) {
      input.k = qkv.k;
      input.v = qkv.v;
      input.angles = qkv.angles;
      input.pairing = qkv.pairing;
    } else if (!qkv.k.empty()) {
      RecordAppend(tape, layer, qkv);
    }
    if (qkv.q.empty()) return {};
    return RecordPaged(tape, input, layer, call.plan, {"attention", true, prefill_}).MergeLast();
  }

 private:
  const LayerFacts facts_;
  const Form prefill_;
};

class NativeMla final : public PagedMla<LayerFacts> {
 public:
  using PagedMla::PagedMla;

  Partial RunExpanded(Tape& tape, const Expanded& rows, const AttentionCall& call) const override {
    const LayerArgs layer = ExpandedArgs(call);
    const Partial target = NewPartial(tape, *layer.facts, rows.q.dim(0), true);
    RecordBlocks(tape, ExpandedInput(rows), layer, {"mla_expanded"}, target);
    return target;
  }
  Value RunLatent(Tape& tape, const Value& q, const AttentionCall& call) const override {
    const AttendInput input{.q = q};
    return RecordPaged(tape, input, LatentArgs(call), call.plan, {"mla_latent"});
  }
};

// Paged, one pass over the keys with a running maximum; each key row is read once for a block of
// query rows and all heads of its group.
class Native final : public AttentionBackend {
 public:
  explicit Native(const AttentionKernels& kernels) : kernels_(kernels) {}
  std::string_view name() const override { return "NATIVE"; }
  KvLayout layout() const override { return KvLayout::kHnd; }
  std::unique_ptr<AttentionLayer> CreateLayer(const AttentionSpec& spec) const override {
    return std::make_unique<NativeLayer>(spec, kernels_);
  }
  std::unique_ptr<MlaLayer> CreateMlaLayer(const AttentionSpec& spec) const override {
    return std::make_unique<NativeMla>(spec, kernels_);
  }
  std::unique_ptr<StepPlan> CreatePlan(int /*group*/, const CacheSpec& spec) const override {
    return std::make_unique<NativePlan>(spec);
  }
  void Prepare(const StepLayout& layout, StepPlan& plan) const override {
    static_cast<NativePlan&>(plan).Prepare(layout);
  }

 private:
  const AttentionKernels& kernels_;
};

}  // namespace

std::shared_ptr<const AttentionBackend> MakeNative(const KernelTable& kernels) {
  return std::make_shared<Native>(kernels.attention);
}

}  // namespace tenon::backends
