#include "tenon/engine/benchmark.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "tenon/ops/probe.h"
#include "tenon/tensor/buffer.h"

namespace tenon {
namespace {

// Larger than any cache, so that reading it is reading memory.
constexpr int64_t kProbeBytes = int64_t{512} << 20;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0.0 : values[values.size() / 2];
}

// Weights that one decode step reads, and operations of its matrices.
struct StepWork {
  double bytes = 0;
  double operations = 0;
};
StepWork WorkOf(const PlannedModel& plan) {
  StepWork work;
  for (const StepSummary& step : plan.steps) {
    if (step.name != "decode") continue;
    work.bytes = static_cast<double>(step.weight_bytes);
    work.operations = static_cast<double>(step.operations);
  }
  return work;
}

class Benchmark {
 public:
  Benchmark(ModelRunner& runner, const BenchmarkOptions& options, Buffer probe)
      : runner_(runner),
        options_(options),
        probe_(std::move(probe)),
        team_(runner.plan().threads),
        work_(WorkOf(runner.plan())) {
    std::fill_n(probe_.data(), probe_.size(),
                std::byte{1});  // or every page would be the zero page
  }

  Result<BenchmarkReport> Run() {
    for (const int64_t depth : options_.depths) {
      for (const int64_t n : options_.prompts) TN_RETURN_IF_ERROR(Add("pp", n, depth));
      for (const int64_t n : options_.generations) TN_RETURN_IF_ERROR(Add("tg", n, depth));
    }
    report_.read_bytes_per_second = Median(read_);
    report_.multiplies_per_second = Median(multiply_);
    return std::move(report_);
  }

 private:
  // Any ids do: every token costs the same. They differ, so that no cache line is favoured.
  std::vector<int32_t> Ids(int64_t count) const {
    std::vector<int32_t> ids(static_cast<size_t>(count));
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int32_t>((i * 7919 + 1) % static_cast<size_t>(runner_.vocab()));
    }
    return ids;
  }
  Status Generate(std::span<const int32_t> ids) {
    for (const int32_t& id : ids) {
      TN_RETURN_IF_ERROR(runner_.Extend({&id, 1}, WantLogits::kLast));
    }
    return {};
  }
  Result<double> SecondsOf(bool is_prompt, int64_t count, int64_t depth) {
    TN_RETURN_IF_ERROR(runner_.Reset());
    // A step of one token is a decode step only after another.
    if (depth > 0) TN_RETURN_IF_ERROR(runner_.Extend(Ids(depth), WantLogits::kNone));
    const std::vector<int32_t> ids = Ids(count);
    const auto begin = std::chrono::steady_clock::now();
    TN_RETURN_IF_ERROR(is_prompt ? runner_.Extend(ids, WantLogits::kLast) : Generate(ids));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  Status Add(const char* kind, int64_t count, int64_t depth) {
    if (count <= 0) return {};
    const bool is_prompt = kind[0] == 'p';
    BenchmarkRow row;
    row.name = fmt::format("{}{}{}", kind, count, depth > 0 ? fmt::format(" @ d{}", depth) : "");
    row.tokens = count;
    row.depth = depth;
    TN_RETURN_IF_ERROR(SecondsOf(is_prompt, count, depth).status(), row.name);  // warms up
    std::vector<double> ratios;
    for (int64_t i = 0; i < options_.repetitions; ++i) {
      TN_ASSIGN_OR_RETURN(const double seconds, SecondsOf(is_prompt, count, depth));
      row.seconds.push_back(seconds);
      ratios.push_back(LimitSeconds(is_prompt, count) / seconds);
    }
    const auto rate = [&](double seconds) { return static_cast<double>(count) / seconds; };
    row.tokens_per_second = rate(Median(row.seconds));
    row.least = rate(*std::max_element(row.seconds.begin(), row.seconds.end()));
    row.most = rate(*std::min_element(row.seconds.begin(), row.seconds.end()));
    row.of_limit = Median(ratios);
    report_.rows.push_back(std::move(row));
    return {};
  }
  // Measured now: in how many seconds the machine could do it at best.
  double LimitSeconds(bool is_prompt, int64_t count) {
    const KernelTable& kernels = *runner_.plan().kernels;
    if (is_prompt) {
      multiply_.push_back(OperationsPerSecond(kernels, team_));
      return work_.operations * static_cast<double>(count) / multiply_.back();
    }
    read_.push_back(static_cast<double>(kProbeBytes) /
                    SecondsToRead(kernels, team_, probe_.data(), kProbeBytes));
    return work_.bytes * static_cast<double>(count) / read_.back();
  }

  ModelRunner& runner_;
  const BenchmarkOptions& options_;
  Buffer probe_;
  ThreadTeam team_;
  StepWork work_;
  std::vector<double> read_, multiply_;
  BenchmarkReport report_;
};

}  // namespace

Result<BenchmarkReport> RunBenchmark(ModelRunner& runner, const BenchmarkOptions& options) {
  if (runner.plan().kind() != ModelKind::kCausalLm) {
    return UsageError(fmt::format("{}: kind = {}, bench measures {}; fix: a causal language model",
                                  runner.plan().checkpoint->path(), NameOf(runner.plan().kind()),
                                  NameOf(ModelKind::kCausalLm)));
  }
  TN_ASSIGN_OR_RETURN(Buffer probe, Buffer::Allocate(kProbeBytes, "bandwidth probe"));
  return Benchmark(runner, options, std::move(probe)).Run();
}

}  // namespace tenon
