#include "tenon/kernels/cpu/cpu.h"
#include "tenon/kernels/cpu/simd.h"
#if defined(__AVX512BF16__) && defined(__AVX512VNNI__)
#include "tenon/kernels/cpu/avx512_bf16_vnni/narrow.h"
#endif

namespace tenon::TN_ISA {

const KernelTable& Kernels();

// What this instruction set has no kernel for stays with the reference.
const KernelTable& Kernels() {
  static const KernelTable table = [] {
    KernelTable t = ReferenceKernels();
    t.name = TN_QUOTE(TN_ISA);
    t.isa = Isa::TN_ISA_LEVEL;
    AddMatmuls(t.matmul);
    AddScaledMatmuls(t.matmul);
    AddNorms(t.norm);
    AddElementwise(t.elementwise);
    AddRope(t.rope);
    AddAttention(t.attention);
    AddProbes(t.probes);
#if defined(__AVX512BF16__) && defined(__AVX512VNNI__)
    AddPacking(t.matmul);
    AddBlockRows(t.matmul);
    AddKRows(t.matmul);
    AddBf16Rows(t.matmul);
    AddF8Rows(t.matmul);
    AddInt8Rows(t.matmul);
    AddPanels(t.matmul);
    AddPackWeights(t.matmul);
    AddPackedRows(t.matmul);
    AddAttendBlocks(t.attention);
#endif
    return t;
  }();
  return table;
}

}  // namespace tenon::TN_ISA
