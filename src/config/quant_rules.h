// QuantRules: what a checkpoint's quantisation settings come to, whoever wrote them: a scheme for
// every linear layer, schemes for some, and layers that are left as they are. Which key means which
// layer is in quant_keys.h; giving matrices their schemes is modules/quantise.h. A value;
// thread-compatible.
#pragma once

#include <string>
#include <vector>

#include "tenon/base/ledger.h"
#include "tenon/base/status.h"
#include "tenon/config/quant_config.h"
#include "tenon/config/quant_scheme.h"

namespace tenon {

// A name or pattern as the producer wrote it, and how that producer reads it.
struct QuantKey {
  enum class Match {
    kName,       // the name itself
    kParts,      // the name, an ancestor, or whole parts anywhere inside: "mlp.gate"
    kGlob,       // a shell pattern over the name and its ancestors; "x.*" is "x" too
    kRegex,      // begins to match at the name's start
    kRegexTree,  // matches all of the name or of an ancestor
  };
  std::string text;
  Match match = Match::kName;
  bool is_default = false;  // not written but implied: may match nothing
};

struct QuantRules {
  struct LayerScheme {
    QuantKey key;
    QuantScheme scheme;
  };

  QuantMethod method = QuantMethod::kNone;
  std::string text;  // QuantConfig::Text
  Origin origin;     // of the settings
  QuantScheme global;
  std::vector<LayerScheme> layers;  // the first that matches counts, names before patterns
  std::vector<QuantKey> excludes;   // count before `layers`
  // The format that the cache was calibrated for ("FP8", "INT8"); empty: none. No exclude touches
  // it.
  std::string kv_algorithm;
  std::vector<std::string> unread;  // settings that mean nothing here, as "key = value"
};

// kRefused: a scheme that cannot be computed, or settings that contradict themselves; all of them
// at once, each with what is allowed.
Result<QuantRules> ReadQuantRules(const QuantConfig& config);

}  // namespace tenon
