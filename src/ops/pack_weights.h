// Weights held packed: groups of rows in the order that the kernels of a table read best, made once
// when a model is loaded. Thread-compatible; PackWeights uses the team.
#pragma once

#include <span>

#include "tenon/base/thread_team.h"
#include "tenon/ops/matmul.h"

namespace tenon {

// Whether the table multiplies packed weights of the dtype.
bool CanPack(const KernelTable& kernels, DType dtype);
// Whether that is worth a copy when nobody asks for it.
bool PackingPays(const KernelTable& kernels, DType dtype);

// `stored` as it would be held packed: row_bytes, no address. CanPack.
MatrixRef PackedShapeOf(const KernelTable& kernels, const MatrixRef& stored);
// Of a packed matrix, in memory: rows are filled up to whole groups.
int64_t PackedBytes(const MatrixRef& packed);

struct Packing {
  MatrixRef stored;
  std::byte* packed = nullptr;  // PackedBytes, 64-byte aligned
};
// All of them, shared out among the team.
void PackWeights(const KernelTable& kernels, ThreadTeam& team, std::span<const Packing> packings);

}  // namespace tenon
