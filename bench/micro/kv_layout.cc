// Reading the keys of one head after the other from pages in either layout: what is left of reading
// speed when a head's rows lie together in a page (HND) and when those of all heads alternate
// (NHD).
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <random>

#include "cases.h"
#include "tenon/cache/cache_plan.h"
#include "tenon/ops/probe.h"

namespace tenon::bench {
namespace {

struct Keys {
  KvLayout layout = KvLayout::kHnd;
  int64_t kv_heads = 0;
  int64_t row_bytes = 0;  // of one head
  int64_t page_tokens = 0;
  std::vector<int32_t> pages;  // in the order in which they are read

  int64_t page_bytes() const { return page_tokens * kv_heads * row_bytes; }
  int64_t bytes() const { return static_cast<int64_t>(pages.size()) * page_bytes(); }
};

// The sum of all words of one head's rows.
uint64_t SumHead(const Keys& keys, const std::byte* base, int64_t head) {
  const bool together = keys.layout == KvLayout::kHnd;
  const int64_t slot_stride = together ? keys.row_bytes : keys.kv_heads * keys.row_bytes;
  const int64_t head_stride = together ? keys.page_tokens * keys.row_bytes : keys.row_bytes;
  const int64_t words = keys.row_bytes / int64_t{sizeof(uint64_t)};
  uint64_t sum = 0;
  for (const int32_t page : keys.pages) {
    const std::byte* row = base + page * keys.page_bytes() + head * head_stride;
    for (int64_t slot = 0; slot < keys.page_tokens; ++slot, row += slot_stride) {
      const auto* word = reinterpret_cast<const uint64_t*>(row);
      for (int64_t i = 0; i < words; ++i) sum += word[i];
    }
  }
  return sum;
}

Case MakeCase(const Setup& setup, KvLayout layout, int64_t kv_heads, int64_t head_dim) {
  auto keys = std::make_shared<Keys>();
  keys->layout = layout;
  keys->kv_heads = kv_heads;
  keys->row_bytes = RowBytes(DType::kBF16, head_dim);
  keys->page_tokens = PageTokensFor(2 * kv_heads * keys->row_bytes);  // with the values
  keys->pages.resize(static_cast<size_t>(setup.pool->size() / keys->page_bytes()));
  std::iota(keys->pages.begin(), keys->pages.end(), 0);
  std::shuffle(keys->pages.begin(), keys->pages.end(), std::mt19937(1));
  std::memset(setup.pool->data(), 1, static_cast<size_t>(setup.pool->size()));
  auto total = std::make_shared<std::atomic<uint64_t>>(0);
  Case work{.kernel = fmt::format("{}, pages of {}", NameOf(layout), keys->page_tokens),
            .unit = "head",
            .units = kv_heads,
            .bytes = static_cast<double>(keys->bytes())};
  const std::byte* base = setup.pool->data();
  work.pass = [keys, total, base, team = setup.team] {
    std::atomic<int64_t> next{0};
    team->Run([&](int) {
      for (int64_t head = next++; head < keys->kv_heads; head = next++)
        *total += SumHead(*keys, base, head);
    });
  };
  work.read = [keys, base, &kernels = *setup.kernels, &team = *setup.team] {
    return SecondsToRead(kernels, team, base, keys->bytes());
  };
  return work;
}

}  // namespace

void AddKvLayoutCases(std::vector<CaseSpec>& cases) {
  struct Heads {
    int64_t kv_heads, head_dim;
  };
  // SmolLM2-135M, Llama-3.2-1B, Llama-3.1-8B, and as many kv heads as heads.
  for (const Heads& h : {Heads{3, 64}, Heads{8, 64}, Heads{8, 128}, Heads{32, 128}}) {
    for (const KvLayout layout : {KvLayout::kHnd, KvLayout::kNhd}) {
      cases.push_back({"kv_pages",
                       fmt::format("{}, {} kv heads of {}", NameOf(layout), h.kv_heads, h.head_dim),
                       [layout, h](const Setup& setup) {
                         return MakeCase(setup, layout, h.kv_heads, h.head_dim);
                       }});
    }
  }
}

}  // namespace tenon::bench
