// tenon_microbench: ops of Tenon against what this machine can do at most at that moment.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "arguments.h"
#include "cases.h"
#include "tenon/base/machine_profile.h"
#include "tenon/base/text.h"
#include "tenon/ops/kernel_choice.h"

namespace tenon::bench {
namespace {

std::vector<CaseSpec> Chosen(const Arguments& a) {
  std::vector<CaseSpec> cases;
  AddMatmulCases(cases);
  AddAttentionCases(cases);
  AddKvLayoutCases(cases);
  AddTeamCases(cases);
  std::erase_if(cases, [&](const CaseSpec& c) {
    const bool in_group =
        a.groups.empty() || std::find(a.groups.begin(), a.groups.end(), c.group) != a.groups.end();
    return !in_group || c.name.find(a.filter) == std::string::npos;
  });
  return cases;
}

Result<Isa> IsaNamed(const std::string& name, const MachineProfile& machine) {
  if (name == "auto") return machine.isa;
  TN_ASSIGN_OR_RETURN(const Isa isa, ParseIsa(name));
  if (isa > machine.isa) {
    return Unavailable(
        fmt::format("--isa {}: this machine has {} at most", name, NameOf(machine.isa)));
  }
  return isa;
}

Status Run(const Arguments& a) {
  const MachineProfile machine = DetectMachine();
  const std::vector<CaseSpec> cases = Chosen(a);
  std::vector<int> sizes = a.threads;
  if (sizes.empty()) sizes = machine.cores > 1 ? std::vector{1, machine.cores} : std::vector{1};
  TN_ASSIGN_OR_RETURN(Buffer pool, Buffer::Allocate(a.megabytes << 20, "weights to walk through"));
  TN_ASSIGN_OR_RETURN(Buffer packed,
                      Buffer::AllocateForStreams(a.megabytes << 20, "packed weights"));
  std::vector<Row> rows;
  for (const std::string& name : a.isas) {
    TN_ASSIGN_OR_RETURN(const Isa isa, IsaNamed(name, machine));
    for (const int threads : sizes) {
      ThreadTeam team(threads);
      const Setup setup{&KernelsFor(isa), &team, &pool, &packed, a.rounds};
      for (const CaseSpec& c : cases) {
        if (c.exists && !c.exists(*setup.kernels)) continue;
        fmt::print(stderr, "{} {}, {} threads\n", c.group, c.name, threads);
        rows.push_back(Measure(c, setup));
      }
    }
  }
  if (a.format == "json") {
    fmt::print("{}\n", ToJson(rows).Dump(2));
  } else {
    PrintMarkdown(rows);
  }
  return {};
}

}  // namespace
}  // namespace tenon::bench

int main(int argc, char** argv) {
  const tenon::bench::Parsed parsed = tenon::bench::ParseArguments(argc, argv);
  if (parsed.exit_code) return *parsed.exit_code;
  if (parsed.arguments.list) {
    for (const auto& c : tenon::bench::Chosen(parsed.arguments)) {
      fmt::print("{} {}\n", c.group, c.name);
    }
    return 0;
  }
  const tenon::Status status = tenon::bench::Run(parsed.arguments);
  if (!status.ok()) fmt::print(stderr, "tenon_microbench: {}\n", status.message());
  return tenon::ExitCodeOf(status.code());
}
