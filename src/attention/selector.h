// The selector: from a wanted backend name and a spec to a backend and one kernel row per phase, or
// every reason why not. Reads the capability table and a machine profile only. Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tenon/attention/capability.h"
#include "tenon/base/ledger.h"

namespace tenon {

struct Choice {
  const AttentionBackend* backend = nullptr;  // null: none
  const KernelRow* prefill = nullptr;         // null when the phase is not needed
  const KernelRow* decode = nullptr;
  std::vector<Refusal> refusals;  // of every row that was asked
  Origin origin;                  // of the wanted name, for the texts

  // "refused: <who>: <attribute> = <value>, supports <set>; set by <origin>; fix: <action>".
  std::vector<std::string> RefusalTexts() const;
  // For the ledger: the kernels chosen.
  std::string Why() const;
};

// `wanted`: a backend's name in any case, the alias TRTLLM for NATIVE, or "auto" (table order).
Choice SelectBackend(const Sourced<std::string>& wanted, const AttentionSpec& spec,
                     const MachineProfile& machine, const BackendTable& table);

// The names that `wanted` may have: "auto", then the table's.
std::vector<std::string> BackendNames(const BackendTable& table);

}  // namespace tenon
