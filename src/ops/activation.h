// Elementwise maths. Records on the tape; family code's thread only.
#pragma once

#include "tenon/numeric/activation.h"
#include "tenon/ops/tape.h"

namespace tenon {

// All inputs of one op have one shape [num_tokens, width] or [num_tokens, heads, width] (any
// strides); results are contiguous fp32.
Value Activate(Tape& tape, Activation activation, const Value& x);
Value GatedActivate(Tape& tape, Activation activation, const Value& gate,
                    const Value& up);  // act(gate) * up
Value Multiply(Tape& tape, const Value& a, const Value& b);
Value Scale(Tape& tape, const Value& x, float factor);
Value SoftCap(Tape& tape, const Value& x, float cap);  // cap * tanh(x / cap)

}  // namespace tenon
