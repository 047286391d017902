// The rows of the option table; only option_table.cc reads them. To add an option: a field in
// EngineOptions and a row here; scripts that check docs/options.md then ask for a new copy.
// Constant; thread-safe.
#pragma once

#include <limits>

#include "tenon/config/option_table.h"

namespace tenon {

inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();
inline constexpr double kInt32Max = 2147483647;
inline constexpr uint32_t kGenerates = kRun;
// Commands that plan a model, and so read what decides the plan.
inline constexpr uint32_t kPlans = kRun | kExplain | kLogits | kBench;

inline constexpr OptionRow kOptionRows[] = {
    {"config", OptionKind::kPath, &EngineOptions::config, "", "", 0, 0, "", kAllCommands,
     "YAML file with options, one `name: value` per line; the environment and the command line "
     "win"},
    {"log", OptionKind::kEnum, &EngineOptions::log, "warning", "debug|info|warning|error|off", 0, 0,
     "", kAllCommands, "how much is told on stderr"},
    {"json", OptionKind::kFlag, &EngineOptions::json, "false", "", 0, 0, "",
     kExplain | kModels | kTokenize | kInspect | kBackends, "print JSON alone on stdout"},
    {"custom-module-dirs", OptionKind::kList, &EngineOptions::custom_module_dirs, "", "", 0, 0, "",
     kPlans | kModels | kBackends,
     "plugins (see docs/plugins.md): shared libraries, or folders of them, that bring models and "
     "attention backends",
     OptionStatus::kStable, "", ','},
    {"threads", OptionKind::kInt, &EngineOptions::threads, "auto", "auto", 1, 1024, "threads",
     kPlans, "worker threads; auto: one per usable core"},
    {"isa", OptionKind::kEnum, &EngineOptions::isa, "auto", "auto|{isa}", 0, 0, "", kPlans,
     "instruction set of the kernels; auto: the best of this machine"},
    {"memory", OptionKind::kSize, &EngineOptions::memory, "auto", "auto", 1, kNoLimit, "bytes",
     kPlans, "memory that may be used; auto: the limit of this process"},
    {"tp", OptionKind::kInt, &EngineOptions::tp, "1", "", 1, 64, "ranks", kExplain,
     "ranks that share each layer: what one of them would hold", OptionStatus::kExperimental},
    {"pp", OptionKind::kInt, &EngineOptions::pp, "1", "", 1, 64, "stages", kExplain,
     "stages that the layers are cut into: what one of them would hold",
     OptionStatus::kExperimental},
    {"rank", OptionKind::kInt, &EngineOptions::rank, "0", "", 0, 4095, "", kExplain,
     "which rank of --tp times --pp, stage after stage", OptionStatus::kExperimental},
    {"compute", OptionKind::kEnum, &EngineOptions::compute, "auto", "auto|fp32|bf16", 0, 0, "",
     kPlans, "format of activations in matrix products; auto: the fastest that the weights allow"},
    {"deterministic", OptionKind::kFlag, &EngineOptions::deterministic, "false", "", 0, 0, "",
     kPlans,
     "the same bits whatever the threads, the chunks of a prompt and the other sequences; products "
     "are fp32"},
    {"weights", OptionKind::kEnum, &EngineOptions::weights, "auto", "auto|in-place|packed", 0, 0,
     "", kPlans,
     "how weights are held: in-place, as the file has them, or packed, copied into the order that "
     "the kernels read best; auto: packed where that pays"},
    {"attn-backend", OptionKind::kEnum, &EngineOptions::attn_backend, "auto", "auto|{attn-backend}",
     0, 0, "", kPlans, "attention backend of all layers; auto: the first that supports the model"},
    {"attn-jit", OptionKind::kEnum, &EngineOptions::attn_jit, "auto", "off|auto|require", 0, 0, "",
     kPlans,
     "attention kernels of FLASHINFER compiled while a model loads: never, where there is a "
     "compiler, or in any case"},
    {"kv-dtype", OptionKind::kEnum, &EngineOptions::kv_dtype, "auto",
     "auto|f32|bf16|fp16|fp8|fp8_e4m3|int8|nvfp4", 0, 0, "", kPlans,
     "format of cached keys and values, of layers with a window or chunk (window) and without "
     "(full) "
     "where they are to differ; auto: as the checkpoint says, else as computed",
     OptionStatus::kStable, "", 0, "full|window"},
    {"page-tokens", OptionKind::kInt, &EngineOptions::page_tokens, "auto", "auto|16|32|64|128|256",
     16, 256, "tokens", kPlans, "tokens per page of the cache; auto: by the size of a row"},
    {"kv-tokens", OptionKind::kInt, &EngineOptions::kv_tokens, "auto", "auto", 1, kInt32Max,
     "tokens", kPlans, "tokens that the cache holds in all; auto: by memory"},
    {"kv-fraction", OptionKind::kReal, &EngineOptions::kv_fraction, "0.9", "", 0.01, 1, "", kPlans,
     "share of the memory that the cache may fill up, weights and activations included"},
    {"max-seq-len", OptionKind::kInt, &EngineOptions::max_seq_len, "auto", "auto", 1, kInt32Max,
     "tokens", kPlans, "longest sequence, prompt and answer; auto: the model's maximum that fits"},
    {"allow-downgrade", OptionKind::kList, &EngineOptions::allow_downgrade, "", "", 0, 0, "",
     kPlans, "decisions that may change what was asked for, by field (see explain)",
     OptionStatus::kStable, "", ','},
    {"target", OptionKind::kEnum, &EngineOptions::target, "auto", "off|auto|require", 0, 0, "",
     kPlans,
     "implementations of one model for few shapes and machines: off, where one matches, or nothing "
     "else"},
    {"mm-encoder-only", OptionKind::kFlag, &EngineOptions::mm_encoder_only, "false", "", 0, 0, "",
     kExplain, "only the vision encoder of a model that takes images", OptionStatus::kExperimental},
    {"max-sequences", OptionKind::kInt, &EngineOptions::max_sequences, "1", "", 1, 4096,
     "sequences", kExplain | kBench, "sequences that are computed at a time"},
    {"prefill-chunk", OptionKind::kInt, &EngineOptions::prefill_chunk, "512", "", 1, 1 << 20,
     "tokens", kPlans, "most tokens of a step: longest part of a prompt computed at once"},
    {"mla-context-chunk", OptionKind::kInt, &EngineOptions::mla_context_chunk, "1024", "", 1,
     1 << 20, "tokens", kPlans,
     "cached tokens that latent attention expands at a time in a prefill"},
    {"seed", OptionKind::kInt, &EngineOptions::seed, "random", "random", 0, kNoLimit, "",
     kGenerates, "start of the random numbers that sampling uses"},
    {"temp", OptionKind::kReal, &EngineOptions::temp, "0", "", 0, 100, "", kGenerates,
     "temperature; 0: always the most likely token"},
    {"top-k", OptionKind::kInt, &EngineOptions::top_k, "0", "", 0, kInt32Max, "tokens", kGenerates,
     "sample among the K most likely tokens; 0: off"},
    {"top-p", OptionKind::kReal, &EngineOptions::top_p, "1", "", 0, 1, "", kGenerates,
     "sample among the likeliest tokens that sum to P; 1: off"},
    {"min-p", OptionKind::kReal, &EngineOptions::min_p, "0", "", 0, 1, "", kGenerates,
     "sample among tokens at least P times as likely as the likeliest; 0: off"},
    {"repetition-penalty", OptionKind::kReal, &EngineOptions::repetition_penalty, "1", "", 0.01,
     100, "", kGenerates, "divides the positive logits of tokens seen before; 1: off"},
    {"max-new-tokens", OptionKind::kInt, &EngineOptions::max_new_tokens, "unlimited", "unlimited",
     0, kInt32Max, "tokens", kGenerates, "longest answer; unlimited: until the context is full",
     OptionStatus::kStable, "n"},
    {"stop", OptionKind::kList, &EngineOptions::stop, "", "", 0, 0, "", kGenerates,
     "text that ends an answer; may be repeated"},
};

}  // namespace tenon
