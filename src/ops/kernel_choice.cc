#include "tenon/ops/kernel_choice.h"

#include <string>

#include "tenon/kernels/table.h"

namespace tenon {

Result<const KernelTable*> KernelsFor(Isa isa) {
  // Best first; faster tables join at the front.
  const KernelTable* const tables[] = {&ReferenceKernels()};
  for (const KernelTable* table : tables) {
    if (table->isa <= isa) return table;
  }
  return Unavailable("no kernel table for isa = " + std::string(NameOf(isa)));
}

std::string_view NameOf(const KernelTable& kernels) { return kernels.name; }

}  // namespace tenon
