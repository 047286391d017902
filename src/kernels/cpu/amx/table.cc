#include "tenon/kernels/table.h"
#include "tenon/kernels/cpu/amx/tiles.h"

namespace tenon::avx512_bf16_vnni {
const KernelTable& Kernels();
}

namespace tenon::amx {

const KernelTable& Kernels();

// Tiles pay for many tokens; all else is as without them.
const KernelTable& Kernels() {
  static const KernelTable table = [] {
    KernelTable t = avx512_bf16_vnni::Kernels();
    t.name = "amx";
    t.isa = Isa::kAmx;
    AddTiles(t.matmul);
    AddTileAttention(t.attention);
    AddTileProbe(t.probes);
    return t;
  }();
  return table;
}

}  // namespace tenon::amx
