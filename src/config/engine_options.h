// EngineOptions: every option that is not part of a model, each with its origin. The table of what
// exists, with types, defaults and help, is option_table.h. A value; thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tenon/base/ledger.h"

namespace tenon {

// A null number is the option's word ("auto", "random", "unlimited").
struct EngineOptions {
  // General.
  Sourced<std::string> config;  // path of a YAML file; "" for none
  Sourced<std::string> log;     // debug | info | warning | error | off
  Sourced<bool> json;
  Sourced<std::vector<std::string>> custom_module_dirs;  // plugins and folders of them

  // Machine: what-if values for selection and planning.
  Sourced<std::optional<int64_t>> threads;
  Sourced<std::string> isa;                // "auto" or an ISA's name
  Sourced<std::optional<int64_t>> memory;  // bytes

  Sourced<int64_t> tp;  // ranks that share each layer
  Sourced<int64_t> pp;  // stages of layers
  Sourced<int64_t> rank;

  // Computation and cache.
  Sourced<std::string> compute;       // auto | fp32 | bf16
  Sourced<std::string> weights;       // auto | in-place | packed
  Sourced<bool> deterministic;        // the same bits whatever the threads and the batch
  Sourced<std::string> attn_backend;  // "auto" or a backend's name
  Sourced<std::string> attn_jit;      // off | auto | require
  Sourced<std::string> kv_dtype;      // auto, a name of KvDTypes, or "full=NAME,window=NAME"
  Sourced<std::optional<int64_t>> page_tokens;
  Sourced<std::optional<int64_t>> kv_tokens;
  Sourced<double> kv_fraction;
  Sourced<std::optional<int64_t>> max_seq_len;
  Sourced<int64_t> max_sequences;
  Sourced<int64_t> prefill_chunk;
  Sourced<int64_t> mla_context_chunk;
  Sourced<std::vector<std::string>> allow_downgrade;  // fields of decisions
  Sourced<std::string> target;                        // off | auto | require
  Sourced<bool> mm_encoder_only;

  // Sampling; a request may say otherwise.
  Sourced<std::optional<int64_t>> seed;
  Sourced<double> temp;  // 0: the most likely token
  Sourced<int64_t> top_k;
  Sourced<double> top_p;
  Sourced<double> min_p;
  Sourced<double> repetition_penalty;
  Sourced<std::optional<int64_t>> max_new_tokens;
  Sourced<std::vector<std::string>> stop;
};

}  // namespace tenon
