// What selection knows about a machine: ISA, cores, memory. The real one is one profile; `--isa
// avx2
// --memory 8G` makes another, so that what-if is the same code. Nothing else reads CPUID, /proc or
// cgroups. A value; thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tenon/base/status.h"

namespace tenon {

// Each level includes those before it.
// kAvx512Bf16Vnni: also VBMI and GFNI (Zen 4, Ice Lake's successors). kAmx: also the bf16 tiles.
enum class Isa { kReference, kBaseline, kAvx2, kAvx512, kAvx512Bf16Vnni, kAmx };
std::string_view NameOf(Isa isa);
// Error lists the valid names.
Result<Isa> ParseIsa(std::string_view name);

struct MachineProfile {
  std::string cpu;              // model name, for reports
  Isa isa = Isa::kBaseline;     // the best that this CPU and OS support
  int cores = 1;                // usable: cpuset and cgroup quota honoured
  int64_t memory_bytes = 0;     // limit for this process: cgroup or physical
  int64_t available_bytes = 0;  // free now, within the limit
  int64_t l2_bytes = 0;         // per core; 0 = unknown
  int64_t l3_bytes = 0;
};

// Reads the machine this runs on. Never fails: what cannot be read keeps a safe default.
MachineProfile DetectMachine();

}  // namespace tenon
