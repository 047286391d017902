#include "arguments.h"

#include <CLI/CLI.hpp>

namespace tenon::bench {
namespace {

void Define(CLI::App& app, Arguments& a) {
  app.add_option("--isa", a.isas, "Instruction sets: avx2,avx512; auto: the machine's best")
      ->delimiter(',')
      ->envname("TENON_ISA");
  app.add_option("--threads", a.threads, "Sizes of the team: 1,2; default: 1 and all cores")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024))
      ->envname("TENON_THREADS");
  app.add_option("--groups", a.groups, "Only these: gemv,narrow,gemm,decode,prefill,kv_pages,team")
      ->delimiter(',')
      ->check(CLI::IsMember({"gemv", "narrow", "gemm", "decode", "prefill", "kv_pages", "team"}));
  app.add_option("--filter", a.filter, "Only cases whose name contains this text");
  app.add_option("--rounds", a.rounds, "Interleaved rounds of each case")
      ->check(CLI::Range(1, 1000));
  app.add_option("--megabytes", a.megabytes, "Weights and cached rows to walk through")
      ->check(CLI::Range(64, 65536));
  app.add_option("-o", a.format, "Output: md, json")->check(CLI::IsMember({"md", "json"}));
  app.add_flag("--list", a.list, "Print the cases and stop");
}

}  // namespace

Parsed ParseArguments(int argc, char** argv) {
  CLI::App app("Tenon's ops against reading (R) and multiplying (P), measured in the same rounds",
               "tenon_microbench");
  Parsed parsed;
  Define(app, parsed.arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    parsed.exit_code = app.exit(error) == 0 ? 0 : 2;
  }
  return parsed;
}

}  // namespace tenon::bench
