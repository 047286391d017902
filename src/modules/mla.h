// Mla: multi-head latent attention (DeepSeek-V2 paper, section 2.1; Hugging Face
// modeling_deepseek_v2.py). Decode runs on the cached latents with absorbed weights; prefill
// expands its rows, and its cached context in chunks. The absorbed weights are derived from
// kv_b_proj after loading. Not thread-safe while recording.
#pragma once

#include "tenon/modules/attention.h"

namespace tenon {

struct MlaOptions {
  AttentionSpec spec;  // with its MlaGeometry
  int64_t hidden = 0;
  const RopeTable* rope = nullptr;
  RopePairing pairing = RopePairing::kInterleaved;
  float norm_eps =
      1e-6f;          // of the low-rank norms: the reference's class default, not the model's eps
  bool bias = false;  // of the a projections and the output
};

class Mla : public Module {
 public:
  Mla(const Scope& scope, const MlaOptions& options);

  Status Derive() override;

  // x [num_tokens, hidden] -> the same shape.
  Value operator()(Forward& pass, const Value& x) const;
  int64_t derived_bytes() const override;

 private:
  struct Projected {
    Value q;       // [num_tokens, heads, n + p], rotated
    Value latent;  // [num_tokens, r + p], normed and rotated
  };
  Projected Project(Forward& pass, const Value& x) const;
  Value RunAbsorbed(Forward& pass, const Value& q) const;
  Value RunExpanded(Forward& pass, const Projected& rows) const;
  MlaLayer::Partial ExpandAndRun(Forward& pass, const Value& q, const Value& latent,
                                 int64_t chunk) const;

  MlaGeometry geometry_;
  int64_t heads_;
  const RopeTable* rope_;
  RopePairing pairing_;
  int64_t context_chunk_;
  bool may_expand_;
  AttentionCore core_;
  std::optional<Linear> q_;  // when queries have no low rank
  std::optional<Linear> q_a_;
  std::optional<NormModule> q_a_norm_;
  std::optional<Linear> q_b_;
  Linear kv_a_;
  NormModule kv_a_norm_;
  Linear kv_b_;  // [heads * (n + v), r]
  Linear o_;
  // Derived, fp32: per head the transpose of kv_b's key rows, and its value rows.
  Buffer absorbed_;
  std::vector<MatrixRef> absorb_query_;  // [heads] of [r, n]
  std::vector<MatrixRef> absorb_value_;  // [heads] of [v, r]
};

}  // namespace tenon
