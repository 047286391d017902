#include "tenon/ops/kernel_choice.h"

#include "tenon/kernels/table.h"

namespace tenon {

Result<const KernelTable*> KernelsFor(Isa isa) {
  // One table so far; faster ones join in order of preference.
  const KernelTable& reference = ReferenceKernels();
  if (reference.isa <= isa) return &reference;
  return Unavailable("no kernel table for isa " + std::string(NameOf(isa)));
}

std::string_view NameOf(const KernelTable& kernels) { return kernels.name; }

}  // namespace tenon
