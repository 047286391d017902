// Specialised targets: implementations of one architecture for few shapes and machines, chosen
// before the built-in one when every criterion of theirs holds. Not a family: a target has no
// config of its own and may say at construction that it cannot serve (NoTarget). Constant once
// registered.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tenon/config/engine_options.h"
#include "tenon/modules/load_context.h"
#include "tenon/registry/model_entry.h"

namespace tenon {

// What routers look at.
struct TargetQuery {
  const ModelConfig& config;
  const EngineOptions& options;  // as resolved
  const LoadContext& context;    // machine, kernels, compute dtype, tensor index
};

// One criterion: what was found, what would match.
struct Criterion {
  std::string name;    // "isa"
  std::string value;   // "avx512_bf16_vnni"
  std::string wanted;  // "avx512_bf16_vnni or more"
  bool match = false;
};

// Why a target that matched does not serve after all.
struct NoTarget {
  std::string why;
};

struct TargetEntry {
  static constexpr SlotKind kSlot = SlotKind::kTarget;
  const std::string& slot() const { return name; }

  std::string name;                        // "llama-fused-decode"
  std::vector<std::string> architectures;  // as checkpoints name them, before any rewriting
  // The fingerprint: identity of model and machine. Then the bounds: what of the options it serves.
  std::function<std::vector<Criterion>(const TargetQuery&)> fingerprint;
  std::function<std::vector<Criterion>(const TargetQuery&)> bounds = {};
  // The model, or nothing and why. An answer leaves the context as it found it only if it is a
  // model: after NoTarget the tree is built anew.
  std::function<std::unique_ptr<Model>(const Scope&, const ModelConfig&, NoTarget& no_target)>
      create;
};

}  // namespace tenon
