#include <fmt/format.h>

#include "tenon/base/text.h"
#include "tenon/ops/kernel_choice.h"
#include "tenon/plan/options.h"
#include "tenon/plan/phases.h"

namespace tenon {
namespace {

void AddPluginBackends(PlannedModel& plan) {
  for (const auto& [entry, provider] : plan.plugin_backends) {
    const bool displaced = plan.backends.Add(entry->backend, entry->rows);
    plan.context->Record({.field = "attention.backends",
                          .requested = "",
                          .resolved = std::string(entry->backend->name()),
                          .by = provider,
                          .why = displaced ? "in place of ours of that name" : "beside ours"});
  }
}

AttentionJit JitOf(const std::string& value) {
  if (EqualsIgnoreCase(value, "off")) return AttentionJit::kOff;
  return EqualsIgnoreCase(value, "require") ? AttentionJit::kRequire : AttentionJit::kAuto;
}

// An unknown name is one mistake, not one for each layer.
Status CheckBackendName(const Sourced<std::string>& wanted, const BackendTable& table) {
  if (EqualsIgnoreCase(wanted.value, "auto") || table.Find(wanted.value) != nullptr) return {};
  return UsageError(fmt::format("attn-backend = '{}' (set by {}), allowed: {}", wanted.value,
                                wanted.origin.Text(), Join(BackendNames(table), ", ")));
}

// Narrow products round differently for few and for many rows.
Result<Compute> DeterministicCompute(const EngineOptions& options, LoadContext& context) {
  const Sourced<std::string>& wanted = options.compute;
  if (EqualsIgnoreCase(wanted.value, "bf16")) {
    return UsageError(fmt::format(
        "compute = bf16 (set by {}) and deterministic (set by {}): narrow products round few rows "
        "and many differently; fix: --compute fp32, or without --deterministic",
        wanted.origin.Text(), options.deterministic.origin.Text()));
  }
  context.Record({.field = "compute",
                  .requested = wanted.value,
                  .resolved = std::string(NameOf(Compute::kFp32)),
                  .by = "deterministic",
                  .why = "a row's product does not depend on the rows beside it"});
  return Compute::kFp32;
}

Result<Compute> ResolveCompute(const EngineOptions& options, LoadContext& context,
                               const KernelTable& kernels) {
  const Sourced<std::string>& wanted = options.compute;
  const bool can_narrow = HasNarrowMatmuls(kernels);
  if (options.deterministic.value) return DeterministicCompute(options, context);
  if (EqualsIgnoreCase(wanted.value, "auto")) {
    const Compute compute = can_narrow ? Compute::kBf16 : Compute::kFp32;
    context.Record({.field = "compute",
                    .requested = "auto",
                    .resolved = std::string(NameOf(compute)),
                    .by = "options",
                    .why = can_narrow ? "the kernels multiply bf16, and integers for GGUF blocks"
                                      : "the kernels of this instruction set multiply fp32"});
    return compute;
  }
  if (EqualsIgnoreCase(wanted.value, "fp32")) return Compute::kFp32;
  if (!EqualsIgnoreCase(wanted.value, "bf16")) {
    return UsageError(fmt::format("compute = '{}' (set by {}), allowed: auto, fp32, bf16",
                                  wanted.value, wanted.origin.Text()));
  }
  if (can_narrow) return Compute::kBf16;
  return Unavailable(fmt::format(
      "compute = bf16 (set by {}), but the kernels of isa = {} multiply fp32 only; fix: --compute "
      "auto",
      wanted.origin.Text(), NameOf(kernels)));
}

// Whether matrices of products are packed where they can be. What that came to is recorded when
// they are known (Construct).
Result<WeightPacking> ResolvePacking(const Sourced<std::string>& wanted,
                                     const LoadContext& context) {
  if (EqualsIgnoreCase(wanted.value, "in-place")) return WeightPacking::kNever;
  const bool must = EqualsIgnoreCase(wanted.value, "packed");
  if (!must && !EqualsIgnoreCase(wanted.value, "auto")) {
    return UsageError(fmt::format("weights = '{}' (set by {}), allowed: auto, in-place, packed",
                                  wanted.value, wanted.origin.Text()));
  }
  if (context.options.compute.value == Compute::kFp32) {
    if (!must) return WeightPacking::kNever;
    return Unavailable(fmt::format(
        "weights = packed (set by {}), but products with compute = fp32 ({}) read rows as they are "
        "stored; fix: --weights auto, or --compute bf16 where the machine has it",
        wanted.origin.Text(), context.options.compute.origin.Text()));
  }
  return must ? WeightPacking::kWherePossible : WeightPacking::kWherePays;
}

Status ResolveMachine(const EngineOptions& options, MachineProfile& machine) {
  machine = DetectMachine();
  if (!EqualsIgnoreCase(options.isa.value, "auto")) {
    TN_ASSIGN_OR_RETURN(const Isa isa, ParseIsa(options.isa.value),
                        "set by " + options.isa.origin.Text());
    if (isa > machine.isa) {
      return Unavailable(fmt::format("isa = {} (set by {}), this machine has {}", NameOf(isa),
                                     options.isa.origin.Text(), NameOf(machine.isa)));
    }
    machine.isa = isa;
  }
  if (options.memory.value) {
    machine.memory_bytes = *options.memory.value;
    machine.available_bytes = *options.memory.value;
  }
  return {};
}

// What the family would rather have, where nobody set it. Each that counts is a decision.
Status OfferModelDefaults(PlannedModel& plan) {
  const auto& defaults = plan.resolution.entry->traits.defaults;
  if (!defaults) return {};
  const OptionTable table = EngineOptionTable();
  for (const OptionDefault& wish : defaults(*plan.config, plan.options, plan.context->machine)) {
    const OptionRow* row = table.Find(wish.name);
    if (row == nullptr) {
      return InternalError(fmt::format("a model's default names no option: {}", wish.name));
    }
    const OptionTable::State before = table.StateOf(*row, plan.options);
    TN_RETURN_IF_ERROR(table.OfferModelDefaults({&wish, 1}, plan.options));
    const OptionTable::State after = table.StateOf(*row, plan.options);
    const bool counts = after.origin.kind == Origin::Kind::kModelDefault;
    plan.context->Record(
        {.field = wish.name,
         .requested = before.value,
         .resolved = after.value,
         .by = "model defaults",
         .why = counts ? wish.why
                       : fmt::format("the model would have {} ({}), but it is set by {}",
                                     wish.value, wish.why, after.origin.Text())});
  }
  return {};
}

Result<ParallelMapping> ResolveMapping(const EngineOptions& options) {
  const int64_t world = options.tp.value * options.pp.value;
  if (options.rank.value >= world) {
    return UsageError(fmt::format("rank = {} (set by {}), allowed: 0 to {} (tp {} x pp {})",
                                  options.rank.value, options.rank.origin.Text(), world - 1,
                                  options.tp.value, options.pp.value));
  }
  return ParallelMapping{static_cast<int>(options.tp.value), static_cast<int>(options.pp.value),
                         static_cast<int>(options.rank.value)};
}

}  // namespace

Status PrepareContext(PlannedModel& plan) {
  const EngineOptions& options = plan.options;
  plan.context = std::make_unique<LoadContext>();
  LoadContext& context = *plan.context;
  context.ledger =
      Ledger({options.allow_downgrade.value.begin(), options.allow_downgrade.value.end()});
  TN_RETURN_IF_ERROR(ResolveMachine(options, context.machine));
  TN_RETURN_IF_ERROR(OfferModelDefaults(plan));
  plan.kernels = &KernelsFor(context.machine.isa);
  context.options.compute.origin = options.compute.origin;
  TN_ASSIGN_OR_RETURN(context.options.compute.value,
                      ResolveCompute(options, context, *plan.kernels));
  context.kernels = plan.kernels;
  TN_ASSIGN_OR_RETURN(context.options.packing, ResolvePacking(options.weights, context));
  TN_RETURN_IF_ERROR(ResolveKvDTypes(plan));
  context.options.attention_backend = options.attn_backend;
  context.options.page_tokens = {options.page_tokens.value.value_or(0), options.page_tokens.origin};
  context.attributes = {{"model.path", plan.checkpoint->path()},
                        {"model.architecture", plan.resolution.stated}};
  TN_ASSIGN_OR_RETURN(context.options.mapping, ResolveMapping(options));
  context.options.headless = plan.resolution.headless;
  context.options.mla_context_chunk = options.mla_context_chunk.value;
  context.options.deterministic = options.deterministic.value;
  plan.backends = BuiltinBackends(*plan.kernels, JitOf(options.attn_jit.value));
  AddPluginBackends(plan);
  context.backends = &plan.backends;
  context.linear_methods = &plan.linear_methods;
  TN_RETURN_IF_ERROR(CheckBackendName(options.attn_backend, plan.backends));
  context.container = plan.checkpoint->container();
  context.default_dtype = plan.config->stored_dtype.value.value_or(DType::kF32);
  plan.threads = static_cast<int>(options.threads.value.value_or(context.machine.cores));
  context.options.threads = plan.threads;
  for (const std::string& note : plan.checkpoint->notes()) {
    context.Record({.field = "checkpoint",
                    .requested = "",
                    .resolved = "noted",
                    .by = "checkpoint",
                    .why = note});
  }
  if (plan.checkpoint->tensors().empty()) {
    if (!plan.config->stored_dtype.value) {
      context.Record({.field = "weights.dtype",
                      .requested = "",
                      .resolved = std::string(NameOf(context.default_dtype)),
                      .by = "config",
                      .why = "there are no weight files, and the config names no dtype"});
    }
    return {};
  }
  const ModelEntry& entry = *plan.resolution.entry;
  NameTable names = entry.names(*plan.config, plan.checkpoint->container());
  if (plan.resolution.headless) {
    names.Prefix("", entry.traits.base_prefix, {entry.traits.base_prefix, "lm_head."});
  }
  TN_ASSIGN_OR_RETURN(TensorIndex index, TensorIndex::Build(*plan.checkpoint, std::move(names)));
  plan.index = std::make_unique<TensorIndex>(std::move(index));
  context.index = plan.index.get();
  for (const char* name : kGgufRopeTensors) {  // what the config has read
    const IndexedTensor* tensor =
        plan.checkpoint->gguf() == nullptr ? nullptr : plan.index->Find(name);
    if (tensor != nullptr) plan.index->MarkUsed(*tensor);
  }
  return {};
}

}  // namespace tenon
