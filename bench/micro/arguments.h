// The command line of tenon_microbench. Pure but for printing help and mistakes.
// Environment: TENON_ISA and TENON_THREADS, as everywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tenon::bench {

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

struct Parsed {
  Arguments arguments;
  std::optional<int> exit_code;  // help was asked for, or the line is wrong
};
Parsed ParseArguments(int argc, char** argv);

}  // namespace tenon::bench
