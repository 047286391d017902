#include "tenon/attention/selector.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/text.h"

namespace tenon {
namespace {

// What every question of one selection needs.
struct Request {
  const AttentionSpec& spec;
  const MachineProfile& machine;
  const BackendTable& table;
};

struct Rows {
  const KernelRow* prefill = nullptr;
  const KernelRow* decode = nullptr;
  bool complete = true;
};

// The first row of the backend that serves the spec in this phase; the others' refusals are kept.
const KernelRow* FirstRow(const AttentionBackend& backend, AttentionPhase phase, const Request& r,
                          std::vector<Refusal>& refusals) {
  const KernelRow* found = nullptr;
  bool any = false;
  for (const KernelRow& row : r.table.rows) {
    if (row.backend != backend.name() || row.phase != phase) continue;
    any = true;
    const std::vector<Refusal> own = RefusalsOf(row, r.spec, r.machine);
    if (own.empty() && found == nullptr) found = &row;
    refusals.insert(refusals.end(), own.begin(), own.end());
  }
  if (!any) {
    refusals.push_back({.who = std::string(backend.name()),
                        .attribute = "phase",
                        .value = std::string(NameOf(phase)),
                        .supports = "none"});
  }
  return found;
}

Rows RowsOf(const AttentionBackend& backend, const Request& r, std::vector<Refusal>& refusals) {
  Rows rows;
  for (const AttentionPhase phase : {AttentionPhase::kPrefill, AttentionPhase::kDecode}) {
    if (!NeedsPhase(r.spec, phase)) continue;
    const KernelRow* row = FirstRow(backend, phase, r, refusals);
    (phase == AttentionPhase::kPrefill ? rows.prefill : rows.decode) = row;
    rows.complete &= row != nullptr;
  }
  return rows;
}

// The backends that would serve the spec.
std::vector<std::string> Serving(const Request& r) {
  std::vector<std::string> names;
  for (const auto& backend : r.table.backends) {
    std::vector<Refusal> ignored;
    if (RowsOf(*backend, r, ignored).complete) names.emplace_back(backend->name());
  }
  return names;
}

// Origin and way out of each refused attribute.
void Explain(const Request& r, const SpecOrigins& origins, std::vector<Refusal>& refusals) {
  const std::vector<std::string> serving = Serving(r);
  for (Refusal& refusal : refusals) {
    const std::string& a = refusal.attribute;
    const Origin& origin = a == "isa"           ? origins.machine
                           : a == "kv_dtype"    ? origins.kv_dtype
                           : a == "mixed_kv"    ? origins.kv_dtype
                           : a == "page_tokens" ? origins.page_tokens
                           : a == "compute"     ? origins.compute
                                                : origins.model;
    refusal.set_by = origin.Text();
    if (!serving.empty()) {
      refusal.fix = fmt::format("--attn-backend {}", Join(serving, " or "));
    } else if (a == "kv_dtype" || a == "page_tokens" || a == "compute") {
      std::string option = a;
      std::replace(option.begin(), option.end(), '_', '-');
      refusal.fix = fmt::format("--{} one of {}", option, refusal.supports);
    } else if (a == "mixed_kv") {
      refusal.fix = "--kv-dtype with one name for all layers";
    } else if (a == "isa") {
      refusal.fix = "a machine with " + refusal.supports;
    } else {
      refusal.fix = "a backend that supports it (--custom-module-dirs); none here does";
    }
  }
}

}  // namespace

std::vector<std::string> BackendNames(const BackendTable& table) {
  std::vector<std::string> names = {"auto"};
  for (const auto& backend : table.backends) names.emplace_back(backend->name());
  return names;
}

Choice SelectBackend(const Sourced<std::string>& wanted, const AttentionSpec& spec,
                     const MachineProfile& machine, const BackendTable& table,
                     const SpecOrigins& origins) {
  Choice choice;
  choice.is_auto = EqualsIgnoreCase(wanted.value, "auto");
  const AttentionBackend* named = choice.is_auto ? nullptr : table.Find(wanted.value);
  if (!choice.is_auto && named == nullptr) {
    const std::vector<std::string> names = BackendNames(table);
    const std::vector<std::string> near = NearNames(wanted.value, names);
    choice.refusals.push_back({"selector", "attention backend", "'" + wanted.value + "'",
                               "{" + Join(names, ", ") + "}", wanted.origin.Text(),
                               "--attn-backend " + (near.empty() ? names.front() : near.front())});
    return choice;
  }
  if (const auto problem = ProblemOf(spec)) {
    choice.refusals.push_back({"selector", problem->attribute, problem->value, problem->allowed,
                               origins.model.Text(), "correct the configuration"});
    return choice;
  }
  const Request request{spec, machine, table};
  for (const auto& backend : table.backends) {
    if (!choice.is_auto && backend.get() != named) continue;
    const Rows rows = RowsOf(*backend, request, choice.refusals);
    if (!rows.complete) continue;
    choice.backend = backend.get();
    choice.prefill = rows.prefill;
    choice.decode = rows.decode;
    break;
  }
  Explain(request, origins, choice.refusals);
  return choice;
}

std::vector<std::string> Choice::RefusalTexts() const {
  std::vector<std::string> texts;
  for (const Refusal& refusal : refusals) texts.push_back(refusal.Text());
  return texts;
}

std::string Choice::Why() const {
  if (backend == nullptr) return "no backend supports the layer";
  std::string text = fmt::format("prefill {}", prefill->kernel);
  if (decode != nullptr) text += fmt::format(", decode {}", decode->kernel);
  if (!is_auto) return text;
  std::vector<std::string> passed;
  for (const Refusal& r : refusals) {
    std::string line = fmt::format("{} ({} = {})", r.who, r.attribute, r.value);
    if (std::find(passed.begin(), passed.end(), line) == passed.end())
      passed.push_back(std::move(line));
  }
  text += "; first in order that supports the layer";
  return passed.empty() ? text : fmt::format("{}; passed over: {}", text, Join(passed, ", "));
}

}  // namespace tenon
