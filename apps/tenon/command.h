// What the commands share: the model options, reading JSON lines, and how an error leaves the
// program. One thread.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tenon/base/json.h"
#include "tenon/plan/plan.h"

namespace tenon::cli {

// Options of every command that plans a model, with their origins filled when set.
class ModelOptions {
 public:
  // Adds MODEL and the options to a command.
  void AddTo(CLI::App& command);
  // After parsing: what was set, by whom.
  Result<PlanOptions> Resolve() const;
  const std::string& model() const { return model_; }

 private:
  // One textual option; empty text and no use: not set.
  struct Row {
    CLI::Option* option = nullptr;
    std::string text;
    const char* name = "";
    const char* environment = "";
  };
  Result<Sourced<std::string>> TextOf(const Row& row) const;
  template <typename T>
  Status Apply(const Row& row, T& target) const;

  std::string model_;
  Row compute_, backend_, kv_dtype_, max_seq_len_, threads_, isa_, memory_, page_tokens_,
      prefill_chunk_, downgrades_;
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

// Reads JSON lines from stdin, answers each with one line on stdout, in order. A line that fails
// answers {"error"}; the rest goes on and the command fails at the end (exit 1). `line` counts from
// 0; empty lines are skipped and not counted.
Status AnswerJsonLines(
    const std::function<Result<Json>(const Json& request, int64_t line)>& answer);

// "1,2, 3" -> ids. kUsage names the part that is no id.
Result<std::vector<int32_t>> ParseIds(const std::string& text);
// A JSON list of integers, bounds-checked at 64 bits.
Result<std::vector<int32_t>> IdsOf(const Json& list, std::string_view what);
Json JsonIds(std::span<const int32_t> ids);

// The whole of a file, or of stdin for "-".
Result<std::string> ReadText(const std::string& path);

}  // namespace tenon::cli
