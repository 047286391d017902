// A steady decode step allocates nothing. Counts every operator new of this binary; under a
// sanitizer, which brings its own, every malloc.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "plan/wish.h"
#include "support/sanitizer.h"
#include "tenon/engine/model_runner.h"

namespace {
std::atomic<int64_t> g_allocations{0};
}

#ifdef TN_UNDER_SANITIZER
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void*,
                                                                             size_t),
                                                         void (*free_hook)(const volatile void*));
namespace {
const int g_installed = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, size_t) { g_allocations.fetch_add(1, std::memory_order_relaxed); },
    [](const volatile void*) {});
}
#else
void* operator new(size_t bytes) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
#endif

namespace tenon {
namespace {

class AllocationsTest : public testing::TestWithParam<const char*> {};

TEST_P(AllocationsTest, ASteadyDecodeStepHasNone) {
  for (const char* backend : {"NATIVE", "FLASHINFER", "VANILLA"}) {
    auto plan = test::PlanGolden(GetParam(), {.backend = backend, .threads = 2});
    ASSERT_TRUE(plan.ok()) << plan.message();
    auto runner = ModelRunner::Load(*std::move(plan));
    ASSERT_TRUE(runner.ok()) << runner.message();
    const std::vector<int32_t> prompt = {1, 2, 3, 4, 5};
    ASSERT_TRUE((*runner)->Extend(prompt, WantLogits::kLast).ok());
    const int32_t id = 7;
    for (int i = 0; i < 3; ++i) ASSERT_TRUE((*runner)->Extend({&id, 1}, WantLogits::kLast).ok());
    const int64_t before = g_allocations.load();
    ASSERT_GT(before, 0) << "the counting itself";
    for (int i = 0; i < 60; ++i) {
      const Status status = (*runner)->Extend({&id, 1}, WantLogits::kLast);
      if (!status.ok()) FAIL() << status.message();
    }
    EXPECT_EQ(g_allocations.load() - before, 0) << backend;
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, AllocationsTest,
                         testing::Values("llama", "mixtral", "deepseek_v2", "mamba2", "lfm2"));

// Sequences come, find a prefix, grow, are published, go, and push old prefixes out.
TEST(Allocations, ACacheInUseHasNone) {
  CacheSpec windowed = {.kind = CacheKind::kPagedRows, .row_bytes = 8, .window = 40};
  windowed.page_tokens = 16;
  const std::vector<CacheSpec> specs = {
      {.kind = CacheKind::kPagedRows, .row_bytes = 8, .page_tokens = 16},
      {.kind = CacheKind::kPagedRows, .row_bytes = 8, .page_tokens = 64},
      windowed};
  LayerCache caches[3];
  LayerCache* const addresses[] = {&caches[0], &caches[1], &caches[2]};
  const auto manager = CacheManager::Create(
      specs, addresses, {.tokens = 1000, .max_sequences = 2, .prefix_reuse = true});
  ASSERT_TRUE(manager.ok()) << manager.message();
  CacheManager& cache = **manager;
  std::vector<int32_t> tokens(400);
  int64_t reused = 0;
  const int64_t before = g_allocations.load();
  for (int32_t text = 0; text < 30; ++text) {
    for (size_t i = 100; i < tokens.size(); ++i) tokens[i] = text;
    const auto admitted = cache.AdmitWithPrefix(tokens);
    ASSERT_TRUE(admitted.ok());
    const int32_t s = admitted->sequence;
    reused += admitted->reused_rows;
    for (auto rows = static_cast<size_t>(admitted->reused_rows); rows < tokens.size();) {
      const size_t step = rows < 300 ? std::min<size_t>(64, 300 - rows) : 1;
      ASSERT_TRUE(cache.Append(s, static_cast<int64_t>(step)).ok());
      rows += step;
      cache.Publish(s, std::span(tokens).first(rows));
    }
    cache.Free(s);
  }
  EXPECT_EQ(g_allocations.load() - before, 0);
  EXPECT_EQ(reused, 29 * 100);  // the first hundred tokens are the same
}

}  // namespace
}  // namespace tenon
