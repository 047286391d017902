#include "tenon/ops/kernel_choice.h"

#include "tenon/kernels/table.h"

namespace tenon {

const KernelTable& KernelsFor(Isa isa) { return KernelsUpTo(isa); }

std::string_view NameOf(const KernelTable& kernels) { return kernels.name; }

}  // namespace tenon
