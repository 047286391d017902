#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>

#include "command.h"
#include "tenon/base/file.h"
#include "tenon/base/text.h"
#include "tenon/engine/benchmark.h"

namespace tenon::cli {
namespace {

struct BenchArguments {
  explicit BenchArguments(CLI::App& command) : model(command, kBench) {}

  ModelArguments model;
  BenchmarkOptions bench;
  std::string format = "md";
  bool profile = false;
  std::string trace;
};

void PrintMarkdown(const BenchmarkReport& report, const PlannedModel& plan) {
  fmt::print(
      "| test | threads | tokens/s | least | most | of the limit |\n|---|---|---|---|---|---|\n");
  for (const BenchmarkRow& row : report.rows) {
    fmt::print("| {} | {} | {:.1f} | {:.1f} | {:.1f} | {:.2f} |\n", row.name, plan.threads,
               row.tokens_per_second, row.least, row.most, row.of_limit);
  }
  fmt::print(
      "\nLimits in this run: reading memory {:.1f} GB/s, multiplying {:.0f} G operations/s.\n",
      report.read_bytes_per_second * 1e-9, report.multiplies_per_second * 1e-9);
}

void PrintCsv(const BenchmarkReport& report, const PlannedModel& plan) {
  fmt::print("test,threads,tokens,depth,tokens_per_second,least,most,of_limit\n");
  for (const BenchmarkRow& row : report.rows) {
    fmt::print("{},{},{},{},{:.3f},{:.3f},{:.3f},{:.4f}\n", row.name, plan.threads, row.tokens,
               row.depth, row.tokens_per_second, row.least, row.most, row.of_limit);
  }
}

Json ProfileJson(const ModelRunner& runner) {
  Json::Array rows;
  for (const StepRunner::ProfileRow& row : runner.steps().profile()) {
    Json entry;
    entry.Set("step", row.step);
    entry.Set("op", row.op);
    entry.Set("kernel", row.kernel);
    entry.Set("runs", row.runs);
    entry.Set("records", row.records);
    entry.Set("work_seconds", row.work_seconds);
    entry.Set("wait_seconds", row.wait_seconds);
    rows.push_back(std::move(entry));
  }
  return rows;
}

void PrintJson(const BenchmarkReport& report, const ModelRunner& runner) {
  Json::Array rows;
  for (const BenchmarkRow& row : report.rows) {
    Json entry;
    entry.Set("test", row.name);
    entry.Set("tokens", row.tokens);
    entry.Set("depth", row.depth);
    entry.Set("batch", row.batch);
    entry.Set("tokens_per_second", row.tokens_per_second);
    entry.Set("of_limit", row.of_limit);
    Json::Array seconds;
    for (const double s : row.seconds) seconds.emplace_back(s);
    entry.Set("seconds", std::move(seconds));
    rows.push_back(std::move(entry));
  }
  Json out;
  out.Set("schema", 1);
  out.Set("model", runner.plan().checkpoint->path());
  out.Set("threads", static_cast<int64_t>(runner.plan().threads));
  out.Set("read_bytes_per_second", report.read_bytes_per_second);
  out.Set("operations_per_second", report.multiplies_per_second);
  out.Set("tests", std::move(rows));
  out.Set("profile", ProfileJson(runner));
  fmt::print("{}\n", out.Dump(2));
}

// Microseconds per run of the step, by op and kernel.
void PrintProfile(const ModelRunner& runner) {
  std::string step;
  for (const StepRunner::ProfileRow& row : runner.steps().profile()) {
    if (row.step != step) {
      step = row.step;
      fmt::print("\n{}, {} runs, us per run\n{:>10} {:>10} {:>8}  kernel\n", step, row.runs, "work",
                 "wait", "records");
    }
    const double scale = 1e6 / static_cast<double>(std::max<int64_t>(1, row.runs));
    fmt::print("{:10.1f} {:10.1f} {:8}  {}\n", row.work_seconds * scale, row.wait_seconds * scale,
               row.records, row.kernel);
  }
}

// Chrome's trace format (chrome://tracing, Perfetto): complete events, microseconds.
Status WriteTrace(const ModelRunner& runner, const std::string& path) {
  const std::vector<StepRunner::TraceSpan> trace = runner.steps().trace();
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const StepRunner::TraceSpan& span : trace) first = std::min(first, span.begin_ns);
  const auto microseconds = [](int64_t ns) { return 1e-3 * static_cast<double>(ns); };
  Json::Array events;
  for (const StepRunner::TraceSpan& span : trace) {
    Json args;
    args.Set("step", span.step);
    args.Set("module", span.scope);
    Json event;
    event.Set("name", span.kernel);
    event.Set("cat", span.op);
    event.Set("ph", "X");
    event.Set("ts", microseconds(span.begin_ns - first));
    event.Set("dur", microseconds(span.end_ns - span.begin_ns));
    event.Set("pid", 1);
    event.Set("tid", static_cast<int64_t>(span.thread));
    event.Set("args", std::move(args));
    events.push_back(std::move(event));
  }
  Json out;
  out.Set("traceEvents", std::move(events));
  return WriteFile(path, out.Dump());
}

Status Bench(const BenchArguments& arguments) {
  const int64_t most =
      *std::max_element(arguments.bench.batches.begin(), arguments.bench.batches.end());
  TN_ASSIGN_OR_RETURN(auto plan, arguments.model.Plan([&](EngineOptions& options) {
    if (!options.max_sequences.origin.IsExplicit() && most > 1)
      options.max_sequences = {most, {Origin::Kind::kUser, "-b"}};
  }));
  TN_ASSIGN_OR_RETURN(const auto runner, ModelRunner::Load(std::move(plan)));
  if (arguments.profile || !arguments.trace.empty()) runner->steps().Profile();
  TN_ASSIGN_OR_RETURN(const BenchmarkReport report, RunBenchmark(*runner, arguments.bench));
  if (arguments.format == "json") {
    PrintJson(report, *runner);
  } else if (arguments.format == "csv") {
    PrintCsv(report, runner->plan());
  } else {
    PrintMarkdown(report, runner->plan());
  }
  if (arguments.profile && arguments.format != "json") PrintProfile(*runner);
  // Last: a path that cannot be written costs no figures.
  return arguments.trace.empty() ? Status() : WriteTrace(*runner, arguments.trace);
}

}  // namespace

Action AddBench(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("bench", "Tokens per second, and their share of what the machine can do");
  auto arguments = std::make_shared<BenchArguments>(*command);
  BenchmarkOptions& bench = arguments->bench;
  command->add_option("-p", bench.prompts, "Prompt lengths: 512,2048; 0: none")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("-n", bench.generations, "Tokens to generate: 128; 0: none")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("-d", bench.depths, "Tokens in the cache before: 0,4096")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      ->add_option("-b", bench.batches,
                   "Sequences that generate at once: 1,8; needs no --max-sequences")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 4096));
  command->add_option("-r", bench.repetitions, "Repetitions of each test")
      ->check(CLI::Range(1, 1000));
  command->add_option("-o", arguments->format, "Output: md, json, csv")
      ->check(CLI::IsMember({"md", "json", "csv"}));
  command->add_option("--trace", arguments->trace,
                      "File to write: the last run of each step, for chrome://tracing or Perfetto");
  command->add_flag("--profile", arguments->profile, "Also where the time goes, by kernel");
  return [arguments] { return Bench(*arguments); };
}

}  // namespace tenon::cli
