// Resolution: from what a checkpoint says about itself to the entry that serves it, every step
// traced. `architectures` decides; model_type serves a missing architectures and is cross-checked.
// Not construction. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tenon/registry/registry.h"

namespace tenon {

// As found in the checkpoint.
struct Identity {
  std::vector<std::string> architectures;
  std::string model_type;  // "" when absent
  std::string source;      // "config.json", "GGUF metadata"
};

struct ResolutionStep {
  std::string what;     // "architecture"
  std::string outcome;  // what was chosen
  std::string why;      // "first of architectures"
};

struct Resolution {
  std::shared_ptr<const ModelEntry> entry;
  std::string architecture;
  std::string provider;
  std::vector<ResolutionStep> trace;
};

// kRefused with near names for what is unknown.
Result<Resolution> Resolve(const Identity& identity, Registry& registry);

// Reads the identity of a checkpoint: config.json's keys, or GGUF's general.architecture through
// its provider.
Result<Identity> IdentityOf(const Checkpoint& checkpoint, Registry& registry);

}  // namespace tenon
