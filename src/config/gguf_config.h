// From GGUF metadata to the keys that config.json would have, each with its origin, so that a
// family reads one form. The rows are the family's; rope scaling is common. Does not see the
// checkpoint layer: values come by look-up. Pure functions; thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "tenon/base/json.h"
#include "tenon/config/config_reader.h"

namespace tenon {

struct GgufKeyRow {
  std::string_view hf_key;    // "num_attention_heads"
  std::string_view gguf_key;  // "{arch}.attention.head_count"
  bool required = false;
};

// The value of a metadata key; nothing when absent.
using GgufLookup = std::function<std::optional<Json>(std::string_view key)>;

// kRefused: required keys that are absent, all of them named.
Result<ConfigSource> ConfigFromGguf(std::string_view gguf_architecture,
                                    std::span<const GgufKeyRow> rows, const GgufLookup& lookup);

}  // namespace tenon
