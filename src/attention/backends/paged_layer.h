// What VANILLA and NATIVE share: a layer's static facts, appending rows to pages, pointing a kernel
// at a request's keys. Private to the backends' sources; the two differ in layout, kernels and how
// work is split. Recording on one thread, what is recorded on the team.
#pragma once

#include <vector>

#include "tenon/attention/backend.h"
#include "tenon/attention/backends/row_block.h"
#include "tenon/kernels/attention_kernels.h"

namespace tenon::backends {

// Heads and widths as the kernels see them: for MLA's latents one kv head whose value is the first
// part of its key.
struct HeadGeometry {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t k_width = 0;  // of a key's first part
  int64_t v_width = 0;
  int64_t group() const { return heads / kv_heads; }
};
HeadGeometry GeometryOf(const AttentionSpec& spec);
HeadGeometry LatentGeometryOf(const AttentionSpec& spec);
HeadGeometry ExpandedGeometryOf(const AttentionSpec& spec);

// One layer (for MLA: one form of it); outlives the tapes that point to it.
class LayerFacts {
 public:
  LayerFacts(const AttentionSpec& spec, KvLayout layout, const HeadGeometry& heads,
             const AttentionKernels& kernels);
  LayerFacts(const LayerFacts&) = delete;
  LayerFacts& operator=(const LayerFacts&) = delete;

  const AttentionSpec& spec() const { return spec_; }
  KvLayout layout() const { return layout_; }
  const HeadGeometry& heads() const { return heads_; }
  const AttentionKernels& kernels() const { return kernels_; }
  // With the tables' addresses of now: read when the tape runs.
  ScoreRules Rules() const;

 private:
  AttentionSpec spec_;
  KvLayout layout_;
  HeadGeometry heads_;
  const AttentionKernels& kernels_;
  std::vector<int32_t> buckets_before_;  // [max_distance + 1]
  std::vector<int32_t> buckets_after_;   // [max_distance + 1]
};

// What every record of a layer needs; plain data, its pointers outlive the tape.
struct LayerArgs {
  const LayerFacts* facts = nullptr;
  const StepLayout* layout = nullptr;
  const LayerCache* cache = nullptr;
};

// The request that row `row` belongs to, -1 for padding. Few requests, so a walk.
int32_t RequestOfRow(const StepLayout& layout, int64_t row);
// Rows that belong to requests: [0, covered).
int64_t CoveredRows(const StepLayout& layout);

// The view with q and k rotated, if they are still to be, by records of their own.
QkvView Rotated(Tape& tape, const QkvView& qkv);
// Records the writing of k and v (each [num_tokens, kv_heads, their head_dim]) into the cache: as
// the last rows before kv_len, for a cross layer before cross_len. On the way k is rotated, and q
// in place, if they are still to be.
void RecordAppend(Tape& tape, const LayerArgs& layer, const QkvView& qkv);
// Writes row t of the step's k and v, one kv head of them, into its place in the cache.
struct NewRow {
  const float* k = nullptr;  // [k_width]
  const float* v = nullptr;  // [v_width]
};
void StoreNewRow(const LayerArgs& layer, int64_t t, int64_t kv_head, const NewRow& row);
// The same for MLA latents [num_tokens, r + p].
void RecordAppendLatent(Tape& tape, const LayerArgs& layer, const Value& latent);
// MlaLayer::Gather and Merge.
Value RecordGatherLatent(Tape& tape, const LayerArgs& layer, int64_t chunk, int64_t chunk_rows);
MlaLayer::Partial RecordMerge(Tape& tape, const AttentionKernels& kernels,
                              const MlaLayer::Partial& a, const MlaLayer::Partial& b);

// Latent attention but for attending: the layer's two forms, rows written, gathered and merged.
// Facts: LayerFacts or what derives from it, made with `more` besides.
template <typename Facts>
class PagedMla : public MlaLayer {
 public:
  template <typename... More>
  explicit PagedMla(const AttentionSpec& spec, const AttentionKernels& kernels, const More&... more)
      : latent_(spec, KvLayout::kRow, LatentGeometryOf(spec), kernels, more...),
        expanded_(spec, KvLayout::kRow, ExpandedGeometryOf(spec), kernels, more...) {}

  void Append(Tape& tape, const Value& latent, const AttentionCall& call) const final {
    RecordAppendLatent(tape, LatentArgs(call), latent);
  }
  Value Gather(Tape& tape, int64_t chunk, int64_t chunk_rows,
               const AttentionCall& call) const final {
    return RecordGatherLatent(tape, LatentArgs(call), chunk, chunk_rows);
  }
  Partial Merge(Tape& tape, const Partial& a, const Partial& b) const final {
    return RecordMerge(tape, latent_.kernels(), a, b);
  }

 protected:
  LayerArgs LatentArgs(const AttentionCall& call) const {
    return {&latent_, call.layout, call.cache};
  }
  LayerArgs ExpandedArgs(const AttentionCall& call) const {
    return {&expanded_, call.layout, call.cache};
  }

 private:
  const Facts latent_;
  const Facts expanded_;
};

enum class KeySource : int32_t {
  kPaged,     // the cache
  kOwnRows,   // k, v of this step's rows of the same request
  kGathered,  // dense rows of request 0's context
};

// Arguments of a record that attends.
struct AttendRecord {
  Operand q, k, v, k2;  // k2: not for kPaged; k, v there: rows to append first (`appends`)
  Operand out, stats;   // stats may be absent
  Operand slots;        // partial sums of NATIVE's decode
  Rotation rotation;    // of q, and of k that is appended
  LayerArgs layer;
  const StepPlan* plan = nullptr;
  int64_t num_tokens = 0;
  int64_t q_row = 0, q_head = 0;                                     // floats
  int64_t k_row = 0, k_head = 0, v_row = 0, v_head = 0, k2_row = 0;  // floats
  int64_t k2_width = 0;
  int64_t chunk_begin = 0, chunk_rows = 0;  // kGathered
  KeySource source = KeySource::kPaged;
  bool bf16 = false;       // products of bf16
  bool appends = false;    // kPaged: the record stores the step's new rows before it attends them
  bool whole_step = true;  // false: another record of the step attends the requests of other phases
  int64_t shares = 1;      // into which the step's work is cut, whatever it holds
};

// Queries and keys of one call. k, v, k2 as in AttendRecord: for kPaged, k and v (or neither) are
// appended.
struct AttendInput {
  Value q = {};
  Value k = {};
  Value v = {};
  Value k2 = {};
  Value angles = {};  // as QkvView's; only of kPaged with k and v
  RopePairing pairing = RopePairing::kHalf;
  KeySource source = KeySource::kPaged;
  int64_t chunk = -1;  // kGathered
  int64_t chunk_rows = 0;
};
AttendInput ExpandedInput(const MlaLayer::Expanded& rows);

// Operands, strides and resources of `input`; the caller adds what it writes.
void FillAttend(const Tape& tape, const AttendInput& input, const LayerArgs& layer,
                RecordBuilder<AttendRecord>& record);
// New values for the results: out [num_tokens, heads, v_width], stats as in MlaLayer::Partial.
MlaLayer::Partial NewPartial(Tape& tape, const LayerFacts& facts, int64_t num_tokens,
                             bool with_stats);

// Kernel arguments of these rows and one kv head, over all keys of the request.
AttendArgs ArgsOf(const AttendRecord& a, const RunContext& context, const ScoreRules& rules,
                  const RowBlock& block, int64_t kv_head);
// Where the results of these rows go.
AttendOut OutOf(const AttendRecord& a, const RunContext& context, const AttendArgs& args,
                int64_t row);
// Results of rows without a request.
void ClearRows(const AttendRecord& a, const RunContext& context, int64_t begin, int64_t end);

}  // namespace tenon::backends
