// tenon_microbench: ops of Tenon against what this machine can do at most at that moment.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "cases.h"
#include "tenon/base/machine_profile.h"
#include "tenon/base/text.h"
#include "tenon/ops/kernel_choice.h"

namespace tenon::bench {
namespace {

struct Arguments {
  std::vector<std::string> isas = {"auto"};
  std::vector<int> threads;  // empty: one, then all cores
  std::vector<std::string> groups;
  std::string filter;
  int64_t rounds = 7;
  int64_t megabytes = 1024;
  std::string format = "md";
  bool list = false;
};

void Define(CLI::App& app, Arguments& a) {
  app.add_option("--isa", a.isas, "Instruction sets: avx2,avx512; auto: the machine's best")
      ->delimiter(',')
      ->envname("TENON_ISA");
  app.add_option("--threads", a.threads, "Sizes of the team: 1,2; default: 1 and all cores")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024))
      ->envname("TENON_THREADS");
  app.add_option("--groups", a.groups, "Only these: gemv,narrow,gemm,decode,prefill,team")
      ->delimiter(',')
      ->check(CLI::IsMember({"gemv", "narrow", "gemm", "decode", "prefill", "team"}));
  app.add_option("--filter", a.filter, "Only cases whose name contains this text");
  app.add_option("--rounds", a.rounds, "Interleaved rounds of each case")
      ->check(CLI::Range(1, 1000));
  app.add_option("--megabytes", a.megabytes, "Weights and cached rows to walk through")
      ->check(CLI::Range(64, 65536));
  app.add_option("-o", a.format, "Output: md, json")->check(CLI::IsMember({"md", "json"}));
  app.add_flag("--list", a.list, "Print the cases and stop");
}

std::vector<CaseSpec> Chosen(const Arguments& a) {
  std::vector<CaseSpec> cases;
  AddMatmulCases(cases);
  AddAttentionCases(cases);
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
  std::vector<Row> rows;
  for (const std::string& name : a.isas) {
    TN_ASSIGN_OR_RETURN(const Isa isa, IsaNamed(name, machine));
    for (const int threads : sizes) {
      ThreadTeam team(threads);
      const Setup setup{&KernelsFor(isa), &team, &pool, a.rounds};
      for (const CaseSpec& c : cases) {
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
  using tenon::bench::Arguments;
  CLI::App app("Tenon's ops against reading (R) and multiplying (P), measured in the same rounds",
               "tenon_microbench");
  Arguments arguments;
  tenon::bench::Define(app, arguments);
  CLI11_PARSE(app, argc, argv);
  if (arguments.list) {
    for (const auto& c : tenon::bench::Chosen(arguments)) fmt::print("{} {}\n", c.group, c.name);
    return 0;
  }
  const tenon::Status status = tenon::bench::Run(arguments);
  if (!status.ok()) fmt::print(stderr, "tenon_microbench: {}\n", status.message());
  return tenon::ExitCodeOf(status.code());
}
