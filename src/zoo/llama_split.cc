// A target for small dense Llamas that generate with two or four threads on kernels with bf16 and
// packed weights: each MLP is taken in as many parts as there are threads, so that a token's step
// meets four times a layer instead of five. What it gains is in docs/performance.md; prompts are
// computed as the family does, part by part.
#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/text.h"
#include "tenon/modules/split_mlp.h"
#include "tenon/ops/pack_weights.h"
#include "tenon/registry/registry.h"
#include "tenon/zoo/llama.h"

namespace tenon {
namespace {

// Wider ones read so much that a meeting less is not seen.
constexpr int64_t kWidest = 1536;
// Parts end between the groups that packed products take: 64 columns.
constexpr int64_t kUnit = 64;

const LlamaConfig& ConfigOf(const TargetQuery& query) {
  return static_cast<const LlamaConfig&>(query.config);
}

// The stored types of all MLP matrices.
std::vector<DType> MlpTypes(const TargetQuery& query) {
  std::vector<DType> types;
  if (query.context.index == nullptr) return {query.context.default_dtype};
  for (int64_t layer = 0; layer < query.config.layers.value; ++layer) {
    for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
      const IndexedTensor* tensor =
          query.context.index->Find(fmt::format("model.layers.{}.mlp.{}.weight", layer, name));
      if (tensor == nullptr || !tensor->unsupported.empty()) continue;  // an error of later
      if (std::find(types.begin(), types.end(), tensor->dtype) == types.end()) {
        types.push_back(tensor->dtype);
      }
    }
  }
  return types;
}

bool ArePacked(const TargetQuery& query, const std::vector<DType>& types) {
  const WeightPacking packing = query.context.options.packing;
  return packing != WeightPacking::kNever &&
         std::all_of(types.begin(), types.end(), [&](DType dtype) {
           return packing == WeightPacking::kWherePossible
                      ? CanPack(*query.context.kernels, dtype)
                      : PackingPays(*query.context.kernels, dtype);
         });
}

std::vector<Criterion> Fingerprint(const TargetQuery& query) {
  const LlamaConfig& c = ConfigOf(query);
  const int64_t hidden = c.hidden.value;
  std::vector<std::string> names;
  const std::vector<DType> types = MlpTypes(query);
  for (const DType dtype : types) names.emplace_back(NameOf(dtype));
  const bool packed = !types.empty() && ArePacked(query, types);
  const bool bf16 = query.context.options.compute.value == Compute::kBf16;
  return {
      {"hidden", std::to_string(hidden), fmt::format("at most {}", kWidest), hidden <= kWidest},
      {"mlp_bias", c.mlp_bias ? "true" : "false", "false", !c.mlp_bias},
      {"compute", std::string(NameOf(query.context.options.compute.value)), "bf16", bf16},
      {"mlp weights", Join(names, ", ") + (packed ? " packed" : " in place"), "packed", packed},
  };
}

std::vector<Criterion> Bounds(const TargetQuery& query) {
  const int threads = query.context.options.threads;
  const int world = query.context.options.mapping.world();
  return {
      {"threads", std::to_string(threads), "2 or 4", threads == 2 || threads == 4},
      {"world", std::to_string(world), "1", world == 1},
  };
}

using SplitLlama = LlamaModel<SplitMlp, int>;

std::unique_ptr<Model> Create(const Scope& scope, const ModelConfig& config, NoTarget& no_target) {
  const auto& c = static_cast<const LlamaConfig&>(config);
  const int parts = scope.context().options.threads;
  for (int layer = 0; layer < c.layers.value; ++layer) {
    const int64_t width = c.intermediate.value[layer];
    if (width % (parts * kUnit) == 0) continue;
    no_target.why = fmt::format(
        "layer {} has an MLP of width {}, which {} parts do not divide into "
        "multiples of {}",
        layer, width, parts, kUnit);
    return nullptr;
  }
  return std::make_unique<SplitLlama>(scope, c, parts);
}

}  // namespace

Status RegisterLlamaSplit(Registrar& registrar) {
  TargetEntry entry;
  entry.name = "llama-split-mlp";
  entry.architectures = {"LlamaForCausalLM"};
  entry.fingerprint = Fingerprint;
  entry.bounds = Bounds;
  entry.create = Create;
  registrar.Target(std::move(entry));
  return {};
}

}  // namespace tenon
