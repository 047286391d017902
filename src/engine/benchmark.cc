#include "tenon/engine/benchmark.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "tenon/engine/batch_engine.h"
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
      for (const int64_t n : options_.generations) {
        for (const int64_t batch : options_.batches) TN_RETURN_IF_ERROR(Add("tg", n, depth, batch));
      }
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
    runner_.Reset();
    // A step of one token is a decode step only after another.
    if (depth > 0) TN_RETURN_IF_ERROR(runner_.Extend(Ids(depth), WantLogits::kNone));
    const std::vector<int32_t> ids = Ids(count);
    const auto begin = std::chrono::steady_clock::now();
    TN_RETURN_IF_ERROR(is_prompt ? runner_.Extend(ids, WantLogits::kLast) : Generate(ids));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  // From the step on in which all sequences generate.
  Result<double> SecondsOfBatch(int64_t count, int64_t depth, int64_t batch) {
    runner_.Reset();
    TN_ASSIGN_OR_RETURN(const auto engine,
                        BatchEngine::Create(runner_.steps(), {.reuse_prefixes = false}));
    BatchRequest request;
    request.prompt = Ids(std::max<int64_t>(1, depth));
    // Those that came first are some tokens ahead when the last one's prompt is read.
    const int64_t rows = static_cast<int64_t>(request.prompt.size()) * batch;
    request.max_new_tokens = count + 1 + rows;
    for (int64_t i = 0; i < batch; ++i) TN_RETURN_IF_ERROR(engine->Submit(request).status());
    int64_t before = -1;
    // A step of `batch` rows, and nobody waits: all generate.
    while (engine->waiting() > 0 || engine->stats().rows - before != batch) {
      before = engine->stats().rows;
      TN_ASSIGN_OR_RETURN(const bool more, engine->Step());
      if (!more) return DoesNotFit(fmt::format("{} sequences of {} tokens", batch, count + depth));
    }
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < count; ++i) TN_RETURN_IF_ERROR(engine->Step().status());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  Status Add(const char* kind, int64_t count, int64_t depth, int64_t batch = 1) {
    if (count <= 0) return {};
    const bool is_prompt = kind[0] == 'p';
    BenchmarkRow row;
    row.name = fmt::format("{}{}{}{}", kind, count, batch > 1 ? fmt::format(" b{}", batch) : "",
                           depth > 0 ? fmt::format(" @ d{}", depth) : "");
    row.tokens = count * batch;
    row.batch = batch;
    row.depth = depth;
    const auto seconds_of = [&] {
      return batch > 1 ? SecondsOfBatch(count, depth, batch) : SecondsOf(is_prompt, count, depth);
    };
    TN_RETURN_IF_ERROR(seconds_of().status(), row.name);  // warms up
    std::vector<double> ratios;
    for (int64_t i = 0; i < options_.repetitions; ++i) {
      TN_ASSIGN_OR_RETURN(const double seconds, seconds_of());
      row.seconds.push_back(seconds);
      ratios.push_back(LimitSeconds(is_prompt, count) / seconds);
    }
    const auto rate = [&](double seconds) { return static_cast<double>(row.tokens) / seconds; };
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
