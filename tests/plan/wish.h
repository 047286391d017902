// What the tests of plan and engine ask for, and the one place that turns it into the plan's
// options, as a command line would. 0 and "auto": nobody asked.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "support/paths.h"
#include "tenon/plan/options.h"
#include "tenon/plan/plan.h"
#include "tenon/zoo/zoo.h"

namespace tenon::test {

struct Wish {
  std::string compute = "fp32";  // as the goldens were made
  std::string weights = "auto";
  std::string backend = "auto";
  std::string kv_dtype = "auto";
  std::string kv_fraction = "auto";
  std::string isa = "auto";
  int64_t max_seq_len = 0;
  int64_t kv_tokens = 0;
  int64_t max_sequences = 0;
  int64_t page_tokens = 0;
  int64_t memory_bytes = 0;
  int64_t prefill_chunk = 512;
  int64_t threads = 1;
  int64_t mla_context_chunk = 1024;
  std::string allowed = {};  // downgrades, with commas
  std::string target = "auto";
  bool deterministic = false;
  std::string jit = "off";  // compiling takes a second, and writes to the user's cache
};

inline Result<EngineOptions> OptionsFor(const Wish& wish) {
  const auto number = [](int64_t n) { return n == 0 ? std::string("auto") : std::to_string(n); };
  const std::pair<const char*, std::string> rows[] = {
      {"compute", wish.compute},
      {"weights", wish.weights},
      {"attn-backend", wish.backend},
      {"kv-dtype", wish.kv_dtype},
      {"kv-fraction", wish.kv_fraction},
      {"isa", wish.isa},
      {"max-seq-len", number(wish.max_seq_len)},
      {"kv-tokens", number(wish.kv_tokens)},
      {"max-sequences", number(wish.max_sequences)},
      {"page-tokens", number(wish.page_tokens)},
      {"memory", number(wish.memory_bytes)},
      {"prefill-chunk", std::to_string(wish.prefill_chunk)},
      {"mla-context-chunk", std::to_string(wish.mla_context_chunk)},
      {"threads", number(wish.threads)},
      {"allow-downgrade", wish.allowed},
      {"target", wish.target},
      {"deterministic", wish.deterministic ? "true" : "auto"},
      {"attn-jit", wish.jit}};
  OptionInputs inputs;
  for (const auto& [name, value] : rows) {
    if (value != "auto" && !value.empty()) inputs.command_line.push_back({name, value});
  }
  return EngineOptionTable().Resolve(inputs);
}

inline Result<std::unique_ptr<PlannedModel>> PlanPath(const std::string& path,
                                                      const Wish& wish = {}) {
  const auto registry = MakeRegistry();
  TN_ASSIGN_OR_RETURN(EngineOptions options, OptionsFor(wish));
  return PlanModel(path, std::move(options), *registry);
}
// A model of tests/goldens.
inline Result<std::unique_ptr<PlannedModel>> PlanGolden(const std::string& name,
                                                        const Wish& wish = {}) {
  return PlanPath(DataPath("goldens/" + name), wish);
}

}  // namespace tenon::test
