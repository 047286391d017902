// LoadContext: what construction reads and collects: options and tables in, modules, errors,
// decisions, cache and rope declarations out. Scope: a path in the checkpoint plus the context.
// Constructors neither throw nor return a Status: they leave errors here and all are reported
// together. One per load; not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tenon/attention/selector.h"
#include "tenon/base/ledger.h"
#include "tenon/base/machine_profile.h"
#include "tenon/cache/cache_spec.h"
#include "tenon/checkpoint/tensor_index.h"
#include "tenon/modules/parallel.h"
#include "tenon/ops/matmul.h"

namespace tenon {

class AttentionCore;
class LinearMethodTable;
class Module;
class RopeTable;

// Which matrices of products are held packed.
enum class WeightPacking { kNever, kWherePays, kWherePossible };

// The choices that construction needs, each with its origin.
struct ConstructionOptions {
  Sourced<std::string> attention_backend = {"auto", {}};
  Sourced<Compute> compute = {Compute::kFp32, {}};
  Sourced<DType> kv_dtype = {DType::kF32, {}};
  std::optional<DType> window_kv_dtype = {};  // of layers with a window or chunk; empty: kv_dtype
  Sourced<int64_t> page_tokens = {0, {}};     // 0: by PageTokensFor
  WeightPacking packing = WeightPacking::kNever;
  bool deterministic = false;  // results depend neither on the threads nor on the batch
  int threads = 1;             // that will work
  ParallelMapping mapping;
  bool headless = false;  // the checkpoint is a base model: a head may be absent (LmHead)
  int64_t mla_context_chunk = 4096;  // cached latent rows expanded at a time in an MLA prefill
};

// One layer's declared cache and the address that its ops read when a tape runs.
struct DeclaredCache {
  CacheSpec spec;
  LayerCache* cache = nullptr;
};

struct LoadContext {
  // In.
  ConstructionOptions options;
  MachineProfile machine;
  const KernelTable* kernels = nullptr;
  const BackendTable* backends = nullptr;
  const LinearMethodTable* linear_methods = nullptr;  // null: the built-in ones
  const TensorIndex* index = nullptr;                 // null: a config without weights (what-if)
  DType default_dtype = DType::kBF16;                 // of weights when there is no index
  Container container = Container::kHuggingFace;
  // Where parameters are loaded from as they are created; null, but for a model whose constructor
  // computes with weights and the user's consent to what that costs.
  const Checkpoint* storage = nullptr;
  // Facts that whoever loads the model leaves for its modules. They outlive a second construction.
  std::map<std::string, std::string> attributes;

  // Out.
  Ledger ledger;
  std::vector<std::string> errors;
  std::vector<Module*> modules;  // tree order: a parent before its children
  std::map<std::string, AttentionCore*> attention_layers;  // key "3"; "3_0", "3_1" on collision
  std::vector<DeclaredCache> caches;
  std::vector<RopeTable*> ropes;
  // Where construction is: modules before a model's stack of layers belong to the first stage,
  // those after it to the last (ModuleList moves on).
  enum class Position { kBeforeLayers, kInLayers, kAfterLayers };
  Position position = Position::kBeforeLayers;
  bool OnThisStage() const {
    const ParallelMapping& mapping = options.mapping;
    if (position == Position::kInLayers) return true;
    return position == Position::kBeforeLayers ? mapping.stage() == 0
                                               : mapping.stage() + 1 == mapping.pp;
  }
  bool has_logits = true;          // false: the model ends in hidden states
  int64_t construction_bytes = 0;  // copied while constructing
  int64_t idle_input_scales = 0;   // in the file, of which no product makes use

  void Error(std::string text) { errors.push_back(std::move(text)); }
  // Collects the refusal of a decision that needed consent.
  void Record(Decision decision);
  // All errors in one Status (kRefused), OK when there are none.
  Status Errors() const;
  // Forgets what a construction left: modules, keys, errors, and the decisions after the first
  // `decisions`. What is under "In" stays.
  void ClearTree(size_t decisions);
};

class Scope {
 public:
  Scope(LoadContext& context, std::string path) : context_(&context), path_(std::move(path)) {}
  Scope operator/(std::string_view name) const;
  Scope operator/(int64_t index) const { return *this / std::to_string(index); }
  const std::string& path() const { return path_; }
  // The last part of the path.
  std::string_view name() const;
  Scope Parent() const;
  LoadContext& context() const { return *context_; }
  void Error(const std::string& what) const { context_->Error(path_ + ": " + what); }

 private:
  LoadContext* context_;
  std::string path_;
};

}  // namespace tenon
