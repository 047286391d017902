// What tiles add to the table: products of many tokens, in matmuls and attention. Private to the
// folder.
#pragma once

#include "tenon/kernels/table.h"

namespace tenon::amx {

// x: tokens [0, tokens) of a block, as PackBlockFunction.
void PackBlock(const float* x, int64_t x_stride, int64_t tokens, int64_t cols, std::byte* block);

void AddTiles(MatmulKernels& matmul);
void AddTileAttention(AttentionKernels& attention);
void AddTileProbe(ProbeKernels& probes);

}  // namespace tenon::amx
