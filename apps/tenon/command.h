// What the commands share: options from the table, reading JSON lines, and how an error leaves the
// program. One thread.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tenon/base/json.h"
#include "tenon/config/option_table.h"
#include "tenon/plan/plan.h"

namespace tenon::cli {

// The options of one command: those rows of the option table that belong to it.
class TableOptions {
 public:
  // Adds the rows to the command line.
  TableOptions(CLI::App& app, Command command);
  // After parsing: command line, environment, config file. Also sets the log level.
  Result<EngineOptions> Resolve() const;

 private:
  struct Row {
    std::string name;
    bool is_flag;
    CLI::Option* option;
  };
  Command command_;
  std::vector<Row> rows_;
};

// MODEL and the table's options of a command that plans a model.
struct ModelArguments {
  ModelArguments(CLI::App& app, Command command);
  // From the arguments to everything decided; no weight is read.
  // `adjust` sees the options first: for what a command's own arguments ask of the plan.
  Result<std::unique_ptr<PlannedModel>> Plan(
      const std::function<void(EngineOptions&)>& adjust = {}) const;

  std::string model;
  TableOptions options;
};

// A command: its sub-app, and what to do when it was chosen. The returned status decides the exit
// code.
using Action = std::function<Status()>;
using AddCommand = Action (*)(CLI::App& app);

Action AddRun(CLI::App& app);
Action AddExplain(CLI::App& app);
Action AddLogits(CLI::App& app);
Action AddTokenize(CLI::App& app);
Action AddRender(CLI::App& app);
Action AddInspect(CLI::App& app);
Action AddModels(CLI::App& app);
Action AddBench(CLI::App& app);

// Reads JSON lines from stdin, answers each with one line on stdout, in order. A line that fails
// answers {"error"}; the rest goes on and the command fails at the end (exit 1). `line` counts from
// 0; empty lines are skipped and not counted.
Status AnswerJsonLines(
    const std::function<Result<Json>(const Json& request, int64_t line)>& answer);

// "1,2, 3" -> ids. kUsage names the part that is no id.
Result<std::vector<int32_t>> ParseIds(const std::string& text);
// A JSON list of integers, bounds-checked at 64 bits.
Result<std::vector<int32_t>> IdsOf(const Json& list, std::string_view what);
// A member of a request that is true or false; the fallback when absent or null.
Result<bool> FlagOf(const Json& request, std::string_view name, bool fallback);
Json JsonIds(std::span<const int32_t> ids);

// The whole of a file, or of stdin for "-".
Result<std::string> ReadText(const std::string& path);

}  // namespace tenon::cli
