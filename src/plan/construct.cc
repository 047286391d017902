#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/text.h"
#include "tenon/config/glob.h"
#include "tenon/modules/quantise.h"
#include "tenon/ops/pack_weights.h"
#include "tenon/plan/phases.h"

namespace tenon {
namespace {

// Patterns of tensors that may be left unused: the family's, and those that its config decides.
std::vector<std::string> SkippableOf(const PlannedModel& plan) {
  const ModelEntry& entry = *plan.resolution.entry;
  std::vector<std::string> patterns = entry.traits.skippable;
  if (entry.skippable) {
    for (std::string& pattern : entry.skippable(*plan.config)) patterns.push_back(pattern);
  }
  return patterns;
}

std::vector<std::string> ParameterNames(const LoadContext& context) {
  std::vector<std::string> names;
  for (Module* module : context.modules) {
    for (const Parameter& parameter : module->parameters()) names.push_back(parameter.path());
  }
  return names;
}

// A tensor that nothing uses is an error, unless the family declares it skippable.
void CheckUnused(PlannedModel& plan) {
  int64_t skipped = 0;
  std::vector<std::string> unused;
  const std::vector<std::string> patterns = SkippableOf(plan);
  for (const StoredTensor* tensor : plan.index->UnusedStored()) {
    const bool known =
        std::any_of(patterns.begin(), patterns.end(),
                    [&](const std::string& pattern) { return GlobMatches(pattern, tensor->name); });
    if (known) {
      ++skipped;
    } else {
      unused.emplace_back(tensor->name);
    }
  }
  if (skipped > 0) {
    plan.context->Record({.field = "weights.unused",
                          .requested = "",
                          .resolved = fmt::format("{} skipped", skipped),
                          .by = "weights",
                          .why = "the family knows them as not needed"});
  }
  if (unused.empty()) return;
  if (plan.context->ledger.Allows("weights.unused")) {
    plan.context->Record(
        {.field = "weights.unused",
         .requested = "use",
         .resolved = "ignored",
         .by = "weights",
         .why = fmt::format("{} tensors that the model does not use", unused.size()),
         .kind = DecisionKind::kDowngraded});
    return;
  }
  // A look through all names takes a while: only for those that will be read.
  constexpr size_t kNearFor = 8;
  const std::vector<std::string> names = ParameterNames(*plan.context);
  for (size_t i = 0; i < unused.size(); ++i) {
    const std::vector<std::string> near =
        i < kNearFor ? NearNames(unused[i], names) : std::vector<std::string>{};
    plan.context->Error(fmt::format(
        "{}: the model does not use this tensor of the checkpoint{}; fix: the right config.json, "
        "or --allow-downgrade weights.unused",
        unused[i], near.empty() ? "" : fmt::format(" (the model has {})", Join(near, ", "))));
  }
}

std::string_view ReasonForRows(const LoadContext& context) {
  const ConstructionOptions& options = context.options;
  if (options.packing == WeightPacking::kNever) {
    return options.compute.value == Compute::kFp32 ? "fp32 products read rows as they are stored"
                                                   : "as asked for";
  }
  const auto can_pack = [&](const Parameter& p) {
    return p.form() == Parameter::Form::kProduct && CanPack(*context.kernels, p.stored_dtype());
  };
  for (Module* module : context.modules) {
    const auto& parameters = module->parameters();
    if (std::any_of(parameters.begin(), parameters.end(), can_pack)) {
      return "packing these formats gains too little for its time at the start; --weights packed "
             "does it";
    }
  }
  return "the kernels have no packed form of these formats";
}

// How the weights are held, in one line: which form, how much.
void RecordHeldForms(PlannedModel& plan) {
  const PackedTotal packed = PackedTotalOf(*plan.context);
  const Sourced<std::string>& wanted = plan.options.weights;
  Decision decision;
  decision.field = "weights.form";
  decision.requested = wanted.value;
  decision.by = "weights";
  if (packed.matrices > 0) {
    decision.resolved = "packed";
    decision.why = fmt::format(
        "{} matrices are copied into the order that the kernels read best, {}; the rest is read "
        "from the file",
        packed.matrices, BytesText(packed.bytes));
  } else {
    decision.resolved = "in-place";
    decision.why = ReasonForRows(*plan.context);
    if (EqualsIgnoreCase(wanted.value, "packed")) decision.kind = KindOfChange(wanted.origin);
  }
  plan.context->Record(std::move(decision));
}

// Kernels that backends will make for their layers while the model loads, or why they cannot.
Status RecordKernels(PlannedModel& plan) {
  const Sourced<std::string>& wanted = plan.options.attn_jit;
  bool any = false;
  for (const auto& backend : plan.backends.backends) {
    TN_ASSIGN_OR_RETURN(const auto notes, backend->PlanKernels());
    for (const std::string& note : notes) {
      const size_t colon = note.find(": ");
      plan.context->Record({.field = "attention.kernels",
                            .requested = wanted.value,
                            .resolved = note.substr(0, colon),
                            .by = std::string(backend->name()),
                            .why = note.substr(colon + 2)});
      any = true;
    }
  }
  if (any || !EqualsIgnoreCase(wanted.value, "require")) return {};
  return UsageError(
      fmt::format("attn-jit = require (set by {}), but no layer's backend compiles kernels; fix: "
                  "--attn-backend FLASHINFER, or --attn-jit auto",
                  wanted.origin.Text()));
}

}  // namespace

Status Construct(PlannedModel& plan) {
  LoadContext& context = *plan.context;
  TN_RETURN_IF_ERROR(BuildModel(plan));
  QuantiseModules(context, plan.quant, SkippableOf(plan));
  TN_RETURN_IF_ERROR(context.Errors());
  TN_RETURN_IF_ERROR(CheckKvKinds(plan));
  for (Module* module : context.modules) module->SelectAttention(context);
  TN_RETURN_IF_ERROR(context.Errors());
  TN_RETURN_IF_ERROR(RecordKernels(plan));
  for (Module* module : context.modules) module->CreateWeights(context);
  if (plan.index != nullptr && context.errors.empty()) CheckUnused(plan);
  if (context.idle_input_scales > 0) {
    context.Record({.field = "quantisation.input_scales",
                    .requested = fmt::format("{} in the file", context.idle_input_scales),
                    .resolved = "not used",
                    .by = "weights",
                    .why = "products do not round their inputs to fixed scales"});
  }
  RecordHeldForms(plan);
  TN_RETURN_IF_ERROR(context.Errors());
  for (const DeclaredCache& declared : context.caches) {
    plan.cache_specs.push_back(declared.spec);
    plan.layer_caches.push_back(declared.cache);
  }
  return {};
}

}  // namespace tenon
