// Attention as modules. AttentionCore: one layer's place in the attention table, its backend and
// its cache, for any family to compose with its own projections. SelfAttention: the common form
// (fused q/k/v, optional head norms, rope, output projection). MLA is in mla.h. Not thread-safe
// while recording.
#pragma once

#include <memory>
#include <optional>

#include "tenon/modules/linear.h"
#include "tenon/modules/norm.h"
#include "tenon/modules/rope_table.h"

namespace tenon {

// The heads of this rank, out of the whole layer's; where they cannot be shared out, the
// projections say so. Fewer kv heads than ranks: each has one, several the same.
AttentionSpec LocalHeads(const Scope& scope, AttentionSpec spec);

class AttentionCore : public Module {
 public:
  // The spec's dtypes of cached rows, compute and page size are set here from the options; the rest
  // is the family's.
  AttentionCore(const Scope& scope, const AttentionSpec& spec);

  void SelectAttention(LoadContext& context) override;

  // Appends and attends as the spec's kind says (attention/backend.h): [num_tokens, heads *
  // v_head_dim].
  Value Run(Forward& pass, const QkvView& qkv) const;
  const AttentionSpec& spec() const { return spec_; }
  const AttentionBackend& backend() const { return *backend_; }
  const Choice& choice() const { return choice_; }
  // Only after SelectAttention, for specs with MLA geometry.
  const MlaLayer& mla() const { return *mla_layer_; }
  AttentionCall CallFor(Forward& pass) const;

 private:
  AttentionSpec spec_;
  Choice choice_;
  const AttentionBackend* backend_ = nullptr;
  std::unique_ptr<AttentionLayer> layer_;
  std::unique_ptr<MlaLayer> mla_layer_;
  LayerCache cache_;
};

struct SelfAttentionOptions {
  AttentionSpec spec;
  int64_t hidden = 0;
  bool qkv_bias = false;
  bool o_bias = false;
  const RopeTable* rope = nullptr;  // null: no rotation
  RopePairing pairing = RopePairing::kHalf;
  std::optional<NormOptions> head_norm = {};  // of q and k, per head, before the rotation
  // Names below the scope.
  std::string q = "q_proj";
  std::string k = "k_proj";
  std::string v = "v_proj";
  std::string o = "o_proj";
  std::string q_norm = "q_norm";
  std::string k_norm = "k_norm";
};

class SelfAttention {
 public:
  SelfAttention(const Scope& scope, const SelfAttentionOptions& options);
  // x [num_tokens, hidden] -> the same shape.
  Value operator()(Forward& pass, const Value& x) const;

 private:
  const RopeTable* rope_;
  RopePairing pairing_;
  AttentionCore core_;
  Linear qkv_;
  std::optional<NormModule> q_norm_;
  std::optional<NormModule> k_norm_;
  Linear o_;
};

}  // namespace tenon
