#include "tenon/kernels/table.h"

namespace tenon {

namespace baseline {
const KernelTable& Kernels();
}
namespace avx2 {
const KernelTable& Kernels();
}
namespace avx512 {
const KernelTable& Kernels();
}
namespace avx512_bf16_vnni {
const KernelTable& Kernels();
}
namespace amx {
const KernelTable& Kernels();
}

const KernelTable& KernelsUpTo(Isa isa) {
  // A table's code runs only where its instruction set does, the making of the table included.
  struct Row {
    Isa isa;
    const KernelTable& (*kernels)();
  };
  constexpr Row kBestFirst[] = {{Isa::kAmx, amx::Kernels},
                                {Isa::kAvx512Bf16Vnni, avx512_bf16_vnni::Kernels},
                                {Isa::kAvx512, avx512::Kernels},
                                {Isa::kAvx2, avx2::Kernels},
                                {Isa::kBaseline, baseline::Kernels}};
  for (const Row& row : kBestFirst) {
    if (row.isa <= isa) return row.kernels();
  }
  return ReferenceKernels();
}

}  // namespace tenon
