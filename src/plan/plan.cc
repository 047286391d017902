#include "tenon/plan/plan.h"

#include <algorithm>

#include "tenon/plan/phases.h"
#include "tenon/registry/plugin_loader.h"

namespace tenon {

int64_t PlannedModel::prefill_rows() const {
  return kind() == ModelKind::kEncoder ? max_seq_len
                                       : std::min(options.prefill_chunk.value, max_seq_len);
}

int64_t PlannedModel::largest_step() const {
  return kind() == ModelKind::kEncoderDecoder ? max_seq_len : prefill_rows();
}

Result<std::unique_ptr<PlannedModel>> PlanModel(const std::string& path, EngineOptions options,
                                                Registry& registry) {
  auto plan = std::make_unique<PlannedModel>();
  plan->options = std::move(options);
  TN_ASSIGN_OR_RETURN(plan->checkpoint, Checkpoint::Open(path));
  // They may bring what the checkpoint names.
  TN_RETURN_IF_ERROR(OpenPlugins(plan->options.custom_module_dirs, registry));
  plan->plugin_backends = registry.AttentionBackends();
  plan->plugin_quant_methods = registry.QuantMethods();
  TN_ASSIGN_OR_RETURN(const Identity identity, IdentityOf(*plan->checkpoint, registry), path);
  TN_RETURN_IF_ERROR(ResolveModel(identity, registry, *plan), path);
  TN_RETURN_IF_ERROR(ReadModelConfig(*plan), path);
  TN_RETURN_IF_ERROR(PrepareContext(*plan), path);
  TN_RETURN_IF_ERROR(SelectTarget(*plan), path);
  TN_RETURN_IF_ERROR(Construct(*plan), path);
  TN_RETURN_IF_ERROR(SizeMemory(*plan), path);
  plan->context->ledger.Freeze();
  return plan;
}

}  // namespace tenon
