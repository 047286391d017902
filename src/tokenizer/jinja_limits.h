// Bounds on what one render of a chat template may use: a template is a stranger's program. A plain
// value.
#pragma once

#include <cstdint>

namespace tenon {

struct RenderLimits {
  int64_t max_steps = 50'000'000;  // evaluated nodes, visited items, 64-byte pieces of text
  int64_t max_live_bytes = int64_t{256} << 20;   // of all values together
  int64_t max_output_bytes = int64_t{64} << 20;  // of the rendered text and open captures
  int max_depth = 1500;                          // nested evaluations
  int64_t max_stack_bytes = int64_t{1} << 20;    // of the calling thread's stack
};

}  // namespace tenon
