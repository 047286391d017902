// Matrix products with weights. Not for attention scores. Records on the tape; family code's thread
// only.
#pragma once

#include <span>
#include <string_view>

#include "tenon/numeric/scale_grid.h"
#include "tenon/ops/tape.h"

namespace tenon {

// What activations may be rounded to. kBf16: bf16, or integers of 16 bits in blocks of 32 where a
// GGUF block format meets few tokens; sums are fp32 either way. A table without such kernels
// computes in fp32.
enum class Compute { kFp32, kBf16 };
std::string_view NameOf(Compute compute);

// How a weight lies in memory: rows as the file has them, or packed (pack_weights.h). Only Matmul
// with narrow activations reads packed ones.
enum class HeldForm : uint8_t { kRows, kPacked };

// What the checkpoint's scheme wants of the inputs of a product, beyond `Compute`. kInt8PerToken:
// rounded to int8 with one scale per token, max|x| / 127, where products are narrow at all; fp32
// compute leaves them as they are.
enum class InputRounding : uint8_t { kNone, kInt8PerToken };

// One weight matrix as it is held: [rows, cols], rows contiguous, any float DType incl. blocks. Ops
// keep the address of a MatrixRef, so it lives as long as the tape; `data` is null on meta.
struct MatrixRef {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_bytes = 0;        // packed: of the padded row
  const float* bias = nullptr;  // [rows] or null
  Compute compute = Compute::kFp32;
  HeldForm form = HeldForm::kRows;
  ScaleGrid scales = {};  // of kF8E4M3 and kI8 codes; other dtypes have none
  InputRounding input = InputRounding::kNone;
};

// What one product with the segments reads of them, scales included, and its operations for
// num_tokens.
int64_t WeightBytes(std::span<const MatrixRef> segments);
int64_t Operations(std::span<const MatrixRef> segments, int64_t num_tokens);

// x [num_tokens, cols] times each segment's transpose, side by side: [num_tokens, sum of rows],
// fp32. Segments share the input; they may differ in dtype, scales and everything else.
Value Matmul(Tape& tape, std::span<const MatrixRef> segments, const Value& x);

// Rows of a table: ids [num_tokens] -> [num_tokens, cols] fp32, times scale. Ids are in range (the
// engine checked them). `ids` is read when the tape runs.
Value Embed(Tape& tape, const MatrixRef& table, const int32_t* ids, int64_t num_tokens,
            float scale = 1.0f);

// Rows `rows[0..count)` of x [num_tokens, width] -> [count, width]. `rows` is read when the tape
// runs.
Value GatherRows(Tape& tape, const Value& x, const int32_t* rows, int64_t count);

}  // namespace tenon
