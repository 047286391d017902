#include "tenon/config/quant_scheme.h"

#include <fmt/format.h>

namespace tenon {

std::string_view NameOf(InputFormat format) {
  switch (format) {
    case InputFormat::kNone:
      return "as computed";
    case InputFormat::kInt8PerToken:
      return "int8 per token";
    case InputFormat::kFp8PerToken:
      return "fp8 per token";
    case InputFormat::kFp8PerBlock:
      return "fp8 per 128 columns";
    case InputFormat::kFp8PerTensor:
      return "fp8 per tensor";
    case InputFormat::kFp8Static:
      return "fp8 with a stored scale";
  }
  return "unknown";
}

std::string QuantScheme::Text() const {
  if (is_plain()) return method;
  std::string grid = "tensor";
  if (block_rows == 1 && block_cols == 0) grid = "row";
  if (block_cols > 0) grid = fmt::format("{}x{}", block_rows, block_cols);
  return fmt::format("{}, a scale per {}, inputs {}", method, grid, NameOf(input));
}

}  // namespace tenon
