#include "tenon/kernels/table.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "kernels/random_data.h"

namespace tenon {
namespace {

// Calls visit(function is there, name) for every entry outside matmul and attention.
template <typename Visit>
void ForEntries(const KernelTable& table, Visit visit) {
  const auto each = [&](const auto&... kernels) {
    (visit(kernels.run != nullptr, std::string(kernels.name)), ...);
  };
  const ElementwiseKernels& e = table.elementwise;
  each(table.norm.rms, table.norm.layer, table.norm.gated_rms);
  each(e.activate, e.gated_activate, e.clamped_swiglu, e.multiply, e.add, e.add_scaled, e.scale,
       e.soft_cap, e.softmax);
  each(table.rope.angles, table.rope.rotate_half, table.rope.rotate_interleaved);
  each(table.rows.embed, table.rows.gather, table.moe.route);
  each(table.recurrent.conv, table.recurrent.scan, table.recurrent.delta);
}

// Every faster table inherits from this one, so it has everything.
TEST(KernelTable, ReferenceIsComplete) {
  const KernelTable& table = ReferenceKernels();
  std::set<std::string> names;
  int entries = 0;
  ForEntries(table, [&](bool is_there, const std::string& name) {
    EXPECT_TRUE(is_there) << name;
    EXPECT_EQ(name.rfind("reference/", 0), 0u) << name;
    names.insert(name);
    ++entries;
  });
  EXPECT_EQ(static_cast<int>(names.size()), entries) << "two kernels share a name";
}

TEST(KernelTable, MatmulForExactlyTheFloatTypes) {
  for (int i = 0; i <= static_cast<int>(DType::kQ4_K); ++i) {
    const auto dtype = static_cast<DType>(i);
    const Kernel<MatmulFunction>& kernel = ReferenceKernels().matmul.For(dtype);
    EXPECT_EQ(kernel.run != nullptr, InfoOf(dtype).is_float) << NameOf(dtype);
    if (kernel.run == nullptr) continue;
    EXPECT_EQ(std::string(kernel.name), "reference/matmul_" + std::string(NameOf(dtype)));
  }
}

}  // namespace
}  // namespace tenon
