// Factors per row: a row of all heads times one number, and the numbers that depend on a token's
// position alone. Records on the tape; family code's thread only.
#pragma once

#include "tenon/ops/tape.h"

namespace tenon {

// x [num_tokens, width] or [num_tokens, heads, width] (any strides) times factors [num_tokens, 1],
// fp32 -> the shape of x, contiguous.
Value ScaleRows(Tape& tape, const Value& x, const Value& factors);

// 1 + beta * ln(1 + floor((position + offset) / interval)): queries far behind the first interval
// get sharper. Read when the tape runs. (Hugging Face modeling_ministral3.py,
// _get_llama_4_attn_scale.)
struct PositionTemperature {
  float beta = 0;
  int64_t interval = 1;
  int64_t offset = 0;
};
// positions [num_tokens] -> [num_tokens, 1].
Value TemperatureOf(Tape& tape, const PositionTemperature& temperature, const int32_t* positions,
                    int64_t num_tokens);

}  // namespace tenon
