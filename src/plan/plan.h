// Plan: from a path and options to a model of which everything is decided and no weight is read:
// `explain` stops here, `run` goes on with the same object. Each phase collects all of its errors;
// the line stops after the first phase that has some. Not thread-safe; one PlannedModel per load.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tenon/attention/selector.h"
#include "tenon/cache/cache_manager.h"
#include "tenon/checkpoint/checkpoint.h"
#include "tenon/checkpoint/tensor_index.h"
#include "tenon/config/config_reader.h"
#include "tenon/config/engine_options.h"
#include "tenon/config/generation_config.h"
#include "tenon/config/quant_rules.h"
#include "tenon/modules/linear_method.h"
#include "tenon/modules/model.h"
#include "tenon/registry/resolution.h"

namespace tenon {

// Bytes by purpose, all known before loading.
struct MemoryLedger {
  int64_t weights_stored = 0;  // in the files, of the tensors that are used
  int64_t weights_held = 0;    // while running: mapped rows and copies
  int64_t weights_derived = 0;
  int64_t cache = 0;
  int64_t arena = 0;  // activations of the largest step
  int64_t scratch = 0;
  // The most that constructing and loading hold beyond the rest, for a while: file pages of the
  // matrices that are being packed, copies that a constructor asked for.
  int64_t construction = 0;
  int64_t Total() const { return weights_held + weights_derived + cache + arena + scratch; }
};

// One step recorded in shape mode.
struct StepSummary {
  std::string name;  // "prefill 512", "decode"
  int64_t records = 0;
  int meetings = 0;
  int64_t arena_bytes = 0;
  int64_t scratch_bytes = 0;
  int64_t weight_bytes = 0;                          // that matrix products read
  int64_t operations = 0;                            // of matrix products; a multiply-add is two
  std::vector<std::pair<std::string, int>> kernels;  // name, how often
  // Ops that do the work of several: the residual's sum with the next layer's norm, a gated MLP's
  // products with their activation, a rotation with the writing of the cache.
  std::vector<std::pair<std::string, int>> fused;
};

struct PlannedModel {
  // In the order of making; destroyed in reverse.
  std::unique_ptr<Checkpoint> checkpoint;
  Resolution resolution;
  std::vector<std::string> registrations;  // kept and displaced ones, in words
  std::unique_ptr<ConfigReader> reader;    // the record of what was read
  std::shared_ptr<const ModelConfig> config;
  GenerationConfig generation;
  QuantRules quant;       // modules point at its schemes
  EngineOptions options;  // as resolved: what was set, then what the checkpoint's authors offer
  const KernelTable* kernels = nullptr;
  std::vector<Registry::FoundEntry<AttentionBackendEntry>> plugin_backends;
  std::vector<Registry::FoundEntry<QuantMethodEntry>> plugin_quant_methods;
  BackendTable backends;
  LinearMethodTable linear_methods = LinearMethodTable::Builtin();  // and those of plugins
  std::unique_ptr<TensorIndex> index;
  std::unique_ptr<LoadContext> context;
  std::unique_ptr<Model> model;
  std::vector<CacheSpec> cache_specs;  // of the model, in tree order
  std::vector<LayerCache*> layer_caches;

  int64_t max_seq_len = 0;
  int threads = 1;
  CacheSizing sizing;
  CachePlan cache_plan;
  std::vector<StepSummary> steps;
  MemoryLedger memory;

  ModelKind kind() const { return resolution.entry->kind; }
  // Rows of the largest step of the decoder (or of an encoder, which sees its input at once).
  int64_t prefill_rows() const;
  // Rows of the largest step of all.
  int64_t largest_step() const;
};

// `options`: of EngineOptionTable().Resolve or .Defaults. Errors: kUsage for options that cannot
// be, kRefused for the model, kDoesNotFit with the longest context that fits.
Result<std::unique_ptr<PlannedModel>> PlanModel(const std::string& path, EngineOptions options,
                                                Registry& registry);

}  // namespace tenon
