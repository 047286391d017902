// DType: how numbers are stored, plain types and quantised block formats alike, with the facts that
// size and print them. Not for computing (codecs.h, blocks/). Pure functions, thread-safe. To add a
// block format: blocks/<format>.h, a DType, a row in dtype.cc and one in decode.cc.
#pragma once

#include <cstdint>
#include <string_view>

#include "tenon/base/status.h"

namespace tenon {

enum class DType : uint8_t {
  kF64,
  kF32,
  kBF16,
  kF16,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  // Blocks along the row (the last dimension), as GGUF stores them.
  kQ4_0,
  kQ4_1,
  kQ8_0,
  kQ6_K,
  kQ4_K,
  kF4E2M1,  // two to a byte, the first in the low bits; scales lie elsewhere
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;   // "bf16", "q4_1": our spelling, lower case
  int32_t block_elements;  // 1 for plain types
  int32_t block_bytes;     // bytes of one block (of one element for plain types)
  bool is_float;           // decodes to real numbers (plain floats and blocks)
};

const DTypeInfo& InfoOf(DType dtype);
inline std::string_view NameOf(DType dtype) { return InfoOf(dtype).name; }
inline bool IsBlock(DType dtype) { return InfoOf(dtype).block_elements > 1; }
// Our names, any case. Error lists the valid ones.
Result<DType> ParseDType(std::string_view name);

// Bytes of `elements` numbers in a row; elements must be whole blocks (a reader has checked it).
int64_t RowBytes(DType dtype, int64_t elements);

}  // namespace tenon
