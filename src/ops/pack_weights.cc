#include "tenon/ops/pack_weights.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "tenon/kernels/table.h"
#include "tenon/tensor/buffer.h"

namespace tenon {
namespace {

int64_t GroupsOf(const MatrixRef& matrix) { return CeilDiv(matrix.rows, kPackedRows); }

// Groups [begin, end) of one packing.
struct Part {
  const Packing* packing = nullptr;
  int64_t begin = 0, end = 0;
};

// Large enough for a run of reads, small enough to share out.
std::vector<Part> PartsOf(std::span<const Packing> packings) {
  constexpr int64_t kPartBytes = int64_t{256} * 1024;
  std::vector<Part> parts;
  for (const Packing& packing : packings) {
    const int64_t group_bytes = std::max<int64_t>(1, kPackedRows * packing.stored.row_bytes);
    const int64_t step = std::max<int64_t>(1, kPartBytes / group_bytes);
    const int64_t groups = GroupsOf(packing.stored);
    for (int64_t begin = 0; begin < groups; begin += step) {
      parts.push_back({&packing, begin, std::min(groups, begin + step)});
    }
  }
  return parts;
}

}  // namespace

bool CanPack(const KernelTable& kernels, DType dtype) {
  return kernels.matmul.Packed(dtype).pack.run != nullptr;
}

bool PackingPays(const KernelTable& kernels, DType dtype) {
  return CanPack(kernels, dtype) && kernels.matmul.Packed(dtype).pays;
}

MatrixRef PackedShapeOf(const KernelTable& kernels, const MatrixRef& stored) {
  TN_CHECK(CanPack(kernels, stored.dtype) && !stored.scales.present(),
           "a kernel that packs the dtype; none knows scales");
  MatrixRef packed = stored;
  packed.data = nullptr;
  packed.form = HeldForm::kPacked;
  const PackedWeightKernels& form = kernels.matmul.Packed(stored.dtype);
  packed.row_bytes = CeilDiv(stored.cols, form.unit_cols) * form.unit_bytes;
  return packed;
}

int64_t PackedBytes(const MatrixRef& packed) {
  return GroupsOf(packed) * kPackedRows * packed.row_bytes;
}

void PackWeights(const KernelTable& kernels, ThreadTeam& team, std::span<const Packing> packings) {
  const std::vector<Part> parts = PartsOf(packings);
  std::atomic<size_t> next{0};
  team.Run([&](int /*thread*/) {
    for (size_t i = next++; i < parts.size(); i = next++) {
      const MatrixRef& stored = parts[i].packing->stored;
      const PackWeightArgs args{stored.data, stored.row_bytes, stored.rows, stored.cols,
                                parts[i].packing->packed};
      kernels.matmul.Packed(stored.dtype).pack.run(args, parts[i].begin, parts[i].end);
    }
  });
}

}  // namespace tenon
