#include "tenon/ops/kernel_choice.h"

#include "tenon/kernels/table.h"

namespace tenon {

const KernelTable& KernelsFor(Isa isa) { return KernelsUpTo(isa); }

bool HasNarrowMatmuls(const KernelTable& kernels) {
  return kernels.matmul.blocks.pack.run != nullptr;
}

std::string_view NameOf(const KernelTable& kernels) { return kernels.name; }

}  // namespace tenon
