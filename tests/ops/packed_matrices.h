// Packs matrices for a test and keeps their memory, which starts as NaN. One thread.
#pragma once

#include <cstring>
#include <deque>

#include "ops/op_runner.h"
#include "tenon/ops/pack_weights.h"

namespace tenon::test {

class PackedMatrices {
 public:
  // Of a dtype that CanPack.
  MatrixRef Of(const MatrixRef& stored, int threads = 1) {
    MatrixRef packed = PackedShapeOf(Kernels(), stored);
    Buffer& memory = memory_.emplace_back(*Buffer::Allocate(PackedBytes(packed), "test"));
    std::memset(memory.data(), 0xFF, At(memory.size()));
    ThreadTeam team(threads);
    const Packing packing{stored, memory.data()};
    PackWeights(Kernels(), team, {&packing, 1});
    packed.data = memory.data();
    return packed;
  }

 private:
  std::deque<Buffer> memory_;
};

}  // namespace tenon::test
