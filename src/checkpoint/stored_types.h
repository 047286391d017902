// The type names and numbers of the two containers, and the DTypes behind them. A format that
// numeric/ learns to decode is readable here at once: DTypes are found by name. Pure functions,
// thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tenon/numeric/dtype.h"

namespace tenon {

struct StoredType {
  std::string_view name;
  int number = -1;             // ggml's; -1 for safetensors
  int32_t block_elements = 1;  // along the row
  int32_t block_bytes = 0;     // 0: no file can hold it (a number that ggml has retired)
  std::optional<DType> dtype;  // nothing: not decoded (yet)
};

// ggml.h, enum ggml_type. Nothing for a number that is unknown here.
std::optional<StoredType> GgmlType(uint32_t number);
// The number that stores a DType, or nothing when GGUF has none for it.
std::optional<uint32_t> GgmlNumberOf(DType dtype);

// safetensors spells plain types in capitals ("F8_E4M3"). Nothing for other names.
std::optional<DType> SafetensorsType(std::string_view name);
std::optional<std::string> SafetensorsNameOf(DType dtype);

// "F32, F16, Q4_0": for messages.
std::string SupportedGgmlTypes();
std::string SupportedSafetensorsTypes();

// Bytes of a tensor, or nothing when a dimension is negative, the row is not whole blocks, or the
// size (zero dimensions taken as one) does not fit 63 bits.
std::optional<int64_t> CheckedBytes(int32_t block_elements, int32_t block_bytes,
                                    std::span<const int64_t> dims);

}  // namespace tenon
