// What VANILLA and NATIVE share: appending rows to pages, pointing an AttendArgs at a request's
// rows, the visible range of a query. Private to the backends' sources; the two differ in layout,
// kernels and how work is split.
#pragma once

#include "tenon/attention/backend.h"
#include "tenon/kernels/table.h"

namespace tenon::backends {

// Both backends read the layout's own page tables: their plan is the group's index.
class PagesPlan final : public StepPlan {
 public:
  explicit PagesPlan(int group) : group_(group) {}
  int group() const { return group_; }
  const GroupPages& PagesOf(const StepLayout& layout) const {
    return layout.groups[static_cast<size_t>(group_)];
  }

 private:
  int group_;
};

// Byte strides inside a page for a layout.
struct PageGeometry {
  int64_t k_slot = 0, k_head = 0;
  int64_t v_offset = 0, v_slot = 0, v_head = 0;
};
PageGeometry GeometryOf(const AttentionSpec& spec, KvLayout layout, int64_t page_tokens);

// What every record of a layer needs; plain data, its pointers outlive the tape.
struct LayerArgs {
  const AttentionSpec* spec = nullptr;
  const StepLayout* layout = nullptr;
  const PagesPlan* plan = nullptr;
  const LayerCache* cache = nullptr;
  const KernelTable* kernels = nullptr;
  KvLayout kv_layout = KvLayout::kNhd;
};

// The request that row t belongs to. Few requests, so a walk.
int32_t RequestOfRow(const StepLayout& layout, int64_t row);

// Rows [begin, end) of the keys that a query at `position` sees, of `kv_len`.
void SetVisibleRange(const AttentionSpec& spec, int64_t position, int64_t kv_len, AttendArgs& args);

// Everything of `args` that comes from the spec.
void SetSpec(const AttentionSpec& spec, AttendArgs& args);
// Points the source at request r's pages.
void SetPagedSource(const LayerArgs& layer, int32_t request, AttendArgs& args);

// Records the writing of k and v (each [num_tokens, kv_heads, head_dim]) into the cache: at the
// rows before kv_len for a decoder, at [0, cross_len) for a cross layer, whose rows are the
// encoder's.
void RecordAppend(Tape& tape, const LayerArgs& layer, const Value& k, const Value& v);
// The same for MLA latents [num_tokens, r + p].
void RecordAppendLatent(Tape& tape, const LayerArgs& layer, const Value& latent);
// Rows of the cached context before this step, decoded: [chunk_rows, r + p].
Value RecordGatherLatent(Tape& tape, const LayerArgs& layer, int64_t chunk, int64_t chunk_rows);
MlaLayer::Partial RecordMerge(Tape& tape, const KernelTable& kernels, const MlaLayer::Partial& a,
                              const MlaLayer::Partial& b);

// Which kernel a record calls and how its name reads in the plan.
struct AttendKernel {
  void (*attend)(const AttendArgs& args, float* scratch) = nullptr;
  const char* name = "";
};

// One item per (row, kv head): decoder and cross over pages, encoder over this step's k and v.
Value RecordAttend(Tape& tape, const LayerArgs& layer, const AttendKernel& kernel,
                   const QkvView& qkv);
// MLA in its latent form: one kv head whose value is the first r numbers of its key.
Value RecordAttendLatent(Tape& tape, const LayerArgs& layer, const AttendKernel& kernel,
                         const Value& q);
// MLA in its expanded form, with statistics.
MlaLayer::Partial RecordAttendExpanded(Tape& tape, const LayerArgs& layer,
                                       const AttendKernel& kernel, const MlaLayer::Expanded& rows);

}  // namespace tenon::backends
