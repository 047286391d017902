// Where values came from (Origin, Sourced) and the decisions taken with them (Ledger): what `tenon
// explain`, HTTP and the tests read. Not a log: entries are data. One ledger per load, frozen at
// Plan; not thread-safe.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/base/json.h"
#include "tenon/base/status.h"

namespace tenon {

// Printed in refusals ("set by --attn-backend") and in `explain`. The order is the precedence.
struct Origin {
  enum class Kind {
    kUser,          // a command-line option or a field of a request
    kEnvironment,   // TENON_…
    kConfigFile,    // --config FILE
    kModelDefault,  // the model family's own default
    kCheckpoint,    // config.json, generation_config.json, GGUF metadata
    kEngineDefault,
    kDerived,  // computed from other values
  };
  Kind kind = Kind::kEngineDefault;
  std::string detail;  // "--attn-backend", "config.json: text_config.head_dim", "TENON_ISA"

  // Did somebody ask for it? Only then is changing it a downgrade.
  bool IsExplicit() const { return kind <= Kind::kConfigFile; }
  // "--attn-backend", "engine default".
  std::string Text() const;
  friend bool operator==(const Origin&, const Origin&) = default;
};

template <typename T>
struct Sourced {
  T value{};
  Origin origin = {};
};

enum class DecisionKind {
  kResolved,    // auto -> value
  kAdjusted,    // changed something that nobody asked for
  kDowngraded,  // something asked for, or that the model defines, is not honoured: needs consent
};
std::string_view NameOf(DecisionKind kind);

// The kind of a change of a value is computed from the value's origin, never chosen by the caller.
// What the model itself defines (kCheckpoint, kModelDefault) is as binding as a user's wish.
DecisionKind KindOfChange(const Origin& origin);

struct Decision {
  std::string field;      // "attention.backend"
  std::string requested;  // "auto"
  std::string resolved;   // "NATIVE"
  std::string by;         // "attention selector"
  std::string why;        // "first of NATIVE, FLASHINFER, VANILLA that supports the layer"
  DecisionKind kind = DecisionKind::kResolved;
  std::optional<int> layer = {};
};

class Ledger {
 public:
  explicit Ledger(std::set<std::string> allowed_downgrades = {})
      : allowed_(std::move(allowed_downgrades)) {}

  // OK, or the refusal when the decision is a downgrade without consent (kUsage). Recorded either
  // way.
  Status Record(Decision decision);
  bool Allows(const std::string& field) const { return allowed_.contains(field); }
  std::span<const Decision> decisions() const { return decisions_; }
  // Forgets all decisions but the first `count`: those of a construction that is done anew.
  void Truncate(size_t count);
  // After this a Record is our bug.
  void Freeze() { frozen_ = true; }
  Json ToJson() const;

 private:
  std::set<std::string> allowed_;
  std::vector<Decision> decisions_;
  bool frozen_ = false;
};

}  // namespace tenon
