#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/text.h"
#include "tenon/modules/rope_table.h"
#include "tenon/plan/phases.h"
#include "tenon/plan/step_shape.h"

namespace tenon {
namespace {

// Models without a stated maximum (recurrent, relative positions) get a generous one.
constexpr int64_t kUnlimited = 32768;

// Sums of sizes out of a config, which may be as large as they like, end here: 1 EiB.
int64_t AddBytes(int64_t sum, int64_t more) {
  constexpr int64_t kMost = int64_t{1} << 60;
  return std::min(sum + std::min(more, kMost), kMost);
}

void CountWeights(PlannedModel& plan) {
  for (Module* module : plan.context->modules) {
    for (const Parameter& parameter : module->parameters()) {
      plan.memory.weights_held = AddBytes(plan.memory.weights_held, parameter.held_bytes());
      plan.memory.weights_stored = AddBytes(plan.memory.weights_stored, parameter.stored_bytes());
    }
    plan.memory.weights_derived = AddBytes(plan.memory.weights_derived, module->derived_bytes());
  }
  plan.memory.construction =
      AddBytes(AddBytes(PackingWindowBytes(*plan.context), DecodingWindowBytes(*plan.context)),
               plan.context->construction_bytes);
}

// A step as it will be recorded, without bytes.
struct ShapeOfStep {
  std::string name;
  int64_t prefill_rows = 0;  // of one prompt
  int64_t decodes = 0;       // sequences that go on by a row
  bool encode = false;

  int64_t num_tokens() const { return prefill_rows + decodes; }
  bool single() const { return prefill_rows == 0 || decodes == 0; }
};

void Count(std::vector<std::pair<std::string, int>>& counts, const std::string& name) {
  auto row = std::find_if(counts.begin(), counts.end(),
                          [&](const auto& count) { return count.first == name; });
  if (row == counts.end()) row = counts.insert(row, {name, 0});
  ++row->second;
}

bool IsFused(std::string_view op) {
  constexpr std::string_view kFused[] = {"add_norm", "gated_norm", "gated_matmul", "rope_append"};
  return std::find(std::begin(kFused), std::end(kFused), op) != std::end(kFused);
}

StepSummary Summarise(const Tape& tape, std::string name) {
  StepSummary summary;
  summary.name = std::move(name);
  summary.records = static_cast<int64_t>(tape.records().size());
  summary.meetings = tape.meetings();
  summary.arena_bytes = tape.arena_bytes();
  summary.scratch_bytes = tape.scratch_bytes();
  const char* before = "";
  for (const Tape::Record& record : tape.records()) {
    summary.weight_bytes += record.work.weight_bytes;
    summary.operations += record.work.operations;
    Count(summary.kernels, record.kernel);
    if (IsFused(record.op)) Count(summary.fused, record.op);
    if (record.rows_inside > 0) Count(summary.fused, fmt::format("{}+{}", before, record.op));
    before = record.op;
  }
  return summary;
}

// At the end of the longest context, where a step needs most.
StepSummary RecordShape(PlannedModel& plan, const ShapeOfStep& step) {
  Tape tape(*plan.kernels);
  StepShape shape(plan.cache_plan, step.num_tokens(), step.decodes + 1);
  const int64_t kv_len = step.encode ? step.prefill_rows : plan.max_seq_len;
  // Encoders give logits for every row; decoders for the last.
  const bool every_row = plan.kind() == ModelKind::kEncoder;
  if (step.prefill_rows > 0) {
    shape.Add({.rows = step.prefill_rows,
               .kv_len = kv_len,
               .cross_len = plan.max_seq_len,
               .logit_rows = every_row ? step.prefill_rows : 1});
  }
  for (int64_t i = 0; i < step.decodes; ++i) {
    shape.Add({.phase = RequestPhase::kDecode,
               .kv_len = kv_len,
               .cross_len = plan.max_seq_len,
               .logit_rows = 1});
  }
  StepPlans plans(plan.cache_plan);
  Forward pass(tape, shape.layout(), plans);
  if (step.prefill_rows > 0 && step.single()) {
    // Chunks of cached latent rows after the second need nothing new.
    const int64_t chunk = plan.context->options.mla_context_chunk;
    pass.mla_context_rows = std::min(RoundUp(kv_len - step.prefill_rows, chunk), 2 * chunk);
  }
  if (step.encode) {
    plan.model->Encode(pass);
  } else {
    tape.Keep(plan.model->Forward(pass), "logits");
  }
  tape.Seal(plan.threads);
  return Summarise(tape, step.name);
}

void PlanSteps(PlannedModel& plan) {
  plan.steps.clear();
  plan.memory.arena = plan.memory.scratch = 0;
  const int64_t rows = plan.prefill_rows();
  std::vector<ShapeOfStep> shapes;
  if (plan.kind() == ModelKind::kEncoderDecoder) {
    shapes.push_back({.name = fmt::format("encode {}", plan.largest_step()),
                      .prefill_rows = plan.largest_step(),
                      .encode = true});
  }
  shapes.push_back({.name = fmt::format("prefill {}", rows), .prefill_rows = rows});
  if (plan.kind() != ModelKind::kEncoder) {
    shapes.push_back({.name = "decode", .decodes = 1});
    // Of many sequences: the most that go on at once, and the most beside a prompt.
    const int64_t together = std::min(plan.options.max_sequences.value, rows);
    if (together > 1) {
      shapes.push_back({.name = fmt::format("decode {}", together), .decodes = together});
      shapes.push_back({.name = fmt::format("mixed {}", rows),
                        .prefill_rows = rows - together + 1,
                        .decodes = together - 1});
    }
  }
  for (const ShapeOfStep& shape : shapes) {
    plan.steps.push_back(RecordShape(plan, shape));
    plan.memory.arena = std::max(plan.memory.arena, plan.steps.back().arena_bytes);
    plan.memory.scratch = std::max(plan.memory.scratch, plan.steps.back().scratch_bytes);
  }
}

// The model's own maximum; 0: none. Dynamic ropes stretch with the sequence: the trained length is
// no limit.
int64_t StatedMaximum(const PlannedModel& plan) {
  const bool stretches =
      std::any_of(plan.context->ropes.begin(), plan.context->ropes.end(),
                  [](const RopeTable* rope) { return rope->FixedAtAdmission(); });
  return stretches ? 0 : plan.config->max_position.value;
}

// Of a cache for contexts of so many tokens that holds `held` of all sequences, unless the options
// say how many.
CacheSizing SizingFor(const PlannedModel& plan, int64_t max_seq_len, int64_t held) {
  const int64_t sequences = plan.options.max_sequences.value;
  return {.tokens = plan.options.kv_tokens.value.value_or(held),
          .cross_tokens = held,
          .max_sequences = sequences,
          .max_sequence_tokens = max_seq_len,
          .max_step_tokens = plan.prefill_rows(),
          .prefix_reuse = sequences > 1,
          .page_tokens = static_cast<int32_t>(plan.options.page_tokens.value.value_or(0))};
}

// Sizes cache, steps and ledger for these.
Status PlanLength(PlannedModel& plan, int64_t max_seq_len, int64_t held) {
  plan.max_seq_len = max_seq_len;
  plan.sizing = SizingFor(plan, max_seq_len, held);
  TN_ASSIGN_OR_RETURN(plan.cache_plan, PlanCache(plan.cache_specs, plan.sizing));
  for (size_t g = 0; g < plan.cache_plan.groups.size(); ++g) {
    for (const int member : plan.cache_plan.groups[g].members) {
      plan.layer_caches[static_cast<size_t>(member)]->group = static_cast<int>(g);
    }
  }
  plan.memory.cache = plan.cache_plan.bytes;
  PlanSteps(plan);
  return {};
}

int64_t Budget(const PlannedModel& plan) {
  return static_cast<int64_t>(plan.options.kv_fraction.value *
                              static_cast<double>(plan.context->machine.available_bytes));
}

bool Fits(const PlannedModel& plan) { return plan.memory.Total() <= Budget(plan); }

// The longest context below `too_long` of which one sequence fits; 0: none. Leaves the plan at that
// length, or at one token.
Result<int64_t> LongestFitting(PlannedModel& plan, int64_t too_long) {
  int64_t fits = 0;
  while (too_long - fits > 1) {
    const int64_t middle = fits + (too_long - fits) / 2;
    TN_RETURN_IF_ERROR(PlanLength(plan, middle, middle));
    (Fits(plan) ? fits : too_long) = middle;
  }
  const int64_t length = std::max<int64_t>(1, fits);
  TN_RETURN_IF_ERROR(PlanLength(plan, length, length));
  return fits;
}

// The most tokens of all sequences together that fit beside weights and steps: more than the one
// context for which the plan is, at most as many as all sequences can have.
Status HoldWhatFits(PlannedModel& plan) {
  const int64_t length = plan.max_seq_len;
  const int64_t room = Budget(plan) - (plan.memory.Total() - plan.memory.cache);
  int64_t fits = length;
  const int64_t all = length * plan.options.max_sequences.value;
  int64_t too_many = all + 1;
  while (too_many - fits > 1) {
    const int64_t middle = fits + (too_many - fits) / 2;
    TN_ASSIGN_OR_RETURN(const CachePlan cache,
                        PlanCache(plan.cache_specs, SizingFor(plan, length, middle)));
    (cache.bytes <= room ? fits : too_many) = middle;
  }
  TN_RETURN_IF_ERROR(PlanLength(plan, length, fits));
  if (plan.options.kv_tokens.value || fits == all) return {};
  plan.context->Record({.field = "kv_tokens",
                        .requested = "auto",
                        .resolved = std::to_string(fits),
                        .by = "memory",
                        .why = fmt::format("what fits, not {} sequences of {} tokens at a time",
                                           plan.options.max_sequences.value, length)});
  return {};
}

// Of one token's activations, at the least.
int64_t RowBytesOf(const PlannedModel& plan) {
  return plan.config->hidden.value * int64_t{sizeof(float)};
}

// More tokens are not tried: where a step takes the whole input, each has a row of activations,
// and the step's own books have their size.
int64_t MostTokens(const PlannedModel& plan) {
  if (plan.kind() != ModelKind::kEncoder && plan.kind() != ModelKind::kEncoderDecoder) {
    return INT64_MAX;
  }
  constexpr int64_t kLongestStep = 1 << 24;
  return std::clamp<int64_t>(Budget(plan) / RowBytesOf(plan), 1, kLongestStep);
}

// A smaller cache, where rows can be.
std::string_view SmallerRows(const PlannedModel& plan) {
  const DType dtype = plan.context->options.kv_dtype.value;
  if (!plan.quant.kv_algorithm.empty()) return "";
  if (dtype == DType::kF32) return " --kv-dtype bf16,";
  return dtype == DType::kBF16 || dtype == DType::kF16 ? " --kv-dtype int8," : "";
}

Status DoesNotFitAt(const PlannedModel& plan, int64_t wanted, int64_t needed, int64_t longest) {
  return DoesNotFit(fmt::format(
      "weights of {} and a context of {} tokens need {} together, {} of {} may be used "
      "(kv-fraction = {}, {}); the longest context that fits is {}; fix: {}",
      BytesText(plan.memory.weights_held + plan.memory.weights_derived), wanted, BytesText(needed),
      BytesText(Budget(plan)), BytesText(plan.context->machine.available_bytes),
      plan.options.kv_fraction.value, plan.options.kv_fraction.origin.Text(), longest,
      longest > 0 ? fmt::format("--max-seq-len {},{} or more memory", longest, SmallerRows(plan))
      : plan.options.max_sequences.value > 1
          ? "fewer --max-sequences, a smaller model or more memory"
          : "a smaller model or more memory"));
}

// The context to try first, and why it is that.
struct WantedLength {
  int64_t tokens;
  std::string why;
};
Result<WantedLength> LengthToTry(const PlannedModel& plan) {
  const EngineOptions& options = plan.options;
  const int64_t stated = StatedMaximum(plan);
  const int64_t held = options.kv_tokens.value.value_or(INT64_MAX);
  if (const std::optional<int64_t> wanted = options.max_seq_len.value) {
    if (stated > 0 && *wanted > stated) {
      return UsageError(fmt::format(
          "max-seq-len = {} (set by {}), the model allows at most {} ({}); fix: --max-seq-len {}",
          *wanted, options.max_seq_len.origin.Text(), stated,
          plan.config->max_position.origin.Text(), stated));
    }
    if (*wanted > held) {
      return DoesNotFit(fmt::format(
          "max-seq-len = {} (set by {}), but the cache holds {} tokens (kv-tokens, set by {}); the "
          "longest context that fits is {}; fix: --max-seq-len {}, or more --kv-tokens",
          *wanted, options.max_seq_len.origin.Text(), held, options.kv_tokens.origin.Text(), held,
          held));
    }
    return WantedLength{*wanted, ""};
  }
  const int64_t maximum = stated > 0 ? stated : kUnlimited;
  if (held < maximum) return WantedLength{held, "kv-tokens"};
  return WantedLength{maximum, stated > 0 ? "the model's maximum" : "the model states none"};
}

}  // namespace

Status SizeMemory(PlannedModel& plan) {
  CountWeights(plan);
  TN_ASSIGN_OR_RETURN(WantedLength wanted, LengthToTry(plan));
  const int64_t tried = std::min(wanted.tokens, MostTokens(plan));
  const int64_t sequences = plan.options.max_sequences.value;
  const Sourced<std::optional<int64_t>>& option = plan.options.max_seq_len;
  TN_RETURN_IF_ERROR(PlanLength(plan, tried, tried * sequences));
  const bool all_fit = Fits(plan);
  if (!all_fit && sequences > 1) TN_RETURN_IF_ERROR(PlanLength(plan, tried, tried));
  if (tried < wanted.tokens || !Fits(plan)) {
    const int64_t needed = plan.memory.Total() + (wanted.tokens - tried) * RowBytesOf(plan);
    const int64_t too_long = Fits(plan) ? tried + 1 : tried;
    TN_ASSIGN_OR_RETURN(const int64_t longest, LongestFitting(plan, too_long));
    if (option.value || longest == 0) return DoesNotFitAt(plan, wanted.tokens, needed, longest);
    wanted.why = "what fits";
  }
  if (sequences > 1 && (!all_fit || tried < wanted.tokens)) TN_RETURN_IF_ERROR(HoldWhatFits(plan));
  if (option.value) return {};
  plan.context->Record({.field = "max_seq_len",
                        .requested = "auto",
                        .resolved = std::to_string(plan.max_seq_len),
                        .by = "memory",
                        .why = wanted.why});
  return {};
}

}  // namespace tenon
