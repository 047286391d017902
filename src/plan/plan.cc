#include "tenon/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/text.h"
#include "tenon/config/quant_config.h"
#include "tenon/modules/rope_table.h"
#include "tenon/ops/kernel_choice.h"
#include "tenon/plan/step_shape.h"

namespace tenon {
namespace {

// A share of the free memory is left to others.
constexpr double kMemoryFraction = 0.9;

// Scalars and lists of numbers; of other lists their length alone.
Json MetadataAsJson(const GgufMetadata& metadata) {
  Json object{Json::Object{}};
  Json::Object& members = object.as_object();  // keys are unique: no look-up per key
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    const std::string key(entry.key);
    const GgufValue& value = entry.value;
    if (const auto flag = value.AsBool()) {
      members.emplace_back(key, *flag);
    } else if (const auto number = value.AsInt()) {
      members.emplace_back(key, *number);
    } else if (const auto real = value.AsFloat()) {
      members.emplace_back(key, *real);
    } else if (const auto text = value.AsString()) {
      members.emplace_back(key, std::string(*text));
    } else {
      members.emplace_back(key + ".length", value.count());
      // Vocabularies' scores and types are long and no config.
      constexpr int64_t kLongest = 4096;
      if (value.count() > kLongest || value.element_type() == GgufType::kString) continue;
      Json::Array list;
      if (const auto numbers = value.AsInts()) {
        for (const int64_t n : *numbers) list.emplace_back(n);
      } else if (const auto reals = value.AsFloats()) {
        for (const double n : *reals) list.emplace_back(n);
      }
      members.emplace_back(key, std::move(list));
    }
  }
  return object;
}

// The config as Hugging Face would have it, whatever the container.
Result<ConfigSource> SourceOf(const Checkpoint& checkpoint, const ModelEntry& entry) {
  const GgufMetadata* metadata = checkpoint.gguf();
  if (metadata == nullptr) return ConfigSource{.json = *checkpoint.config()};
  if (entry.traits.gguf_keys.empty()) {
    return Refused(fmt::format("{} is not served from GGUF; fix: its Hugging Face directory",
                               entry.architecture));
  }
  TN_ASSIGN_OR_RETURN(const std::string_view architecture,
                      metadata->String("general.architecture"));
  return ConfigFromGguf(MetadataAsJson(*metadata),
                        {std::string(architecture), entry.architecture, entry.traits.model_type},
                        entry.traits.gguf_keys);
}

// Weights whose method cannot be computed are refused before anything is built on them.
Status CheckQuantisation(const Checkpoint& checkpoint, ConfigReader& reader) {
  constexpr std::string_view kSideFile = "hf_quant_config.json";
  Json side_file;
  if (checkpoint.HasFile(kSideFile)) {
    TN_ASSIGN_OR_RETURN(const std::string text, checkpoint.ReadSideFile(kSideFile));
    TN_ASSIGN_OR_RETURN(side_file, ParseJson(text), kSideFile);
  }
  const QuantConfig config = ReadQuantConfig(reader, side_file.is_null() ? nullptr : &side_file);
  TN_RETURN_IF_ERROR(reader.status());
  return config.Unsupported();
}

// An unknown name is one mistake, not one for each layer.
Status CheckBackendName(const Sourced<std::string>& wanted, const BackendTable& table) {
  if (EqualsIgnoreCase(wanted.value, "auto") || table.Find(wanted.value) != nullptr) return {};
  return UsageError(fmt::format("attn-backend = '{}' (set by {}), allowed: {}", wanted.value,
                                wanted.origin.Text(), Join(BackendNames(table), ", ")));
}

Result<DType> ResolveKvDtype(const PlanOptions& options, LoadContext& context) {
  const std::string& wanted = options.kv_dtype.value;
  if (EqualsIgnoreCase(wanted, "auto")) {
    context.Record({.field = "kv_dtype",
                    .requested = "auto",
                    .resolved = "f32",
                    .by = "options",
                    .why = "the compute dtype"});
    return DType::kF32;
  }
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    if (EqualsIgnoreCase(wanted, NameOf(dtype))) return dtype;
  }
  return UsageError(fmt::format("kv-dtype = '{}' (set by {}), allowed: auto, f32, bf16", wanted,
                                options.kv_dtype.origin.Text()));
}

Status ResolveCompute(const PlanOptions& options, LoadContext& context) {
  const std::string& wanted = options.compute.value;
  if (EqualsIgnoreCase(wanted, "fp32")) return {};
  if (EqualsIgnoreCase(wanted, "auto")) {
    context.Record({.field = "compute",
                    .requested = "auto",
                    .resolved = "fp32",
                    .by = "options",
                    .why = "the only arithmetic of this build"});
    return {};
  }
  return UsageError(fmt::format("compute = '{}' (set by {}), allowed: auto, fp32", wanted,
                                options.compute.origin.Text()));
}

Status ResolveMachine(const PlanOptions& options, MachineProfile& machine) {
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
  if (options.memory_bytes.value > 0) {
    machine.memory_bytes = options.memory_bytes.value;
    machine.available_bytes = options.memory_bytes.value;
  }
  return {};
}

bool MatchesPattern(std::string_view pattern, std::string_view name) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  name.remove_prefix(star);
  pattern.remove_prefix(star + 1);
  for (size_t skip = 0; skip <= name.size(); ++skip) {
    if (MatchesPattern(pattern, name.substr(skip))) return true;
  }
  return false;
}

// A tensor that nothing uses is an error, unless the family declares it skippable.
void CheckUnused(PlannedModel& plan) {
  int64_t skipped = 0;
  std::vector<std::string> unused;
  for (const StoredTensor* tensor : plan.index->UnusedStored()) {
    const auto& patterns = plan.resolution.entry->traits.skippable;
    const bool known = std::any_of(
        patterns.begin(), patterns.end(),
        [&](const std::string& pattern) { return MatchesPattern(pattern, tensor->name); });
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
  for (const std::string& name : unused) {
    plan.context->Error(fmt::format(
        "{}: the model does not use this tensor of the checkpoint; fix: the right config.json, or "
        "--allow-downgrade weights.unused",
        name));
  }
}

Status Construct(PlannedModel& plan) {
  LoadContext& context = *plan.context;
  plan.model = plan.resolution.entry->create(Scope(context, ""), *plan.config);
  TN_RETURN_IF_ERROR(context.Errors());
  for (Module* module : context.modules) module->SelectAttention(context);
  TN_RETURN_IF_ERROR(context.Errors());
  for (Module* module : context.modules) module->CreateWeights(context);
  if (plan.index != nullptr && context.errors.empty()) CheckUnused(plan);
  TN_RETURN_IF_ERROR(context.Errors());
  for (const DeclaredCache& declared : context.caches) {
    plan.cache_specs.push_back(declared.spec);
    plan.layer_caches.push_back(declared.cache);
  }
  return {};
}

void CountWeights(PlannedModel& plan) {
  for (Module* module : plan.context->modules) {
    for (const Parameter& parameter : module->parameters()) {
      plan.memory.weights_held += parameter.held_bytes();
      const int64_t width = parameter.shape().rank() == 0 ? 1 : parameter.shape().dim(-1);
      plan.memory.weights_stored +=
          parameter.shape().rows() * RowBytes(parameter.stored_dtype(), width);
    }
    plan.memory.weights_derived += module->derived_bytes();
  }
}

// Bytes that one more token of context needs in all paged groups.
int64_t CacheBytesPerToken(const PlannedModel& plan) {
  int64_t bytes = 0;
  for (const CacheSpec& spec : plan.cache_specs) {
    if (spec.kind == CacheKind::kPagedRows || spec.kind == CacheKind::kCross)
      bytes += spec.row_bytes;
  }
  return bytes;
}

Status SizeCache(PlannedModel& plan, const PlanOptions& options) {
  // Models without a stated maximum (recurrent, relative positions) get a generous one.
  constexpr int64_t kUnlimited = 32768;
  // Dynamic ropes stretch with the sequence: the trained length is no limit.
  const bool stretches =
      std::any_of(plan.context->ropes.begin(), plan.context->ropes.end(),
                  [](const RopeTable* rope) { return rope->FixedAtAdmission(); });
  const int64_t stated = stretches ? 0 : plan.config->max_position.value;
  const int64_t maximum = stated > 0 ? stated : kUnlimited;
  const int64_t wanted = options.max_seq_len.value;
  if (wanted > 0 && stated > 0 && wanted > stated) {
    return UsageError(fmt::format("max-seq-len = {} (set by {}), the model allows at most {} ({})",
                                  wanted, options.max_seq_len.origin.Text(), stated,
                                  plan.config->max_position.origin.Text()));
  }
  const int64_t per_token = CacheBytesPerToken(plan);
  const auto usable =
      static_cast<int64_t>(kMemoryFraction *
                           static_cast<double>(plan.context->machine.available_bytes)) -
      plan.memory.weights_held - plan.memory.weights_derived;
  const int64_t fitting = per_token == 0 ? maximum : std::max<int64_t>(0, usable / per_token);
  plan.max_seq_len = wanted > 0 ? wanted : std::min(maximum, fitting);
  if (plan.max_seq_len > fitting || plan.max_seq_len < 1 || usable < 0) {
    return DoesNotFit(fmt::format(
        "weights {} and a context of {} tokens ({} each) exceed {} of available memory; the "
        "longest "
        "context that fits is {}; fix: --max-seq-len, --kv-dtype bf16, or more memory",
        BytesText(plan.memory.weights_held), std::max<int64_t>(1, wanted), BytesText(per_token),
        BytesText(plan.context->machine.available_bytes), fitting));
  }
  if (wanted == 0) {
    plan.context->Record({.field = "max_seq_len",
                          .requested = "auto",
                          .resolved = std::to_string(plan.max_seq_len),
                          .by = "memory",
                          .why = plan.max_seq_len < maximum ? "what fits" : "the model's maximum"});
  }
  plan.sizing = {.tokens = plan.max_seq_len,
                 .cross_tokens = plan.max_seq_len,
                 .max_sequences = 1,
                 .page_tokens = static_cast<int32_t>(options.page_tokens.value)};
  TN_ASSIGN_OR_RETURN(plan.cache_plan, PlanCache(plan.cache_specs, plan.sizing));
  for (size_t g = 0; g < plan.cache_plan.groups.size(); ++g) {
    for (const int member : plan.cache_plan.groups[g].members) {
      plan.layer_caches[static_cast<size_t>(member)]->group = static_cast<int>(g);
    }
  }
  plan.memory.cache = plan.cache_plan.bytes;
  return {};
}

StepSummary RecordShape(PlannedModel& plan, std::string name, RequestPhase phase,
                        int64_t num_tokens, bool encode) {
  Tape tape(*plan.kernels);
  StepShape shape(plan.cache_plan, num_tokens);
  // Encoders give logits for every row; decoders for the last.
  const int64_t logit_rows = plan.kind() == ModelKind::kEncoder ? num_tokens : 1;
  shape.Set(phase, num_tokens, logit_rows, num_tokens, 1);
  StepPlans plans(plan.cache_plan);
  Forward pass(tape, shape.layout(), plans);
  if (encode) {
    plan.model->Encode(pass);
  } else {
    tape.Keep(plan.model->Forward(pass), "logits");
  }
  tape.Seal(plan.threads);
  StepSummary summary;
  summary.name = std::move(name);
  summary.records = static_cast<int64_t>(tape.records().size());
  summary.meetings = tape.meetings();
  summary.arena_bytes = tape.arena_bytes();
  summary.scratch_bytes = tape.scratch_bytes();
  for (const Tape::Record& record : tape.records()) {
    auto row = std::find_if(summary.kernels.begin(), summary.kernels.end(),
                            [&](const auto& kernel) { return kernel.first == record.kernel; });
    if (row == summary.kernels.end()) row = summary.kernels.insert(row, {record.kernel, 0});
    ++row->second;
  }
  return summary;
}

void PlanSteps(PlannedModel& plan) {
  const int64_t rows = std::min(plan.prefill_chunk, plan.max_seq_len);
  if (plan.kind() == ModelKind::kEncoderDecoder) {
    plan.steps.push_back(
        RecordShape(plan, fmt::format("encode {}", rows), RequestPhase::kPrefill, rows, true));
  }
  plan.steps.push_back(
      RecordShape(plan, fmt::format("prefill {}", rows), RequestPhase::kPrefill, rows, false));
  if (plan.kind() != ModelKind::kEncoder) {
    plan.steps.push_back(RecordShape(plan, "decode", RequestPhase::kDecode, 1, false));
  }
  for (const StepSummary& step : plan.steps) {
    plan.memory.arena = std::max(plan.memory.arena, step.arena_bytes);
    plan.memory.scratch = std::max(plan.memory.scratch, step.scratch_bytes);
  }
}

Status ReadModelConfig(PlannedModel& plan) {
  const ModelEntry& entry = *plan.resolution.entry;
  TN_ASSIGN_OR_RETURN(ConfigSource source, SourceOf(*plan.checkpoint, entry));
  plan.reader = std::make_unique<ConfigReader>(std::move(source));
  TN_RETURN_IF_ERROR(CheckQuantisation(*plan.checkpoint, *plan.reader));
  plan.config = entry.read_config(*plan.reader, plan.checkpoint->container());
  return plan.reader->status();
}

Status PrepareContext(PlannedModel& plan, const PlanOptions& options) {
  plan.context = std::make_unique<LoadContext>();
  LoadContext& context = *plan.context;
  context.ledger = Ledger(options.allowed_downgrades);
  TN_RETURN_IF_ERROR(ResolveMachine(options, context.machine));
  TN_RETURN_IF_ERROR(ResolveCompute(options, context));
  TN_ASSIGN_OR_RETURN(context.options.kv_dtype.value, ResolveKvDtype(options, context));
  context.options.kv_dtype.origin = options.kv_dtype.origin;
  context.options.attention_backend = options.attention_backend;
  context.options.page_tokens = options.page_tokens;
  context.options.mla_context_chunk = options.mla_context_chunk;
  TN_ASSIGN_OR_RETURN(plan.kernels, KernelsFor(context.machine.isa));
  plan.backends = BuiltinBackends(*plan.kernels);
  context.backends = &plan.backends;
  TN_RETURN_IF_ERROR(CheckBackendName(options.attention_backend, plan.backends));
  context.container = plan.checkpoint->container();
  context.default_dtype = plan.config->stored_dtype.value.value_or(DType::kF32);
  plan.threads =
      static_cast<int>(options.threads.value > 0 ? options.threads.value : context.machine.cores);
  plan.prefill_chunk = options.prefill_chunk.value;
  for (const std::string& note : plan.checkpoint->notes()) {
    context.Record({.field = "checkpoint",
                    .requested = "",
                    .resolved = "noted",
                    .by = "checkpoint",
                    .why = note});
  }
  if (plan.checkpoint->tensors().empty()) return {};
  TN_ASSIGN_OR_RETURN(
      TensorIndex index,
      TensorIndex::Build(*plan.checkpoint,
                         plan.resolution.entry->names(*plan.config, plan.checkpoint->container())));
  plan.index = std::make_unique<TensorIndex>(std::move(index));
  context.index = plan.index.get();
  return {};
}

}  // namespace

Result<std::unique_ptr<PlannedModel>> PlanModel(const std::string& path, const PlanOptions& options,
                                                Registry& registry) {
  auto plan = std::make_unique<PlannedModel>();
  TN_ASSIGN_OR_RETURN(plan->checkpoint, Checkpoint::Open(path));
  TN_ASSIGN_OR_RETURN(const Identity identity, IdentityOf(*plan->checkpoint, registry), path);
  TN_ASSIGN_OR_RETURN(plan->resolution, Resolve(identity, registry), path);
  TN_RETURN_IF_ERROR(ReadModelConfig(*plan), path);
  TN_RETURN_IF_ERROR(PrepareContext(*plan, options), path);
  TN_RETURN_IF_ERROR(Construct(*plan), path);
  CountWeights(*plan);
  TN_RETURN_IF_ERROR(SizeCache(*plan, options), path);
  PlanSteps(*plan);
  plan->context->ledger.Freeze();
  return plan;
}

}  // namespace tenon
