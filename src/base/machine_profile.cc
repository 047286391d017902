#include "tenon/base/machine_profile.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "tenon/base/file.h"
#include "tenon/base/text.h"

namespace tenon {
namespace {

constexpr Isa kIsas[] = {Isa::kReference, Isa::kBaseline,       Isa::kAvx2,
                         Isa::kAvx512,    Isa::kAvx512Bf16Vnni, Isa::kAmx};

// A small system file's text, or nothing.
std::optional<std::string> SystemText(const std::string& path) {
  Result<std::string> text = ReadFile(path);
  if (!text.ok()) return std::nullopt;
  return *std::move(text);
}

std::string CpuModel() {
  const std::string info = SystemText("/proc/cpuinfo").value_or("");
  for (const std::string_view line : Split(info, '\n')) {
    if (line.starts_with("model name")) return std::string(Trim(line.substr(line.find(':') + 1)));
  }
  return "unknown CPU";
}

#if defined(__x86_64__)
// The CPU has bf16 tiles and the system lets this process use them (Linux asks for a request, for
// tiles make a thread's saved state 8 KiB larger).
bool CanUseTiles() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned kAmxBf16 = 1u << 22;
  constexpr unsigned kAmxTile = 1u << 24;
  if ((edx & kAmxBf16) == 0 || (edx & kAmxTile) == 0) return false;
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

Isa BestIsa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq");
  const bool bf16_vnni = avx512 && __builtin_cpu_supports("avx512vnni") &&
                         __builtin_cpu_supports("avx512bf16") &&
                         __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("gfni");
  if (bf16_vnni && CanUseTiles()) return Isa::kAmx;
  if (bf16_vnni) return Isa::kAvx512Bf16Vnni;
  if (avx512) return Isa::kAvx512;
  if (avx2) return Isa::kAvx2;
#endif
  return Isa::kBaseline;
}

// The folder of this process's cgroup (version 2), "" when there is none.
std::string CgroupFolder() {
  const std::string table = SystemText("/proc/self/cgroup").value_or("");
  for (const std::string_view line : Split(table, '\n')) {
    if (line.starts_with("0::")) return "/sys/fs/cgroup" + std::string(line.substr(3));
  }
  return "";
}

int UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = std::max(1, CPU_COUNT(&set));
  // "max 100000" or "150000 100000": quota and period in microseconds.
  if (const auto quota = SystemText(CgroupFolder() + "/cpu.max")) {
    const auto parts = Split(Trim(*quota), ' ');
    if (parts.size() == 2 && parts[0] != "max") {
      const double share = std::atof(std::string(parts[0]).c_str()) /
                           std::max(1.0, std::atof(std::string(parts[1]).c_str()));
      cores = std::clamp(static_cast<int>(std::lround(std::ceil(share))), 1, cores);
    }
  }
  return cores;
}

int64_t MeminfoBytes(std::string_view key) {
  const std::string info = SystemText("/proc/meminfo").value_or("");
  for (const std::string_view line : Split(info, '\n')) {
    if (line.starts_with(key))
      return std::atoll(std::string(line.substr(key.size() + 1)).c_str()) * 1024;
  }
  return 0;
}

int64_t CgroupBytes(const std::string& file) {
  const auto text = SystemText(CgroupFolder() + file);
  if (!text || text->starts_with("max")) return std::numeric_limits<int64_t>::max();
  return std::atoll(text->c_str());
}

int64_t CacheBytes(int sysconf_name) { return std::max<int64_t>(0, ::sysconf(sysconf_name)); }

}  // namespace

std::string_view NameOf(Isa isa) {
  switch (isa) {
    case Isa::kReference:
      return "reference";
    case Isa::kBaseline:
      return "baseline";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16Vnni:
      return "avx512_bf16_vnni";
    case Isa::kAmx:
      return "amx";
  }
  return "unknown";
}

Result<Isa> ParseIsa(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Isa isa : kIsas) {
    if (EqualsIgnoreCase(name, NameOf(isa))) return isa;
    names.push_back(NameOf(isa));
  }
  return UsageError(fmt::format("isa = '{}' is unknown; allowed: {}", name, Join(names, ", ")));
}

MachineProfile DetectMachine() {
  MachineProfile machine;
  machine.cpu = CpuModel();
  machine.isa = BestIsa();
  machine.cores = UsableCores();
  const int64_t physical = MeminfoBytes("MemTotal:");
  const int64_t limit = CgroupBytes("/memory.max");
  machine.memory_bytes = std::min(physical, limit);
  machine.available_bytes = MeminfoBytes("MemAvailable:");
  if (limit < physical) {
    const int64_t used = CgroupBytes("/memory.current");
    machine.available_bytes = std::min(machine.available_bytes, std::max<int64_t>(0, limit - used));
  }
  machine.l2_bytes = CacheBytes(_SC_LEVEL2_CACHE_SIZE);
  machine.l3_bytes = CacheBytes(_SC_LEVEL3_CACHE_SIZE);
  return machine;
}

}  // namespace tenon
