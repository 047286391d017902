// One measured piece of work and its interleaved measuring: in every round the limits (reading the
// same bytes, multiplying in registers) are measured next to the work itself, in alternating order,
// and what counts is the median of the rounds' ratios. Nothing passes or fails. One thread; the
// work runs on the setup's team.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/base/json.h"
#include "tenon/base/thread_team.h"
#include "tenon/tensor/buffer.h"

namespace tenon {
struct KernelTable;
}

namespace tenon::bench {

// What all cases of one run share.
struct Setup {
  const KernelTable* kernels = nullptr;
  ThreadTeam* team = nullptr;
  Buffer* pool = nullptr;    // for weights: larger than the caches, in small pages as of a file
  Buffer* packed = nullptr;  // the same in large pages, as packed weights are held
  int64_t rounds = 7;
};

// A pass does `units` units of work, such as products with one matrix each.
struct Case {
  std::string kernel;     // as plans print it
  std::string unit;       // "matrix"
  int64_t units = 1;      // of a pass
  double bytes = 0;       // that a pass reads; 0: reading is not its limit
  double operations = 0;  // of a pass; a multiply-add is two; 0: multiplying is not its limit
  std::function<void()> pass = {};
  std::function<double()> read = {};  // seconds for reading the same bytes; with bytes
};

struct CaseSpec {
  std::string group;  // "gemv"
  std::string name;   // "q4_0 2048x8192"
  std::function<Case(const Setup&)> make;
  std::function<bool(const KernelTable&)> exists = {};  // empty: with every table
};

// Median of the rounds, least and most.
struct Spread {
  double median = 0, least = 0, most = 0;
};
Spread SpreadOf(std::vector<double> values);

struct Row {
  std::string group, name, isa, kernel, unit;
  int threads = 1;
  Spread microseconds;        // of one unit
  double gigabytes = 0;       // per second, of the median
  double gigaoperations = 0;  // per second, of the median
  Spread of_read;             // share of R; 0: no limit
  Spread of_multiply;         // share of P
};

Row Measure(const CaseSpec& spec, const Setup& setup);

void PrintMarkdown(const std::vector<Row>& rows);
Json ToJson(const std::vector<Row>& rows);

}  // namespace tenon::bench
