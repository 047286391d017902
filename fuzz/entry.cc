// libFuzzer's entry point: one binary for each target of targets.inc, whose function the build
// names.
#include <cstddef>
#include <cstdint>

#include "targets.h"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tenon::fuzz::TN_FUZZ_FUNCTION({reinterpret_cast<const char*>(data), size});
  return 0;
}
