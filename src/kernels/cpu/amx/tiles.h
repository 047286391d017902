// What tiles add to the table: products of many tokens, in matmuls and attention. Private to the
// folder.
#pragma once

#include "tenon/kernels/table.h"

namespace tenon::amx {

void AddTiles(MatmulKernels& matmul);
void AddTileAttention(AttentionKernels& attention);
void AddTileProbe(ProbeKernels& probes);

}  // namespace tenon::amx
