// Which kernel table runs: chosen once per load from the machine profile, never from CPUID.
// Thread-safe.
#pragma once

#include <string_view>

#include "tenon/base/machine_profile.h"

namespace tenon {

struct KernelTable;

// The best table for a machine that has `isa`; at the least the reference.
const KernelTable& KernelsFor(Isa isa);
// Whether the table has matmuls that round activations (Compute::kBf16).
bool HasNarrowMatmuls(const KernelTable& kernels);
// "reference", "avx2", …
std::string_view NameOf(const KernelTable& kernels);

}  // namespace tenon
