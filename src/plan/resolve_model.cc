#include <fmt/format.h>

#include "tenon/base/text.h"
#include "tenon/plan/phases.h"

namespace tenon {

TargetMode TargetModeOf(const EngineOptions& options) {
  if (EqualsIgnoreCase(options.target.value, "off")) return TargetMode::kOff;
  return EqualsIgnoreCase(options.target.value, "require") ? TargetMode::kRequire
                                                           : TargetMode::kAuto;
}

Status ResolveModel(const Identity& identity, Registry& registry, PlannedModel& plan) {
  ResolveOptions options;
  options.mm_encoder_only = plan.options.mm_encoder_only.value;
  options.targets = TargetModeOf(plan.options);
  // The registry knows names, not where they stand.
  const std::string where = fmt::format("as {} names it", identity.source);
  TN_ASSIGN_OR_RETURN(plan.resolution, Resolve(identity, registry, options), where);
  Status& later = plan.resolution.index_failure;  // of which SelectTarget may still make nothing
  if (!later.ok()) later = later.WithContext(where);
  plan.registrations = registry.notes();
  return {};
}

Status SelectTarget(PlannedModel& plan) {
  const TargetQuery query = {*plan.config, plan.options, *plan.context};
  return ChooseTarget(&query, TargetModeOf(plan.options), plan.resolution);
}

}  // namespace tenon
