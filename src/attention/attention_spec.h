// AttentionSpec: everything static about one layer's attention, resolved once from the config and
// read by selector, cache, plan and backend. What changes from step to step is in step_layout.h. A
// value; thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tenon/cache/cache_spec.h"
#include "tenon/cache/kv_format.h"
#include "tenon/numeric/dtype.h"
#include "tenon/ops/matmul.h"

namespace tenon {

enum class AttentionKind {
  kDecoder,  // causal, cached
  kEncoder,  // every row of the sequence sees every other; nothing is cached
  kCross,    // queries of the decoder, keys and values of the encoder's rows in a kCross cache
};
std::string_view NameOf(AttentionKind kind);

// All five are present or the layer is no MLA. Source: DeepSeek-V2 paper, section 2.1.
struct MlaGeometry {
  int64_t q_lora_rank = 0;       // 0: queries are projected directly
  int64_t kv_lora_rank = 0;      // r
  int64_t qk_nope_head_dim = 0;  // n
  int64_t qk_rope_head_dim = 0;  // p, may be 0
  int64_t v_head_dim = 0;        // v
};

// T5's learned bias by bucketed distance (Raffel et al. 2020; Hugging Face modeling_t5.py,
// T5Attention._relative_position_bucket). The table's address is read when the tape runs.
struct RelativeBias {
  const float* const* table = nullptr;  // -> [buckets, heads]
  int buckets = 0;
  int max_distance = 0;
  bool bidirectional = false;
};
// The bucket of a key `ahead` rows after the query (negative: before it), in [0, buckets). Constant
// for distances of max_distance and more. Logarithms in fp32, as in the reference.
int32_t BucketOf(const RelativeBias& bias, int64_t ahead);

struct AttentionSpec {
  int layer = 0;
  AttentionKind kind = AttentionKind::kDecoder;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;  // of q and k
  int64_t v_head_dim = 0;
  float scale = 0;               // multiplies q.k
  DType kv_dtype = DType::kF32;  // of cached rows (KvDTypes); set before selection
  // Of layers of the other kind (without window and chunk, or with), where it is another one.
  std::optional<DType> other_kv_dtype = {};
  // What cached numbers are stored divided by: fp8 and nvfp4, whose codes have a range.
  float k_scale = 1;
  float v_scale = 1;
  Compute compute = Compute::kFp32;  // what products may round to; set before selection
  // A row's bits follow from its own sequence alone: not from the team, the other sequences or the
  // chunks of its prompt. Set before selection.
  bool deterministic = false;
  int32_t page_tokens = 16;                // set before selection
  std::optional<KvLayout> kv_layout = {};  // of rows shared with another layer; else the backend's
  std::optional<int64_t> window = {};      // a query sees itself and window - 1 keys before it
                                           // (encoder: as many after it)
  std::optional<int64_t> chunk = {};       // Llama-4: same position / chunk only
  float softcap = 0;                       // 0: none
  const float* const* sinks = nullptr;     // -> [heads]; null: none
  const float* const* alibi_slopes = nullptr;  // -> [heads]; null: none
  std::optional<RelativeBias> relative_bias = {};
  std::optional<MlaGeometry> mla = {};
  bool custom_mask = false;  // requests may bring masks of their own (StepRequest::mask)

  // Does a row go out of sight as the sequence grows?
  bool IsLocal() const { return window.has_value() || chunk.has_value(); }
  // Elements of one cached row, K and V together: the one place that knows MLA caches its latent
  // once.
  int64_t CachedWidth() const {
    return mla ? mla->kv_lora_rank + mla->qk_rope_head_dim : kv_heads * (head_dim + v_head_dim);
  }
  // What one token's row is made of; MLA's latent is one head. The layout is `kRow` for MLA.
  KvGeometry Cached(KvLayout layout) const {
    if (mla) return {1, CachedWidth(), 0, kv_dtype, KvLayout::kRow};
    return {kv_heads, head_dim, v_head_dim, kv_dtype, layout};
  }
};

// What no layer can be: dimensions that are not positive or do not divide, limits that exclude each
// other. Empty for a spec that any backend takes which the selector chose for it.
struct SpecProblem {
  std::string attribute;
  std::string value;
  std::string allowed;
};
std::optional<SpecProblem> ProblemOf(const AttentionSpec& spec);

}  // namespace tenon
