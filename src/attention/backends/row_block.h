// The query rows that plans and kernel calls are cut into. A value; nothing of what they attend.
// Private to the backends. Thread-compatible.
#pragma once

#include <cstdint>

namespace tenon::backends {

// Rows [row, row + rows) of the step, all of one request.
struct RowBlock {
  int32_t request = 0;
  int64_t row = 0;
  int64_t rows = 1;
};

}  // namespace tenon::backends
