// Reading the goldens: tests/goldens/<name>/golden.{json,safetensors}. Test support; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/checkpoint/checkpoint.h"

namespace tenon::test {

struct GoldenPrompt {
  std::vector<int32_t> input_ids;
  std::vector<int32_t> decoder_input_ids;  // encoder-decoder only
  std::vector<float> logits;               // [rows, vocab]
  std::vector<int32_t> greedy;             // empty for encoders
  std::vector<float> greedy_margin;
};

class Golden {
 public:
  // Fails the test (and returns an empty golden) when the files cannot be read.
  explicit Golden(const std::string& directory);
  std::vector<GoldenPrompt> prompts;
  double atol = 0;
  double rtol = 0;
  bool HasFeature(const std::string& feature) const;
  // A tensor of the file as floats; empty when absent.
  std::vector<float> Floats(const std::string& name) const;

 private:
  std::vector<int32_t> Ints(const std::string& name) const;
  std::unique_ptr<Checkpoint> file_;
  std::vector<std::string> features_;
};

// The largest |a - b| - rtol * |b|, and where.
struct Difference {
  double worst = 0;
  size_t index = 0;
};
Difference Compare(std::span<const float> a, std::span<const float> b, double rtol);

}  // namespace tenon::test
