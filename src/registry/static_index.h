// The rows of the static index (zoo/index.inc): which architectures, other model types, draft modes
// and GGUF names are known, and which provider serves each. Plain data: reading it runs no
// provider's code. Constant; thread-safe.
#pragma once

#include <span>
#include <string_view>

#include "tenon/registry/model_entry.h"

namespace tenon {

enum class ModelStatus {
  kStable,
  kBeta,
  kExperimental,
  kNotBuilt,  // known by name; no version of ours has served it yet
  kRemoved,   // served before `version`
};
std::string_view NameOf(ModelStatus status);

struct ArchitectureRow {
  std::string_view architecture;  // as config.json spells it
  std::string_view model_type;    // config.json's usual one
  std::string_view provider;      // "llama": src/zoo/llama.cc
  ModelKind kind;
  ModelStatus status;
  std::string_view version = "";  // ours: that first served it, or that removed it
};
// Another model_type that checkpoints of an architecture carry.
struct ModelTypeRow {
  std::string_view model_type;
  std::string_view architecture;
};
// A mode of speculative decoding whose draft model a provider builds.
struct DraftRow {
  std::string_view mode;      // "MTP"
  std::string_view provider;  // empty: the draft is a model of its own checkpoint, with no builder
  ModelStatus status;
};
// GGUF's general.architecture -> the provider whose function names the Hugging Face architecture.
struct GgufRow {
  std::string_view gguf_architecture;
  std::string_view provider;
};
// Specialised targets for an architecture (target.h).
struct TargetRow {
  std::string_view architecture;
  std::string_view provider;
};

struct StaticIndex {
  std::span<const ArchitectureRow> architectures = {};
  std::span<const ModelTypeRow> model_types = {};
  std::span<const DraftRow> drafts = {};
  std::span<const GgufRow> gguf = {};
  std::span<const TargetRow> targets = {};
};

}  // namespace tenon
