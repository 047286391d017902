// What this instruction set adds to the table: matmuls with narrow activations. Private to the
// folder.
#pragma once

#include "tenon/kernels/table.h"

namespace tenon::avx512_bf16_vnni {

void AddPacking(MatmulKernels& matmul);
void AddBlockRows(MatmulKernels& matmul);
void AddBf16Rows(MatmulKernels& matmul);
void AddPanels(MatmulKernels& matmul);

}  // namespace tenon::avx512_bf16_vnni
