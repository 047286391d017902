// The selector: from a wanted backend name and a spec to a backend and one kernel row per phase, or
// every reason why not. Reads the capability table and a machine profile only; decides nothing by
// itself that the table does not say. Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tenon/attention/capability.h"
#include "tenon/base/ledger.h"

namespace tenon {

// Who set what a spec says, for the texts of refusals.
struct SpecOrigins {
  Origin model = {Origin::Kind::kCheckpoint, {}};  // everything that follows from the model
  Origin kv_dtype = {};
  Origin page_tokens = {};
  Origin compute = {};
  Origin machine = {Origin::Kind::kDerived, "this machine"};
};

struct Choice {
  const AttentionBackend* backend = nullptr;  // null: none
  const KernelRow* prefill = nullptr;
  const KernelRow* decode = nullptr;  // null when the phase is not needed
  std::vector<Refusal> refusals;      // of every row that was asked
  bool is_auto = false;               // nobody named the backend

  // One line each, as Refusal::Text.
  std::vector<std::string> RefusalTexts() const;
  // For the ledger: the kernels chosen, and whom `auto` passed over.
  std::string Why() const;
};

// `wanted`: a backend's name or alias in any case, or "auto" (the first of the table that serves
// the spec). Without a backend in the choice the refusals say why: an unknown or empty name, a spec
// that cannot be (ProblemOf), or what each row lacks.
Choice SelectBackend(const Sourced<std::string>& wanted, const AttentionSpec& spec,
                     const MachineProfile& machine, const BackendTable& table,
                     const SpecOrigins& origins = {});

// The names that `wanted` may have: "auto", then the table's.
std::vector<std::string> BackendNames(const BackendTable& table);

}  // namespace tenon
