#include "tenon/attention/selector.h"

#include <fmt/format.h>

#include "tenon/base/text.h"

namespace tenon {
namespace {

// TensorRT-LLM's name for what NATIVE is here.
constexpr std::string_view kNativeAlias = "TRTLLM";

std::string_view Canonical(std::string_view name) {
  return EqualsIgnoreCase(name, kNativeAlias) ? "NATIVE" : name;
}

// The first row of the backend that serves the spec in this phase; the others' refusals are kept.
const KernelRow* FirstRow(std::string_view backend, AttentionPhase phase, const AttentionSpec& spec,
                          const MachineProfile& machine, const BackendTable& table,
                          std::vector<Refusal>& refusals) {
  const KernelRow* found = nullptr;
  for (const KernelRow& row : table.rows) {
    if (row.backend != backend || row.phase != phase) continue;
    const std::vector<Refusal> own = RefusalsOf(row, spec, machine);
    if (own.empty() && found == nullptr) found = &row;
    refusals.insert(refusals.end(), own.begin(), own.end());
  }
  return found;
}

}  // namespace

std::vector<std::string> BackendNames(const BackendTable& table) {
  std::vector<std::string> names = {"auto"};
  for (const auto& backend : table.backends) names.emplace_back(backend->name());
  return names;
}

Choice SelectBackend(const Sourced<std::string>& wanted, const AttentionSpec& spec,
                     const MachineProfile& machine, const BackendTable& table) {
  Choice choice;
  choice.origin = wanted.origin;
  const std::string_view name = Canonical(wanted.value);
  const bool any = EqualsIgnoreCase(name, "auto");
  if (!any && table.Find(name) == nullptr) {
    choice.refusals.push_back({"selector", "attention backend", "'" + wanted.value + "'",
                               "{" + Join(BackendNames(table), ", ") + "}"});
    return choice;
  }
  for (const auto& backend : table.backends) {
    if (!any && !EqualsIgnoreCase(backend->name(), name)) continue;
    const KernelRow* rows[2] = {};
    bool complete = true;
    for (const AttentionPhase phase : {AttentionPhase::kPrefill, AttentionPhase::kDecode}) {
      if (!NeedsPhase(spec, phase)) continue;
      const KernelRow* row =
          FirstRow(backend->name(), phase, spec, machine, table, choice.refusals);
      rows[static_cast<int>(phase)] = row;
      complete &= row != nullptr;
    }
    if (!complete) continue;
    choice.backend = backend.get();
    choice.prefill = rows[0];
    choice.decode = rows[1];
    return choice;
  }
  return choice;
}

std::vector<std::string> Choice::RefusalTexts() const {
  std::vector<std::string> texts;
  for (const Refusal& r : refusals) {
    texts.push_back(fmt::format(
        "refused: {}: {} = {}, supports {}; set by {}; fix: choose a supported value or another "
        "--attn-backend",
        r.who, r.attribute, r.value, r.supports, origin.Text()));
  }
  return texts;
}

std::string Choice::Why() const {
  std::string text = prefill == nullptr ? "" : fmt::format("prefill {}", prefill->kernel);
  if (decode != nullptr)
    text += fmt::format("{}decode {}", text.empty() ? "" : ", ", decode->kernel);
  return text;
}

}  // namespace tenon
