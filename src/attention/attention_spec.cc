#include "tenon/attention/attention_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tenon {
namespace {

using Problem = std::optional<SpecProblem>;

Problem Bad(std::string_view attribute, std::string value, std::string allowed) {
  return SpecProblem{std::string(attribute), std::move(value), std::move(allowed)};
}

Problem ProblemOfSizes(const AttentionSpec& spec) {
  // Beyond any model, and small enough that products of three do not wrap.
  constexpr int64_t kMost = int64_t{1} << 20;
  const std::pair<std::string_view, int64_t> sizes[] = {{"heads", spec.heads},
                                                        {"kv_heads", spec.kv_heads},
                                                        {"head_dim", spec.head_dim},
                                                        {"v_head_dim", spec.v_head_dim}};
  for (const auto& [name, value] : sizes) {
    if (value < 1 || value > kMost)
      return Bad(name, std::to_string(value), fmt::format("1..{}", kMost));
  }
  if (spec.heads % spec.kv_heads != 0) {
    return Bad("kv_heads", std::to_string(spec.kv_heads),
               fmt::format("divisors of heads = {}", spec.heads));
  }
  const bool power = spec.page_tokens > 0 && (spec.page_tokens & (spec.page_tokens - 1)) == 0;
  if (!power || spec.page_tokens < 16 || spec.page_tokens > 256)
    return Bad("page_tokens", std::to_string(spec.page_tokens), "a power of two of 16..256");
  return {};
}

Problem ProblemOfRules(const AttentionSpec& spec) {
  if (!std::isfinite(spec.scale))
    return Bad("scale", fmt::format("{}", spec.scale), "finite numbers");
  if (!(spec.softcap >= 0) || std::isinf(spec.softcap))
    return Bad("softcap", fmt::format("{}", spec.softcap), "positive numbers, 0 for none");
  if (spec.window && *spec.window < 1)
    return Bad("window", std::to_string(*spec.window), "positive numbers");
  if (spec.chunk && *spec.chunk < 1)
    return Bad("chunk", std::to_string(*spec.chunk), "positive numbers");
  // Keys of another sequence have no distance to a query.
  if (spec.kind == AttentionKind::kCross &&
      (spec.window || spec.chunk || spec.alibi_slopes != nullptr || spec.relative_bias)) {
    return Bad("kind", "cross", "decoder or encoder, with window, chunk, alibi or relative bias");
  }
  return {};
}

Problem ProblemOfLatents(const AttentionSpec& spec) {
  if (!spec.mla) {
    if (spec.kv_layout == KvLayout::kRow)
      return Bad("kv_layout", "row", "NHD or HND, without MLA geometry");
    return {};
  }
  const MlaGeometry& m = *spec.mla;
  if (m.q_lora_rank < 0 || m.kv_lora_rank < 1 || m.qk_nope_head_dim < 1 || m.qk_rope_head_dim < 0 ||
      m.v_head_dim < 1) {
    return Bad("MLA geometry",
               fmt::format("(q_lora_rank {}, kv_lora_rank {}, qk_nope_head_dim {}, "
                           "qk_rope_head_dim {}, v_head_dim {})",
                           m.q_lora_rank, m.kv_lora_rank, m.qk_nope_head_dim, m.qk_rope_head_dim,
                           m.v_head_dim),
               "positive numbers; q_lora_rank and qk_rope_head_dim may be 0");
  }
  if (spec.kind != AttentionKind::kDecoder)
    return Bad("kind", std::string(NameOf(spec.kind)), "decoder, with MLA geometry");
  if (spec.kv_layout && *spec.kv_layout != KvLayout::kRow)
    return Bad("kv_layout", std::string(NameOf(*spec.kv_layout)), "row, with MLA geometry");
  return {};
}

Problem ProblemOfBias(const AttentionSpec& spec) {
  if (!spec.relative_bias) return {};
  constexpr int kMostDistance = 1 << 20;
  const RelativeBias& b = *spec.relative_bias;
  const int directed = b.bidirectional ? b.buckets / 2 : b.buckets;
  if (directed < 2) {
    return Bad("relative_bias buckets", std::to_string(b.buckets),
               b.bidirectional ? "4 and more" : "2 and more");
  }
  if (b.max_distance <= directed / 2 || b.max_distance > kMostDistance) {
    return Bad("relative_bias max_distance", std::to_string(b.max_distance),
               fmt::format("{}..{}", directed / 2 + 1, kMostDistance));
  }
  return {};
}

}  // namespace

std::string_view NameOf(AttentionKind kind) {
  switch (kind) {
    case AttentionKind::kDecoder:
      return "decoder";
    case AttentionKind::kEncoder:
      return "encoder";
    case AttentionKind::kCross:
      return "cross";
  }
  return "unknown";
}

int32_t BucketOf(const RelativeBias& bias, int64_t ahead) {
  int32_t buckets = bias.buckets;
  int32_t first = 0;
  if (bias.bidirectional) {
    buckets /= 2;
    if (ahead > 0) first = buckets;
  } else {
    ahead = std::min<int64_t>(ahead, 0);
  }
  const int64_t distance = ahead < 0 ? -ahead : ahead;
  const int32_t exact = buckets / 2;
  if (distance < exact) return first + static_cast<int32_t>(distance);
  if (distance >= bias.max_distance) return first + buckets - 1;
  const auto span = static_cast<float>(
      std::log(static_cast<double>(bias.max_distance) / static_cast<double>(exact)));
  const float share = std::log(static_cast<float>(distance) / static_cast<float>(exact)) / span;
  const int32_t bucket = exact + static_cast<int32_t>(share * static_cast<float>(buckets - exact));
  return first + std::min(bucket, buckets - 1);
}

std::optional<SpecProblem> ProblemOf(const AttentionSpec& spec) {
  for (const auto check : {ProblemOfSizes, ProblemOfRules, ProblemOfLatents, ProblemOfBias}) {
    if (auto problem = check(spec)) return problem;
  }
  return {};
}

}  // namespace tenon
