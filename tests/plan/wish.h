// What the tests of plan and engine ask for, and the one place that turns it into the plan's
// options. Fields that stay as they are were asked for by nobody.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "support/paths.h"
#include "tenon/plan/plan.h"
#include "tenon/zoo/zoo.h"

namespace tenon::test {

struct Wish {
  std::string compute = "auto";
  std::string backend = "auto";
  std::string kv_dtype = "auto";
  std::string isa = "auto";
  int64_t max_seq_len = 0;
  int64_t page_tokens = 0;
  int64_t memory_bytes = 0;
  int64_t prefill_chunk = 512;
  int64_t threads = 1;
  int64_t mla_context_chunk = 1024;
  std::set<std::string> allowed = {};
};

inline PlanOptions OptionsFor(const Wish& wish) {
  const auto sourced = [](auto value, auto unset, const char* option) {
    return Sourced<decltype(unset)>{
        value, value == unset ? Origin{} : Origin{Origin::Kind::kUser, option}};
  };
  const std::string automatic = "auto";
  PlanOptions options;
  options.compute = sourced(wish.compute, automatic, "--compute");
  options.attention_backend = sourced(wish.backend, automatic, "--attn-backend");
  options.kv_dtype = sourced(wish.kv_dtype, automatic, "--kv-dtype");
  options.isa = sourced(wish.isa, automatic, "--isa");
  options.max_seq_len = sourced(wish.max_seq_len, int64_t{0}, "--max-seq-len");
  options.page_tokens = sourced(wish.page_tokens, int64_t{0}, "--page-tokens");
  options.memory_bytes = sourced(wish.memory_bytes, int64_t{0}, "--memory");
  options.prefill_chunk = sourced(wish.prefill_chunk, int64_t{512}, "--prefill-chunk");
  options.threads = sourced(wish.threads, int64_t{0}, "--threads");
  options.mla_context_chunk = wish.mla_context_chunk;
  options.allowed_downgrades = wish.allowed;
  return options;
}

inline Result<std::unique_ptr<PlannedModel>> PlanPath(const std::string& path,
                                                      const Wish& wish = {}) {
  const auto registry = MakeRegistry();
  return PlanModel(path, OptionsFor(wish), *registry);
}
// A model of tests/goldens.
inline Result<std::unique_ptr<PlannedModel>> PlanGolden(const std::string& name,
                                                        const Wish& wish = {}) {
  return PlanPath(DataPath("goldens/" + name), wish);
}

}  // namespace tenon::test
