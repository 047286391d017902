// A gated MLP of one token in parts that never meet: each part takes a stretch of the intermediate
// width through gate, up and the activation, and on through that stretch's columns of `down`, so
// that only the parts' results have to be added up. For generating with a few threads; prompts take
// GatedFeedForward. Records on the tape; family code's thread only.
#pragma once

#include <span>

#include "tenon/numeric/activation.h"
#include "tenon/ops/matmul.h"

namespace tenon {

// Lives as long as the tape, with its matrices.
struct FeedForwardPart {
  const MatrixRef* gate_up = nullptr;  // [2] of [intermediate / parts, hidden]
  const MatrixRef* down = nullptr;     // [1] of [hidden, intermediate / parts]
};

// Whether the table has the kernels: narrow products, all parts of one kind and without a bias of
// down, which every part would add.
bool CanSplitFeedForward(const KernelTable& kernels, std::span<const FeedForwardPart> parts);

// x [1, hidden] -> [parts, hidden], whose rows sum up to the result.
Value SplitFeedForward(Tape& tape, Activation activation, std::span<const FeedForwardPart> parts,
                       const Value& x);

}  // namespace tenon
