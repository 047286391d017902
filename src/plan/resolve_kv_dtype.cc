#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tenon/base/text.h"
#include "tenon/modules/attention.h"
#include "tenon/plan/phases.h"

namespace tenon {
namespace {

constexpr std::string_view kFull = "full";
constexpr std::string_view kWindow = "window";

// "auto" or a name for the layers of each kind; `by_kind`: the option says each kind's own.
struct Wanted {
  std::string full = "auto";
  std::string window = "auto";
  bool names_full = false;
  bool names_window = false;
  bool by_kind() const { return names_full || names_window; }
};

// "int8", or "full=bf16,window=int8": the option table has checked the words of a user, not those
// of a program.
Wanted WantedOf(const std::string& option) {
  if (option.find('=') == std::string::npos) return {option, option};
  Wanted wanted;
  for (const std::string_view part : Split(option, ',')) {
    const size_t equals = std::min(part.find('='), part.size());
    const std::string_view kind = Trim(part.substr(0, equals));
    const std::string_view name = Trim(part.substr(std::min(equals + 1, part.size())));
    const bool is_window = EqualsIgnoreCase(kind, kWindow);
    (is_window ? wanted.window : wanted.full) = std::string(name);
    (is_window ? wanted.names_window : wanted.names_full) = true;
  }
  return wanted;
}

// The dtype of the algorithms that calibrating tools write; others are not ours.
std::optional<DType> DTypeOfAlgorithm(std::string_view algorithm) {
  constexpr std::pair<std::string_view, DType> kAlgorithms[] = {
      {"FP8", DType::kF8E4M3}, {"INT8", DType::kI8}, {"NVFP4", DType::kF4E2M1}};
  for (const auto& [name, dtype] : kAlgorithms) {
    if (EqualsIgnoreCase(algorithm, name)) return dtype;
  }
  return std::nullopt;
}

std::string AllowedNames() {
  std::vector<std::string_view> names = {"auto"};
  for (const KvDType& row : KvDTypes()) names.push_back(row.name);
  return Join(names, ", ");
}

class Resolver {
 public:
  explicit Resolver(PlannedModel& plan)
      : rules_(plan.quant),
        option_(plan.options.kv_dtype),
        context_(*plan.context),
        stated_(DTypeOfAlgorithm(plan.quant.kv_algorithm)) {}

  // What an option's word means; what "auto" came to is recorded, once.
  Result<DType> Resolve(const std::string& word) {
    if (EqualsIgnoreCase(word, "auto")) return Auto();
    const std::optional<DType> dtype = KvDTypeNamed(word);
    if (!dtype) {
      return UsageError(fmt::format("kv-dtype = '{}' (set by {}), allowed: {}", option_.value,
                                    option_.origin.Text(), AllowedNames()));
    }
    if (stated_ && *dtype != *stated_ && option_.origin.IsExplicit()) {
      return UsageError(fmt::format(
          "kv-dtype = {} (set by {}), but the checkpoint's cache is made for {} (set by {}); fix: "
          "--kv-dtype {}, or auto",
          option_.value, option_.origin.Text(), rules_.kv_algorithm, rules_.origin.Text(),
          KvNameOf(*stated_)));
    }
    return *dtype;
  }
  // Who said so, in the end.
  Origin OriginOf(const Wanted& wanted) const {
    const bool is_auto = EqualsIgnoreCase(wanted.full, "auto");
    return is_auto && stated_ ? rules_.origin : option_.origin;
  }

 private:
  DType Auto() {
    const DType computed =
        context_.options.compute.value == Compute::kBf16 ? DType::kBF16 : DType::kF32;
    const DType dtype = stated_.value_or(computed);
    if (!std::exchange(recorded_, true)) {
      const std::string& algorithm = rules_.kv_algorithm;
      context_.Record(
          {.field = "kv_dtype",
           .requested = "auto",
           .resolved = std::string(KvNameOf(dtype)),
           .by = stated_ ? rules_.origin.Text() : "options",
           .why = stated_ ? fmt::format("the checkpoint's cache is made for {}", algorithm)
                  : algorithm.empty() ? "the compute dtype"
                                      : fmt::format("the compute dtype; the checkpoint's {} is no "
                                                    "format of ours",
                                                    algorithm)});
    }
    return dtype;
  }

  const QuantRules& rules_;
  const Sourced<std::string>& option_;
  LoadContext& context_;
  std::optional<DType> stated_;
  bool recorded_ = false;
};

}  // namespace

Status ResolveKvDTypes(PlannedModel& plan) {
  const Wanted wanted = WantedOf(plan.options.kv_dtype.value);
  ConstructionOptions& options = plan.context->options;
  Resolver resolver(plan);
  TN_ASSIGN_OR_RETURN(options.kv_dtype.value, resolver.Resolve(wanted.full));
  options.kv_dtype.origin = resolver.OriginOf(wanted);
  if (!wanted.by_kind()) return {};
  options.kv_dtype.origin = plan.options.kv_dtype.origin;
  TN_ASSIGN_OR_RETURN(options.window_kv_dtype, resolver.Resolve(wanted.window));
  return {};
}

Status CheckKvKinds(const PlannedModel& plan) {
  const Wanted wanted = WantedOf(plan.options.kv_dtype.value);
  bool any_full = false;
  bool any_window = false;
  for (const auto& [key, core] : plan.context->attention_layers) {
    if (core->spec().kind == AttentionKind::kEncoder) continue;
    (core->spec().IsLocal() ? any_window : any_full) = true;
  }
  const auto nothing = [&](std::string_view kind, std::string_view what) {
    return UsageError(fmt::format(
        "kv-dtype = {} (set by {}) names {}, but the model has no layer {}; fix: leave "
        "{} out",
        plan.options.kv_dtype.value, plan.options.kv_dtype.origin.Text(), kind, what, kind));
  };
  if (wanted.names_window && !any_window) return nothing(kWindow, "with a window or chunk");
  if (wanted.names_full && !any_full) return nothing(kFull, "without a window and chunk");
  return {};
}

}  // namespace tenon
