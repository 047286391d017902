// The memory ledgers are what loading then takes: every block that weights, cache and steps get is
// counted as the system hands it out. Not under a sanitizer, which has its own allocator.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "plan/wish.h"
#include "support/sanitizer.h"
#include "tenon/engine/model_runner.h"
#include "tenon/tensor/buffer.h"

#ifndef TN_UNDER_SANITIZER

namespace {
// Of this thread, while it is watched: the blocks that Buffer asks for.
thread_local bool t_watched = false;
thread_local int64_t t_bytes = 0;
thread_local int64_t t_blocks = 0;

void Note(size_t bytes) {
  if (!t_watched) return;
  t_bytes += static_cast<int64_t>(bytes);
  ++t_blocks;
}
}  // namespace

extern "C" void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  Note(bytes);
  return memalign(alignment, bytes);
}
extern "C" void* mmap(void* address, size_t bytes, int protection, int flags, int file,
                      off_t offset) noexcept {
  if ((flags & MAP_ANONYMOUS) != 0) Note(bytes);
  return reinterpret_cast<void*>(
      syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}

namespace tenon {
namespace {

struct Case {
  const char* golden;
  const char* compute;
  const char* weights;
  const char* kv_dtype = "auto";
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.golden << " " << c.compute << " " << c.weights << " " << c.kv_dtype;
}

class MemoryTest : public testing::TestWithParam<Case> {};

TEST_P(MemoryTest, PlannedIsAllocated) {
  auto plan = test::PlanGolden(GetParam().golden, {.compute = GetParam().compute,
                                                   .weights = GetParam().weights,
                                                   .kv_dtype = GetParam().kv_dtype,
                                                   .max_seq_len = 64,
                                                   .threads = 2});
  if (!plan.ok() && plan.code() == StatusCode::kUnavailable) {
    GTEST_SKIP() << "this machine packs nothing";
  }
  ASSERT_TRUE(plan.ok()) << plan.message();
  const MemoryLedger planned = (*plan)->memory;
  const bool packs = PackedTotalOf(*(*plan)->context).bytes > 0;
  t_bytes = t_blocks = 0;
  t_watched = true;
  auto runner = ModelRunner::Load(*std::move(plan));
  t_watched = false;
  ASSERT_TRUE(runner.ok()) << runner.message();
  int64_t mapped = 0;  // read where the file has them
  for (Module* module : (*runner)->plan().context->modules) {
    for (const Parameter& parameter : module->parameters()) {
      if (parameter.zero_copy() && parameter.held_form() == HeldForm::kRows) {
        mapped += parameter.held_bytes();
      }
    }
  }
  const int64_t expected = planned.Total() - mapped;
  // Blocks are rounded up to a cache line; large pages, which packed weights lie in, are 2 MiB and
  // start at multiples of that.
  const int64_t slack = 64 * t_blocks + (packs ? int64_t{4} << 20 : 0);
  EXPECT_GE(t_bytes, expected) << t_blocks << " blocks";
  EXPECT_LE(t_bytes, expected + slack) << t_blocks << " blocks";
  EXPECT_GT(expected, 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, MemoryTest,
    testing::Values(
        Case{"llama", "fp32", "auto"}, Case{"llama", "auto", "in-place"},
        Case{"llama", "auto", "packed"}, Case{"deepseek_v2", "fp32", "auto"},
        Case{"deepseek_v3", "auto", "auto"}, Case{"mixtral", "auto", "packed"},
        Case{"mamba2", "fp32", "auto"}, Case{"lfm2", "fp32", "auto"}, Case{"t5", "fp32", "auto"},
        Case{"bert", "fp32", "auto"}, Case{"llama_hd64", "fp32", "auto", "fp16"},
        Case{"llama_hd64", "fp32", "auto", "fp8_e4m3"}, Case{"llama_hd64", "fp32", "auto", "int8"},
        Case{"llama_hd64", "fp32", "auto", "nvfp4"}, Case{"deepseek_v2", "fp32", "auto", "int8"}));

}  // namespace
}  // namespace tenon

#endif
