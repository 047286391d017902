// Benchmark: how fast a loaded model reads prompts and generates, by llama-bench's definitions, and
// what the machine's limits were at that moment. Not a test: nothing passes or fails. One at a
// time; not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/engine/model_runner.h"

namespace tenon {

struct BenchmarkOptions {
  std::vector<int64_t> prompts = {512};      // pp N: one prompt of N tokens, logits of the last
  std::vector<int64_t> generations = {128};  // tg N: N single-token steps, no sampling
  std::vector<int64_t> depths = {0};         // tokens in the cache before either
  // tg N bB: B sequences at once, N tokens each (BatchEngine, greedy); 1: one, without sampling.
  std::vector<int64_t> batches = {1};
  int64_t repetitions = 5;
};

struct BenchmarkRow {
  std::string name;  // "pp512", "tg128 @ d4096"
  int64_t tokens = 0;
  int64_t depth = 0;
  int64_t batch = 1;
  std::vector<double> seconds;   // [repetitions]
  double tokens_per_second = 0;  // of the median
  double least = 0, most = 0;    // tokens per second
  // Of the limit measured in the same repetitions: bytes of weights and cache against reading
  // (generations), multiply-adds of the matrices against multiplying (prompts).
  double of_limit = 0;
};

struct BenchmarkReport {
  std::vector<BenchmarkRow> rows;
  double read_bytes_per_second = 0;  // of all threads together, median
  double multiplies_per_second = 0;  // operations; a multiply-add is two
};

// Errors: kUsage for a shape that the context cannot hold, kDoesNotFit for more sequences than the
// plan has.
Result<BenchmarkReport> RunBenchmark(ModelRunner& runner, const BenchmarkOptions& options);

}  // namespace tenon
