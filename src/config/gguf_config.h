// Turns GGUF metadata into a config with Hugging Face's keys, so that a family reads both
// containers with one function. Each family states its keys as a table of rows; rope scaling, which
// GGUF spells the same way for all, is folded here. Does not read files: metadata is handed in.
// Pure functions; thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tenon/base/json.h"
#include "tenon/base/status.h"
#include "tenon/config/config_reader.h"

namespace tenon {

// The small tensors that are part of the config, and how long they may be.
inline constexpr const char* kGgufRopeTensors[] = {"rope_freqs.weight", "rope_factors_short.weight",
                                                   "rope_factors_long.weight"};
inline constexpr int64_t kMostRopeDivisors = 4096;

// What a conversion may look at.
struct GgufMetadataView {
  // An object: metadata key -> scalar, or list of numbers. Lists of strings are left out; for every
  // list there is "<key>.length". Small rope tensors stand under their tensor names, as lists of
  // numbers: "rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight".
  const Json& metadata;
  std::string_view architecture;  // general.architecture: "llama"

  // key with "{arch}" in the place of the architecture; null when absent.
  const Json* Find(std::string_view key) const;
  std::string NameOf(std::string_view key) const;
};

// Null keeps the value as it is.
using GgufConversion = Result<Json> (*)(const Json& value, const GgufMetadataView& view);

// One key of a family. Several rows may give one hf_key: the first whose gguf_key is present
// counts. hf_key may be a path ("rope_scaling.mscale").
struct GgufKeyRow {
  const char* hf_key;    // "num_attention_heads"
  const char* gguf_key;  // "{arch}.attention.head_count", "tokenizer.ggml.eos_token_id"
  GgufConversion convert = nullptr;
};

// rope.dimension_count (columns rotated) -> partial_rotary_factor, by key_length or
// embedding_length / head_count.
Result<Json> GgufPartialRotary(const Json& value, const GgufMetadataView& view);

struct GgufIdentity {
  std::string architecture;  // general.architecture
  std::string
      hf_architecture;  // "...ForCausalLM", as the provider named it; "" when it is not known
  std::string model_type;
};

// A key that a family requires and the file lacks is reported by the reader, with its GGUF name.
// Errors: metadata that is no object, a conversion that failed, rope scaling that is not known.
Result<ConfigSource> ConfigFromGguf(const Json& metadata, const GgufIdentity& identity,
                                    std::span<const GgufKeyRow> rows);

}  // namespace tenon
