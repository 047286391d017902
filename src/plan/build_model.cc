// The boundary at which models are made: targets that refuse, constructors that compute with
// weights, constructors that throw.
#include <fmt/format.h>

#include <exception>

#include "tenon/base/text.h"
#include "tenon/modules/meta_error.h"
#include "tenon/plan/phases.h"

namespace tenon {
namespace {

constexpr const char* kMetaField = "construction.meta";

// One construction from an empty tree. Null without an error: the target refuses, and why.
Result<std::unique_ptr<Model>> CreateOnce(PlannedModel& plan, NoTarget& no_target) {
  const Scope root(*plan.context, "");
  const Resolution& resolution = plan.resolution;
  try {
    std::unique_ptr<Model> model = resolution.target != nullptr
                                       ? resolution.target->create(root, *plan.config, no_target)
                                       : resolution.entry->create(root, *plan.config);
    if (model == nullptr && resolution.target == nullptr) {
      return Refused(fmt::format("'{}' of provider '{}' made no model", resolution.architecture,
                                 resolution.provider));
    }
    return model;
  } catch (const MetaError&) {
    throw;  // BuildModel decides
  } catch (const std::exception& exception) {
    return Refused(fmt::format("constructing '{}' of provider '{}' threw: {}",
                               resolution.architecture, resolution.provider, exception.what()));
  }
}

// The model's constructor has read a weight. With consent it may, on real storage.
Status ConsentToStorage(const MetaError& error, PlannedModel& plan) {
  LoadContext& context = *plan.context;
  if (context.storage != nullptr) {
    return Refused(fmt::format("{}, which the checkpoint does not hold", error.what()));
  }
  Decision decision;
  decision.field = kMetaField;
  decision.requested = "meta";
  decision.resolved = "real storage";
  decision.by = "construction";
  decision.why = fmt::format("'{}' computed with weight {} while constructing; move it to Derive()",
                             plan.resolution.architecture, error.parameter());
  decision.kind = DecisionKind::kDowngraded;
  const Status refusal = context.ledger.Record(std::move(decision));
  if (!refusal.ok()) return Refused(refusal.message());
  if (plan.index == nullptr) {
    return Refused(
        fmt::format("{}, and there are no weights; fix: a complete checkpoint", error.what()));
  }
  context.storage = plan.checkpoint.get();
  return {};
}

}  // namespace

Status BuildModel(PlannedModel& plan) {
  LoadContext& context = *plan.context;
  size_t decisions = context.ledger.decisions().size();
  for (;;) {
    context.ClearTree(decisions);
    NoTarget no_target;
    try {
      TN_ASSIGN_OR_RETURN(plan.model, CreateOnce(plan, no_target));
    } catch (const MetaError& error) {
      context.ClearTree(decisions);
      TN_RETURN_IF_ERROR(ConsentToStorage(error, plan));
      decisions = context.ledger.decisions().size();  // the consent stays
      continue;
    }
    if (plan.model != nullptr) return context.Errors();
    TN_RETURN_IF_ERROR(DropTarget(no_target, TargetModeOf(plan.options), plan.resolution));
  }
}

}  // namespace tenon
