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
  std::string source;      // "config.json", "config.json: text_config", "GGUF metadata"
  // config.json has the key, even as null: the checkpoint is a draft of EAGLE-3.
  bool has_draft_vocab_size = false;
};

enum class TargetMode { kOff, kAuto, kRequire };

struct ResolveOptions {
  bool mm_encoder_only = false;  // only the image part of the model
  TargetMode targets = TargetMode::kAuto;
};

struct ResolutionStep {
  std::string what;     // "architecture"
  std::string outcome;  // what was chosen
  std::string why;      // "first of architectures"
};

struct Resolution {
  // Null only where a target may still serve what the index does not (ChooseTarget decides).
  std::shared_ptr<const ModelEntry> entry;
  std::string architecture;  // of the entry
  std::string provider;
  std::string stated;     // as the checkpoint names it, before any rewriting
  bool headless = false;  // the checkpoint is the base of the architecture: no prefix, no head
  std::shared_ptr<const ConfigReaderEntry> config_reader;  // of the model_type; null: the family's
  std::vector<Registry::FoundEntry<TargetEntry>> candidates;  // targets that ask to be considered
  std::shared_ptr<const TargetEntry> target;                  // the chosen one
  Status index_failure;  // why there is no entry, where there is none
  std::vector<ResolutionStep> trace;
};

// The steps, in this order: (1) no architectures and no model_type is an error; (2) the first of
// architectures counts; (3) mm_encoder_only: its vision encoder, and no further step; (4) EAGLE-3
// drafts are renamed, but for names that the index has literally as drafts; (5) targets for the
// name before (4) become candidates; (6) the index. kRefused with near names for what is unknown.
Result<Resolution> Resolve(const Identity& identity, Registry& registry,
                           const ResolveOptions& options = {});

// The draft model of a mode of speculative decoding.
struct DraftResolution {
  // Exactly one of the two: a builder on top of the target, or a model like any other.
  std::shared_ptr<const DraftBuilderEntry> builder;
  std::optional<Resolution> model;
};
// `draft`: of the draft's own checkpoint; null: none was named, which is an error (kUsage) for the
// modes that need one. Else errors of FindDraftBuilder and Resolve.
Result<DraftResolution> ResolveDraft(std::string_view mode, const Identity* draft,
                                     Registry& registry);

// Step 5 in full, when config, options and machine are known: the first candidate of which every
// criterion matches. `query` is null where there is no config to ask with. kRequire without a
// match, and no entry at all, are errors with every criterion, its value, and whether it matched.
Status ChooseTarget(const TargetQuery* query, TargetMode mode, Resolution& resolution);

// The chosen target has answered NoTarget at construction: kAuto goes back to the entry, recorded;
// kRequire is an error.
Status DropTarget(const NoTarget& answer, TargetMode mode, Resolution& resolution);

// Reads the identity of a checkpoint: config.json's keys, or GGUF's general.architecture through
// its provider.
Result<Identity> IdentityOf(const Checkpoint& checkpoint, Registry& registry);

}  // namespace tenon
