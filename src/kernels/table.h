// KernelTable: one table of plain functions per instruction set. Kernels work on raw pointers,
// single-threaded over a range, with no STL inside, so that one source can be compiled once per
// ISA. Private to ops and attention. A null entry is filled from the table below it when tables are
// assembled. Constant; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tenon/base/machine_profile.h"
#include "tenon/numeric/dtype.h"

namespace tenon {

struct KernelTable;  // completed in the commit that brings the reference kernels

}  // namespace tenon
