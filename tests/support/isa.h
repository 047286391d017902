// The instruction set that a test binary exercises: TENON_TEST_ISA, else reference. ctest runs the
// kernel-bound tests once for each; on a machine without it test_main says so and passes.
#pragma once

#include "tenon/base/env.h"
#include "tenon/base/machine_profile.h"

namespace tenon::test {

inline Isa TestIsa() {
  const auto name = GetEnv("TENON_TEST_ISA");
  if (!name) return Isa::kReference;
  const Result<Isa> isa = ParseIsa(*name);
  TN_CHECK(isa.ok(), "TENON_TEST_ISA names an instruction set");
  return *isa;
}

}  // namespace tenon::test
