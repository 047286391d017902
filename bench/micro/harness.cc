#include "harness.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "tenon/ops/kernel_choice.h"
#include "tenon/ops/probe.h"

namespace tenon::bench {
namespace {

double SecondsOf(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// One round: seconds of the pass, and of what the machine could do at best meanwhile.
struct Round {
  double pass = 0;
  double read = 0;
  double multiply = 0;
};

class Rounds {
 public:
  Rounds(const Case& work, const Setup& setup) : work_(work), setup_(setup) {}

  // Limits come first in even rounds and last in odd ones.
  Round Next() {
    Round round;
    const bool limits_first = count_++ % 2 == 0;
    if (limits_first && work_.bytes > 0) round.read = work_.read();
    const double before = MultiplySeconds();
    round.pass = SecondsOf(work_.pass);
    round.multiply = (before + MultiplySeconds()) / 2;
    if (!limits_first && work_.bytes > 0) round.read = work_.read();
    return round;
  }

 private:
  double MultiplySeconds() const {
    if (work_.operations <= 0) return 0;
    return work_.operations / OperationsPerSecond(*setup_.kernels, *setup_.team);
  }

  const Case& work_;
  const Setup& setup_;
  int64_t count_ = 0;
};

std::string Share(const Spread& share) {
  if (share.median <= 0) return "-";
  return fmt::format("{:.2f} [{:.2f}-{:.2f}]", share.median, share.least, share.most);
}

std::string Rate(double rate) { return rate <= 0 ? "-" : fmt::format("{:.1f}", rate); }

Json SpreadJson(const Spread& spread) {
  Json out;
  out.Set("median", spread.median);
  out.Set("least", spread.least);
  out.Set("most", spread.most);
  return out;
}

}  // namespace

Spread SpreadOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.front(), values.back()};
}

Row Measure(const CaseSpec& spec, const Setup& setup) {
  const Case work = spec.make(setup);
  work.pass();  // pages and caches
  Rounds rounds(work, setup);
  std::vector<double> microseconds, of_read, of_multiply;
  for (int64_t i = 0; i < setup.rounds; ++i) {
    const Round round = rounds.Next();
    microseconds.push_back(round.pass * 1e6 / static_cast<double>(work.units));
    if (work.bytes > 0) of_read.push_back(round.read / round.pass);
    if (work.operations > 0) of_multiply.push_back(round.multiply / round.pass);
  }
  Row row{.group = spec.group,
          .name = spec.name,
          .isa = std::string(NameOf(*setup.kernels)),
          .kernel = work.kernel,
          .unit = work.unit,
          .threads = setup.team->threads(),
          .microseconds = SpreadOf(microseconds),
          .of_read = SpreadOf(of_read),
          .of_multiply = SpreadOf(of_multiply)};
  const double nanoseconds = row.microseconds.median * 1e3 * static_cast<double>(work.units);
  row.gigabytes = work.bytes / nanoseconds;
  row.gigaoperations = work.operations / nanoseconds;
  return row;
}

void PrintMarkdown(const std::vector<Row>& rows) {
  fmt::print(
      "| group | case | kernel | threads | us per unit | GB/s | G op/s | of R | of P |\n"
      "|---|---|---|---|---|---|---|---|---|\n");
  for (const Row& row : rows) {
    fmt::print("| {} | {} | {} | {} | {:.4g} / {} | {} | {} | {} | {} |\n", row.group, row.name,
               row.kernel, row.threads, row.microseconds.median, row.unit, Rate(row.gigabytes),
               Rate(row.gigaoperations), Share(row.of_read), Share(row.of_multiply));
  }
}

Json ToJson(const std::vector<Row>& rows) {
  Json::Array out;
  for (const Row& row : rows) {
    Json entry;
    entry.Set("group", row.group);
    entry.Set("case", row.name);
    entry.Set("isa", row.isa);
    entry.Set("kernel", row.kernel);
    entry.Set("threads", row.threads);
    entry.Set("unit", row.unit);
    entry.Set("microseconds", SpreadJson(row.microseconds));
    entry.Set("gigabytes_per_second", row.gigabytes);
    entry.Set("gigaoperations_per_second", row.gigaoperations);
    entry.Set("of_read", SpreadJson(row.of_read));
    entry.Set("of_multiply", SpreadJson(row.of_multiply));
    out.push_back(std::move(entry));
  }
  return out;
}

}  // namespace tenon::bench
