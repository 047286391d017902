// Plan: from a path and options to a model of which everything is decided and no weight is read:
// `explain` stops here, `run` goes on with the same object. Each phase collects all of its errors;
// the line stops after the first phase that has some. Not thread-safe; one PlannedModel per load.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tenon/attention/selector.h"
#include "tenon/cache/cache_manager.h"
#include "tenon/checkpoint/checkpoint.h"
#include "tenon/checkpoint/tensor_index.h"
#include "tenon/config/config_reader.h"
#include "tenon/modules/model.h"
#include "tenon/registry/resolution.h"

namespace tenon {

// What a user may ask for, each with its origin. "auto" and 0 mean: decide.
struct PlanOptions {
  Sourced<std::string> compute = {"auto", {}};
  Sourced<std::string> attention_backend = {"auto", {}};
  Sourced<std::string> kv_dtype = {"auto", {}};
  Sourced<int64_t> max_seq_len = {0, {}};
  Sourced<int64_t> page_tokens = {0, {}};
  Sourced<int64_t> threads = {0, {}};
  Sourced<int64_t> prefill_chunk = {512, {}};  // rows of one prefill step
  Sourced<std::string> isa = {"auto", {}};
  Sourced<int64_t> memory_bytes = {0, {}};
  int64_t mla_context_chunk = 1024;
  std::set<std::string> allowed_downgrades = {};
};

// Bytes by purpose, all known before loading.
struct MemoryLedger {
  int64_t weights_stored = 0;  // in the files, of the tensors that are used
  int64_t weights_held = 0;    // while running: mapped rows and copies
  int64_t weights_derived = 0;
  int64_t cache = 0;
  int64_t arena = 0;  // activations of the largest step
  int64_t scratch = 0;
  int64_t Total() const { return weights_held + weights_derived + cache + arena + scratch; }
};

// One step recorded in shape mode.
struct StepSummary {
  std::string name;  // "prefill 512", "decode"
  int64_t records = 0;
  int meetings = 0;
  int64_t arena_bytes = 0;
  int64_t scratch_bytes = 0;
  std::vector<std::pair<std::string, int>> kernels;  // name, how often
};

struct PlannedModel {
  // In the order of making; destroyed in reverse.
  std::unique_ptr<Checkpoint> checkpoint;
  Resolution resolution;
  std::unique_ptr<ConfigReader> reader;  // the record of what was read
  std::shared_ptr<const ModelConfig> config;
  const KernelTable* kernels = nullptr;
  BackendTable backends;
  std::unique_ptr<TensorIndex> index;
  std::unique_ptr<LoadContext> context;
  std::unique_ptr<Model> model;
  std::vector<CacheSpec> cache_specs;  // of the model, in tree order
  std::vector<LayerCache*> layer_caches;

  int64_t max_seq_len = 0;
  int threads = 1;
  int64_t prefill_chunk = 0;
  CacheSizing sizing;
  CachePlan cache_plan;
  std::vector<StepSummary> steps;
  MemoryLedger memory;

  ModelKind kind() const { return resolution.entry->kind; }
};

Result<std::unique_ptr<PlannedModel>> PlanModel(const std::string& path, const PlanOptions& options,
                                                Registry& registry);

}  // namespace tenon
