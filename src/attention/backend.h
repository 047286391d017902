// What an attention backend is. It is built from an AttentionSpec and never sees a model; per-step
// facts come in a StepPlan that Prepare refreshes once per step and cache group. To add a backend:
// backends/<name>/, its rows in the capability table, its factory in builtin.cc; the conformance
// test picks it up. Thread rule: recording and Prepare on one thread; what they record runs on the
// team.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/attention/attention_spec.h"
#include "tenon/attention/step_layout.h"
#include "tenon/base/status.h"
#include "tenon/ops/rope.h"

namespace tenon {

// A backend's own per-step metadata for one cache group (page tables in its form, work lists). Its
// address is stable: tapes keep it and read it when they run.
class StepPlan {
 public:
  virtual ~StepPlan() = default;
};

// q, k, v of this step's rows, each [num_tokens, its heads, its head_dim], any strides: three
// slices of one fused value or three values. k and v are empty when only cached rows are attended
// (cross attention after the encoder); q is empty when rows are only appended (the encoder's keys
// and values going into a cross cache).
struct QkvView {
  Value q;
  Value k;
  Value v;
  // RopeAngles of the rows by which q and k, which are both there, are still to be rotated; nobody
  // else reads them. Empty: they are as they should be.
  Value angles = {};
  RopePairing pairing = RopePairing::kHalf;
};

// All per-call options; a backend reads no other source.
struct AttentionCall {
  const StepLayout* layout = nullptr;  // address stable over steps
  const StepPlan* plan =
      nullptr;  // of this layer's cache group and backend; null when nothing is cached
  // Address stable; null when nothing is cached. A layer that reads another layer's rows passes
  // that layer's: the address is how the tape knows which records touch the same rows.
  const LayerCache* cache = nullptr;
};

// One layer of ordinary attention (multi-head, grouped, multi-query, encoder, cross).
class AttentionLayer {
 public:
  virtual ~AttentionLayer() = default;
  // Appends k and v to the cache when both are there and the kind caches, then attends when q is
  // there: [num_tokens, heads * v_head_dim] fp32; empty when q is empty. kEncoder attends k and v
  // of this step directly.
  virtual Value Run(Tape& tape, const QkvView& qkv, const AttentionCall& call) const = 0;
};

// One layer of multi-head latent attention (DeepSeek-V2 paper). The module drives these per phase:
// absorbed latent decode; expanded prefill, its cached context in chunks that Merge joins.
class MlaLayer {
 public:
  virtual ~MlaLayer() = default;
  struct Partial {
    Value out;    // [num_tokens, heads, v_head_dim] fp32, normalised
    Value stats;  // [num_tokens, heads, 2] fp32: row maximum and row sum of the softmax
  };
  // latent [num_tokens, r + p], normed and rotated: into the cache.
  virtual void Append(Tape& tape, const Value& latent, const AttentionCall& call) const = 0;
  // The rows [chunk * chunk_rows, (chunk + 1) * chunk_rows) of the cached context (rows before this
  // step's) of the step's one prefill request -> [chunk_rows, r + p] fp32; rows past the context
  // are zero.
  virtual Value Gather(Tape& tape, int64_t chunk, int64_t chunk_rows,
                       const AttentionCall& call) const = 0;
  // Queries against keys in their expanded form: q [num_tokens, heads, n + p], k_nope [rows, heads,
  // n], k_rope [rows, p], v [rows, heads, v]. chunk < 0: the rows are this step's own, causal;
  // otherwise a gathered chunk of the step's one prefill request, all of whose valid rows every
  // query sees (within its window). A sink counts with the step's own rows.
  struct Expanded {
    Value q;
    Value k_nope;
    Value k_rope;
    Value v;
    int64_t chunk = -1;
    int64_t chunk_rows = 0;
  };
  virtual Partial RunExpanded(Tape& tape, const Expanded& rows,
                              const AttentionCall& call) const = 0;
  // q [num_tokens, heads, r + p] (absorbed) against the cached latents -> [num_tokens, heads, r]
  // fp32.
  virtual Value RunLatent(Tape& tape, const Value& q, const AttentionCall& call) const = 0;
  // The attention over the union of both partials' keys.
  virtual Partial Merge(Tape& tape, const Partial& a, const Partial& b) const = 0;
};

// Kernels compiled on demand, by backends that have such.
enum class AttentionJit {
  kOff,
  kAuto,     // where a compiler, or what one has left, is at hand
  kRequire,  // or an error
};

class AttentionBackend {
 public:
  virtual ~AttentionBackend() = default;
  virtual std::string_view name() const = 0;  // "VANILLA"
  virtual KvLayout layout() const = 0;        // of its paged rows
  virtual std::unique_ptr<AttentionLayer> CreateLayer(const AttentionSpec& spec) const = 0;
  virtual std::unique_ptr<MlaLayer> CreateMlaLayer(const AttentionSpec& spec) const = 0;
  // A plan for one cache group, whose layers declared `spec`; Prepare fills it for the layout at
  // hand. No allocation in a steady step.
  virtual std::unique_ptr<StepPlan> CreatePlan(int group, const CacheSpec& spec) const = 0;
  virtual void Prepare(const StepLayout& layout, StepPlan& plan) const = 0;
  // Of a backend that makes kernels for the layers created so far. Planning makes none: a line for
  // the ledger about each, or why one that is required cannot be. Loading makes them, before
  // anything runs.
  virtual Result<std::vector<std::string>> PlanKernels() const {
    return std::vector<std::string>();
  }
  virtual Status LoadKernels() const { return {}; }
};

}  // namespace tenon
