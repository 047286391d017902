#include "tenon/modules/mla.h"

#include "tenon/ops/per_head.h"

namespace tenon {

Mla::Mla(const Scope& scope, const MlaOptions& o)
    : Module(scope),
      geometry_(*o.spec.mla),
      heads_(LocalHeads(scope, o.spec).heads),
      rope_(o.rope),
      pairing_(o.pairing),
      context_chunk_(scope.context().options.mla_context_chunk),
      may_expand_(!scope.context().options.deterministic),
      core_(scope, LocalHeads(scope, o.spec)),
      kv_a_(scope / "kv_a_proj_with_mqa", o.hidden,
            geometry_.kv_lora_rank + geometry_.qk_rope_head_dim, o.bias),
      kv_a_norm_(scope / "kv_a_layernorm", {.width = geometry_.kv_lora_rank, .eps = o.norm_eps}),
      kv_b_(scope, "kv_b_proj", geometry_.kv_lora_rank,
            {{"kv_b_proj", o.spec.heads * (geometry_.qk_nope_head_dim + geometry_.v_head_dim),
              false, o.spec.heads}},
            LinearShare::kRows),
      o_(scope / "o_proj", o.spec.heads * geometry_.v_head_dim, o.hidden, o.bias,
         LinearShare::kColumns),
      absorb_query_(static_cast<size_t>(heads_)),
      absorb_value_(static_cast<size_t>(heads_)) {
  kv_b_.KeepRows();  // Derive reads them
  const auto queries = [&](const std::string& name) {
    const int64_t width = geometry_.qk_nope_head_dim + geometry_.qk_rope_head_dim;
    return std::vector<Segment>{{name, o.spec.heads * width, false, o.spec.heads}};
  };
  if (geometry_.q_lora_rank == 0) {
    q_.emplace(scope, "q_proj", o.hidden, queries("q_proj"), LinearShare::kRows);
  } else {
    q_a_.emplace(scope / "q_a_proj", o.hidden, geometry_.q_lora_rank, o.bias);
    q_a_norm_.emplace(scope / "q_a_layernorm",
                      NormOptions{.width = geometry_.q_lora_rank, .eps = o.norm_eps});
    q_b_.emplace(scope, "q_b_proj", geometry_.q_lora_rank, queries("q_b_proj"), LinearShare::kRows);
  }
  const auto matrix = [](int64_t rows, int64_t cols) {
    return MatrixRef{.dtype = DType::kF32, .rows = rows, .cols = cols, .row_bytes = cols * 4};
  };
  for (MatrixRef& m : absorb_query_) m = matrix(geometry_.kv_lora_rank, geometry_.qk_nope_head_dim);
  for (MatrixRef& m : absorb_value_) m = matrix(geometry_.v_head_dim, geometry_.kv_lora_rank);
}

int64_t Mla::derived_bytes() const {
  return 4 * heads_ * geometry_.kv_lora_rank * (geometry_.qk_nope_head_dim + geometry_.v_head_dim);
}

Status Mla::Derive() {
  const int64_t r = geometry_.kv_lora_rank;
  const int64_t n = geometry_.qk_nope_head_dim;
  const int64_t v = geometry_.v_head_dim;
  TN_ASSIGN_OR_RETURN(absorbed_, Buffer::Allocate(derived_bytes(), "absorbed MLA weights"));
  const MatrixRef& kv_b = kv_b_.matrices()[0];
  std::vector<float> row(static_cast<size_t>(r));
  float* out = reinterpret_cast<float*>(absorbed_.data());
  for (int64_t h = 0; h < heads_; ++h) {
    float* query = out;  // [r, n]: the transpose, so that a matmul with q_nope gives r numbers
    float* value = out + r * n;  // [v, r]
    out += r * (n + v);
    for (int64_t i = 0; i < n + v; ++i) {
      DecodeRow(kv_b, h * (n + v) + i, row.data());
      for (int64_t j = 0; j < r; ++j) {
        if (i < n) {
          query[j * n + i] = row[static_cast<size_t>(j)];
        } else {
          value[(i - n) * r + j] = row[static_cast<size_t>(j)];
        }
      }
    }
    absorb_query_[static_cast<size_t>(h)].data = reinterpret_cast<std::byte*>(query);
    absorb_value_[static_cast<size_t>(h)].data = reinterpret_cast<std::byte*>(value);
  }
  return {};
}

Mla::Projected Mla::Project(Forward& pass, const Value& x) const {
  const int64_t n = geometry_.qk_nope_head_dim;
  const int64_t p = geometry_.qk_rope_head_dim;
  const int64_t r = geometry_.kv_lora_rank;
  const Value flat_q = q_ ? (*q_)(pass, x) : (*q_b_)(pass, (*q_a_norm_)(pass, (*q_a_)(pass, x)));
  Projected rows{flat_q.SplitLast(heads_, n + p), kv_a_(pass, x)};
  kv_a_norm_.InPlace(pass, rows.latent.Slice(1, 0, r));
  if (p > 0 && rope_ != nullptr) {
    const Value angles = pass.Angles(*rope_);
    Rope(pass.tape(), rows.q.Slice(2, n, n + p), angles, pairing_);
    Rope(pass.tape(), rows.latent.Slice(1, r, r + p), angles, pairing_);
  }
  return rows;
}

Value Mla::operator()(Forward& pass, const Value& x) const {
  const Projected rows = Project(pass, x);
  core_.mla().Append(pass.tape(), rows.latent, core_.CallFor(pass));
  const auto requests = pass.layout().requests;
  // The expanded form pays for a prefill of one sequence; decode and mixed steps run on the
  // latents.
  const bool expanded =
      may_expand_ && requests.size() == 1 && requests[0].phase == RequestPhase::kPrefill;
  return o_(pass, expanded ? RunExpanded(pass, rows) : RunAbsorbed(pass, rows.q));
}

Value Mla::RunAbsorbed(Forward& pass, const Value& q) const {
  const int64_t n = geometry_.qk_nope_head_dim;
  const int64_t p = geometry_.qk_rope_head_dim;
  const Value absorbed = MatmulPerHead(pass.tape(), absorb_query_, q.Slice(2, 0, n), p);
  if (p > 0)
    CopyInto(pass.tape(), q.Slice(2, n, n + p),
             absorbed.Slice(2, geometry_.kv_lora_rank, geometry_.kv_lora_rank + p));
  const Value latent = core_.mla().RunLatent(pass.tape(), absorbed, core_.CallFor(pass));
  return MatmulPerHead(pass.tape(), absorb_value_, latent, 0).MergeLast();
}

MlaLayer::Partial Mla::ExpandAndRun(Forward& pass, const Value& q, const Value& latent,
                                    int64_t chunk) const {
  const int64_t n = geometry_.qk_nope_head_dim;
  const int64_t p = geometry_.qk_rope_head_dim;
  const int64_t r = geometry_.kv_lora_rank;
  const Value kv = kv_b_(pass, latent.Slice(1, 0, r)).SplitLast(heads_, n + geometry_.v_head_dim);
  MlaLayer::Expanded rows;
  rows.q = q;
  rows.k_nope = kv.Slice(2, 0, n);
  rows.k_rope = latent.Slice(1, r, r + p);
  rows.v = kv.Slice(2, n, n + geometry_.v_head_dim);
  rows.chunk = chunk;
  rows.chunk_rows = chunk < 0 ? 0 : context_chunk_;
  return core_.mla().RunExpanded(pass.tape(), rows, core_.CallFor(pass));
}

Value Mla::RunExpanded(Forward& pass, const Projected& rows) const {
  MlaLayer::Partial sum = ExpandAndRun(pass, rows.q, rows.latent, -1);
  const int64_t chunks = (pass.mla_context_rows + context_chunk_ - 1) / context_chunk_;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const Value cached =
        core_.mla().Gather(pass.tape(), chunk, context_chunk_, core_.CallFor(pass));
    sum = core_.mla().Merge(pass.tape(), sum, ExpandAndRun(pass, rows.q, cached, chunk));
  }
  return sum.out.MergeLast();
}

}  // namespace tenon
