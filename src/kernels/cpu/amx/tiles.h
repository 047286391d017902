// What tiles add to the table: products of many tokens. Private to the folder.
#pragma once

#include "tenon/kernels/table.h"

namespace tenon::amx {

void AddTiles(MatmulKernels& matmul);
void AddTileProbe(ProbeKernels& probes);

}  // namespace tenon::amx
