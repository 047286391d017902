// The kernel table that this run of the test binary exercises (support/isa.h).
#pragma once

#include "support/isa.h"
#include "tenon/kernels/table.h"

namespace tenon::test {

inline const KernelTable& Kernels() { return KernelsUpTo(TestIsa()); }

}  // namespace tenon::test
