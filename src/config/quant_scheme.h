// QuantScheme: how one weight matrix is stored and what its product does to the input. Not which
// matrix has it (quant_rules.h), not the bytes (modules/linear_method.h). A value;
// thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/numeric/dtype.h"

namespace tenon {

// What the checkpoint's authors had the inputs of a product rounded to.
enum class InputFormat : uint8_t {
  kNone,
  kInt8PerToken,  // one scale per token, taken from the token
  kFp8PerToken,   // the same in fp8
  kFp8PerBlock,   // one scale per token and 128 columns
  kFp8PerTensor,  // one scale, taken from the step's rows
  kFp8Static,     // one scale that the checkpoint holds
};
std::string_view NameOf(InputFormat format);

struct QuantScheme {
  std::string method = "plain";  // the linear method that reads it
  DType codes = DType::kF32;     // of the weight; of "plain" without meaning
  // The rectangle of weights that shares a scale; 0: the whole dimension.
  int64_t block_rows = 0;
  int64_t block_cols = 0;
  InputFormat input = InputFormat::kNone;
  // What may stand where "weight" stands, the first that is present counts.
  std::vector<std::string> scale_names = {};
  std::vector<std::string> input_scale_names = {};

  bool is_plain() const { return method == "plain"; }
  // "fp8, one scale per 128x128 weights, inputs fp8 per 128 columns"; "plain".
  std::string Text() const;
  friend bool operator==(const QuantScheme&, const QuantScheme&) = default;
};

}  // namespace tenon
