#include "tenon/kernels/cpu/cpu.h"
#include "tenon/kernels/cpu/simd.h"

namespace tenon::TN_ISA {

const KernelTable& Kernels();

// What this instruction set has no kernel for stays with the reference.
const KernelTable& Kernels() {
  static const KernelTable table = [] {
    KernelTable t = ReferenceKernels();
    t.name = TN_QUOTE(TN_ISA);
    t.isa = Isa::TN_ISA_LEVEL;
    AddMatmuls(t.matmul);
    AddNorms(t.norm);
    AddElementwise(t.elementwise);
    AddRope(t.rope);
    AddAttention(t.attention);
    return t;
  }();
  return table;
}

}  // namespace tenon::TN_ISA
