// What the sources of this folder add to the table of their instruction set. Compiled once per
// instruction set into the namespace TN_ISA. Private to the folder.
#pragma once

#include "tenon/kernels/table.h"

namespace tenon::TN_ISA {

void AddMatmuls(MatmulKernels& matmul);
void AddScaledMatmuls(MatmulKernels& matmul);
void AddNorms(NormKernels& norm);
void AddElementwise(ElementwiseKernels& elementwise);
void AddRope(RopeKernels& rope);
void AddAttention(AttentionKernels& attention);
void AddProbes(ProbeKernels& probes);

}  // namespace tenon::TN_ISA
