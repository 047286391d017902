// Loaded goldens for the tests of this folder. One thread.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "plan/wish.h"
#include "support/golden.h"
#include "tenon/engine/model_runner.h"

namespace tenon::test {

// Fails the test's process when the golden cannot be loaded: it is part of the repository.
inline std::unique_ptr<ModelRunner> RunnerFor(const std::string& golden, const Wish& wish = {}) {
  auto plan = PlanGolden(golden, wish);
  TN_CHECK(plan.ok(), plan.message().c_str());
  auto runner = ModelRunner::Load(*std::move(plan));
  TN_CHECK(runner.ok(), runner.message().c_str());
  return *std::move(runner);
}

inline std::vector<float> Logits(const ModelRunner& runner) {
  return {runner.logits().begin(), runner.logits().end()};
}

}  // namespace tenon::test
